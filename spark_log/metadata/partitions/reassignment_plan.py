"""Plans of reassignments: the JSON files of ``kafka-reassign-partitions``, proposals, progress.

Files are read and written in Kafka's version 1::

    {"version":1,"topics":[{"topic":"flights"}]}
    {"version":1,"partitions":[{"topic":"flights","partition":0,"replicas":[1,2],"log_dirs":[…]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spark_log.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.placement import UsableBroker, place_replicas
from spark_log.metadata.partitions.reassignment import is_reassigning, target_replicas
from spark_log.metadata.topic_image import TopicImage
from spark_log.types import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]
"""Partition → its replicas, the preferred leader first."""

_ANY_LOG_DIR: Final = "any"
"""The only log directory that a broker has: a storage root has one tree of files."""

_Item = TypeVar("_Item")


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _PlanFile(_Strict):
    form: ClassVar[str]
    version: Literal[1] = 1


class _TopicItem(_Strict):
    topic: str


class _PartitionItem(_Strict):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] | None = None


class _TopicsFile(_PlanFile):
    form = '{"topics": [{"topic": "foo"}], "version": 1}'
    topics: list[_TopicItem] = Field(default_factory=list)


class _ReassignmentFile(_PlanFile):
    form = '{"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2]}], "version": 1}'
    partitions: list[_PartitionItem] = Field(default_factory=list)


_AnyFile = TypeVar("_AnyFile", bound=_PlanFile)


def parse_topics_to_move(text: str) -> list[str]:
    """Return the topics of a ``--topics-to-move-json-file``, in the order of the file.

    Raises:
        InvalidReplicaAssignmentError: the text is not such JSON, is empty, or has a topic twice.
    """
    topics = [each.topic for each in _parse(_TopicsFile, text).topics]
    if not topics:
        raise InvalidReplicaAssignmentError("the list of topics to move is empty; name one")
    if twice := list(_duplicates(topics)):
        raise InvalidReplicaAssignmentError(f"topics to move are named twice: {twice}")
    return topics


def parse_reassignment(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the assignment in a ``--reassignment-json-file``, in the order of the file.

    Raises:
        InvalidReplicaAssignmentError: the text is not such JSON, is empty, has a partition twice, a
            partition without a replica, a broker twice, or a log directory other than ``any``.
    """
    found = _parse(_ReassignmentFile, text).partitions
    if not found:
        raise InvalidReplicaAssignmentError("the list of partitions to reassign is empty; name one")
    for each in found:
        _check_partition(each)
    partitions = [TopicPartition(each.topic, each.partition) for each in found]
    if twice := [str(each) for each in _duplicates(partitions)]:
        raise InvalidReplicaAssignmentError(f"partitions to reassign are named twice: {twice}")
    return {tp: tuple(each.replicas) for tp, each in zip(partitions, found, strict=True)}


def format_reassignment(assignment: Assignment) -> str:
    """Return the text of a ``--reassignment-json-file``, sorted by topic and partition."""
    partitions = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [_ANY_LOG_DIR] * len(replicas),
        }
        for tp, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def current_assignment(
    image: MetadataImage, topics: Iterable[str]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the present replicas of all partitions of topics.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
    """
    return {
        TopicPartition(name, number): partition.replicas
        for name in topics
        for number, partition in sorted(image.topic(name).partitions.items())
    }


def propose_assignment(
    image: MetadataImage,
    topics: Iterable[str],
    brokers: Sequence[int],
    *,
    random: Random,
    is_rack_aware: bool = True,
    replication_factor: int | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Propose replicas on some brokers for all partitions of topics, as ``--generate`` does.

    Args:
        image: the present metadata.
        topics: the names of the topics.
        brokers: the brokers to use.
        random: makes the random choices of `place_replicas`.
        is_rack_aware: whether replicas of a partition are spread over racks.
        replication_factor: the number of replicas of each partition; None for the topic's.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        BrokerIdNotRegisteredError: there is no such broker.
        InvalidReplicaAssignmentError: a topic has stripes, a broker is named twice or is being
            unregistered, or only some of them have a rack.
        InvalidReplicationFactorError: there are too few brokers, or all are fenced.
    """
    usable = _usable(image, brokers, is_rack_aware)
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in map(image.topic, topics):
        if topic.config().stripes:
            raise InvalidReplicaAssignmentError(
                f"topic {topic.name!r} has stripes, which are in the cluster's root: its "
                f"partitions stay there; leave it out"
            )
        factor = replication_factor or _replication_factor(topic)
        if factor > len(usable):
            raise InvalidReplicationFactorError(
                f"topic {topic.name!r}: replication factor {factor}, but {len(usable)} brokers are "
                f"given; give more brokers, or a lower replication factor"
            )
        placed = place_replicas(
            usable,
            num_partitions=topic.num_partitions,
            replication_factor=factor,
            random=random,
        )
        numbers = sorted(topic.partitions)
        proposed |= {
            TopicPartition(topic.name, number): replicas
            for number, replicas in zip(numbers, placed, strict=True)
        }
    return proposed


@dataclass(frozen=True, slots=True)
class PartitionReassignmentState:
    """The progress of a planned reassignment of a partition (Kafka's class of this name).

    Attributes:
        current_replicas: the present replicas; empty if the partition does not exist.
        target_replicas: the replicas in the plan.
        done: whether no reassignment of the partition is in progress.
    """

    current_replicas: tuple[int, ...]
    target_replicas: tuple[int, ...]
    done: bool

    @property
    def is_complete(self) -> bool:
        """Whether the partition has the replicas of the plan."""
        return self.done and self.current_replicas == self.target_replicas


def verify_reassignment(
    image: MetadataImage, assignment: Assignment
) -> dict[TopicPartition, PartitionReassignmentState]:
    """Return the progress of each partition of a plan, sorted, as ``--verify`` does."""
    states = {}
    for tp, target in sorted(assignment.items()):
        topic = image.find(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        states[tp] = PartitionReassignmentState(
            () if partition is None else partition.replicas,
            tuple(target),
            partition is None or not is_reassigning(partition),
        )
    return states


def _parse(model: type[_AnyFile], text: str) -> _AnyFile:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{place}: {first['msg']}" if place else first["msg"]
        raise InvalidReplicaAssignmentError(f"not of the form {model.form}: {why}") from None


def _check_partition(found: _PartitionItem) -> None:
    if not found.replicas:
        why = "its list of replicas is empty; give the ids of its brokers"
    elif twice := list(_duplicates(found.replicas)):
        why = f"its list of replicas has brokers twice: {twice}"
    elif found.log_dirs is None or found.log_dirs == [_ANY_LOG_DIR] * len(found.replicas):
        return
    elif len(found.log_dirs) != len(found.replicas):
        why = f"{len(found.replicas)} replicas, but {len(found.log_dirs)} log directories"
    else:
        why = f"log directories {found.log_dirs}; a broker has one only, give {_ANY_LOG_DIR!r}"
    raise InvalidReplicaAssignmentError(
        f"partition {found.topic}-{found.partition}: {why}", partition=found.partition
    )


def _usable(
    image: MetadataImage, brokers: Sequence[int], is_rack_aware: bool
) -> list[UsableBroker]:
    if twice := list(_duplicates(brokers)):
        raise InvalidReplicaAssignmentError(f"brokers are named twice: {twice}")
    found = [image.broker(broker_id) for broker_id in brokers]
    if leaving := [broker.broker_id for broker in found if broker.in_controlled_shutdown]:
        raise InvalidReplicaAssignmentError(f"brokers are being unregistered: {leaving}")
    if is_rack_aware and len({broker.rack is None for broker in found}) > 1:
        without = [broker.broker_id for broker in found if broker.rack is None]
        raise InvalidReplicaAssignmentError(
            f"brokers {without} have no rack, and others have one; use --disable-rack-aware to "
            f"ignore racks"
        )
    return [
        UsableBroker(broker.broker_id, broker.rack if is_rack_aware else None, broker.fenced)
        for broker in found
    ]


def _replication_factor(topic: TopicImage) -> int:
    return len(target_replicas(topic.partitions[0]))


def _duplicates(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield each item that occurs more than once."""
    return (item for item in dict.fromkeys(items) if items.count(item) > 1)
