"""Checks new topics and new partitions, and builds the metadata records that create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from spark_log.config import TopicConfig, to_text
from spark_log.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
)
from spark_log.metadata.brokers import usable_brokers
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions import (
    UsableBroker,
    place_replicas,
    validate_replica_assignment,
)
from spark_log.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from spark_log.metadata.root_broker import ROOT_BROKER_ID
from spark_log.metadata.topic_image import TopicImage
from spark_log.metadata.topics.names import validate_topic_name
from spark_log.types import NewPartitions, NewTopic
from spark_log.values import typed_values_of

MAX_PARTITIONS: Final = 200_000
"""Maximum number of partitions of a topic, so that a typing error cannot create millions."""

_DEFAULT: Final = -1
"""The replication factor by which Kafka's clients request the cluster's default."""


def validate_new_topic(topic: NewTopic) -> None:
    """Check a new topic, except for conflicts with existing topics and with brokers.

    Raises:
        InvalidTopicError, InvalidPartitionsError, InvalidReplicationFactorError,
        InvalidReplicaAssignmentError, InvalidConfigurationError: the topic cannot be created.
    """
    if not isinstance(topic, NewTopic):
        example = repr(topic) if isinstance(topic, str) else "'name'"
        raise InvalidTopicError(
            f"{topic!r} is a {type(topic).__name__}; give a list of NewTopic, such as "
            f"[NewTopic({example}, num_partitions=3)]"
        )
    validate_topic_name(topic.name)
    count = topic.num_partitions
    if type(count) is not int:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {count!r} partitions; give a whole number, such as 3"
        )
    assignment = topic.replica_assignment
    if isinstance(assignment, Mapping):  # anything else is refused with the brokers
        if count not in (1, len(assignment)):
            raise InvalidReplicaAssignmentError(
                f"topic {topic.name!r}: {_partitions(count)}, but replicas are assigned to "
                f"{_partitions(len(assignment))}; leave the number of partitions out"
            )
        count = len(assignment)
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {_partitions(count)}; give 1 to {MAX_PARTITIONS}"
        )
    factor = topic.replication_factor
    if factor not in (None, _DEFAULT) and (type(factor) is not int or factor < 1):
        raise InvalidReplicationFactorError(
            f"topic {topic.name!r}: replication factor {factor!r}; give at least 1, or leave it "
            f"out for the cluster's default.replication.factor"
        )
    typed_values_of(TopicConfig.parse(topic.topic_configs))


def topic_records(topic: NewTopic, topic_id: str, image: MetadataImage) -> list[MetadataRecord]:
    """Return the records that create a topic, its partitions and its configs.

    Args:
        topic: the topic, which `validate_new_topic` has accepted.
        topic_id: the topic's new id. Equal ids and brokers give equal choices of brokers.
        image: the present metadata, with the brokers.

    Raises:
        InvalidReplicationFactorError: too few brokers are registered, or all are fenced.
        InvalidReplicaAssignmentError: the assignment is not possible.
    """
    checked = TopicConfig.parse(topic.topic_configs)
    values = checked.dotted()
    given_keys = [
        TopicConfig.model_fields[field].alias or field for field in checked.model_fields_set
    ]
    return [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *_new_partitions(image, topic_id, 0, _replicas_of_new_topic(topic, topic_id, image)),
        *(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic.name,
                name=key,
                value=to_text(values[key]),
            )
            for key in sorted(given_keys)
        ),
    ]


def partition_records(
    topic: TopicImage, new: int | NewPartitions, image: MetadataImage
) -> list[MetadataRecord]:
    """Return the records that add partitions to a topic, with as many replicas as partition 0.

    Args:
        topic: the topic.
        new: the total number of partitions, with or without an assignment of the new ones.
        image: the present metadata, with the brokers.

    Raises:
        InvalidPartitionsError: the topic has this number of partitions or more (Kafka's
            ``ReplicationControlManager`` refuses it, too), or the number is not allowed.
        InvalidReplicationFactorError: too few brokers are registered, or all are fenced.
        InvalidReplicaAssignmentError: the assignment is not possible.
    """
    total_count, assignments = (
        (new.total_count, new.new_assignments) if isinstance(new, NewPartitions) else (new, None)
    )
    has = topic.num_partitions
    if not isinstance(total_count, int):
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {total_count!r} partitions; give a whole number"
        )
    if total_count == has:
        raise InvalidPartitionsError(f"topic {topic.name!r} already has {_partitions(has)}")
    if total_count < has:
        raise InvalidPartitionsError(
            f"topic {topic.name!r} has {_partitions(has)}; {total_count} would not be an increase, "
            f"and partitions cannot be removed"
        )
    if total_count > MAX_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: {total_count} partitions; give {has + 1} to {MAX_PARTITIONS}"
        )
    existing = [topic.partitions[number].replicas for number in range(has)]
    factor = len(existing[0]) - len(topic.partitions[0].adding_replicas)
    if assignments is None:
        replicas = place_replicas(
            _brokers_for(image, topic.config(), factor),
            num_partitions=total_count - has,
            replication_factor=factor,
            random=Random(f"{topic.topic_id}-{has}"),
            existing=existing,
        )
    elif not isinstance(assignments, Sequence):
        raise InvalidReplicaAssignmentError(
            f"topic {topic.name!r}: replicas are assigned by {assignments!r}; give one list of "
            f"brokers' ids for each new partition, such as [[0, 1], [1, 0]]"
        )
    elif len(assignments) != total_count - has:
        raise InvalidReplicaAssignmentError(
            f"topic {topic.name!r}: replicas are assigned to {_partitions(len(assignments))}, but "
            f"{_partitions(total_count - has)} would be new; give one list for each of them"
        )
    else:
        replicas = validate_replica_assignment(
            dict(enumerate(assignments, start=has)),
            usable_brokers(image),
            first_partition=has,
            replication_factor=factor,
        )
    return _new_partitions(image, topic.topic_id, has, replicas)


def _replicas_of_new_topic(
    topic: NewTopic, topic_id: str, image: MetadataImage
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition."""
    factor = None if topic.replication_factor == _DEFAULT else topic.replication_factor
    if topic.replica_assignment is not None:
        return validate_replica_assignment(
            topic.replica_assignment, usable_brokers(image), replication_factor=factor
        )
    factor = factor or image.cluster_config().default_replication_factor
    return place_replicas(
        _brokers_for(image, TopicConfig.parse(topic.topic_configs), factor),
        num_partitions=topic.num_partitions,
        replication_factor=factor,
        random=Random(topic_id),
    )


def _brokers_for(
    image: MetadataImage, config: TopicConfig, replication_factor: int
) -> list[UsableBroker]:
    """Return the brokers that can get replicas. Stripes are in the cluster's root.

    With more replicas all brokers are returned, and `check_stripes` refuses the topic.
    """
    in_root = config.stripes > 0 and replication_factor == 1
    return [
        broker
        for broker in usable_brokers(image)
        if broker.broker_id == ROOT_BROKER_ID or not in_root
    ]


def _new_partitions(
    image: MetadataImage, topic_id: str, first: int, replicas: Sequence[tuple[int, ...]]
) -> list[MetadataRecord]:
    """Return the records of new partitions. All replicas that are not fenced are in sync."""
    fenced = {broker.broker_id for broker in image.brokers() if broker.fenced}
    records: list[MetadataRecord] = []
    for number, brokers in enumerate(replicas, start=first):
        isr = tuple(broker for broker in brokers if broker not in fenced)
        records.append(
            PartitionRecord(
                topic_id=topic_id,
                partition_id=number,
                replicas=brokers,
                isr=isr,
                leader=isr[0],
            )
        )
    return records


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
