"""Reassignment: a partition moves to other brokers, or gets more or fewer replicas (KIP-455).

The new replicas are added and catch up by joining. Only then are the old ones removed. A
reassignment can stop at any point, and can be cancelled at any point.

The functions are for `MetadataLog.commit`: they are given the present image, have no effects, and
return no records if there is nothing to change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_log.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change_builder import (
    Election,
    PartitionChangeBuilder,
)
from spark_log.metadata.partitions.placement import UsableBroker
from spark_log.metadata.partitions.replica_assignment import validate_replica_assignment
from spark_log.metadata.records import MetadataRecord, PartitionRecord
from spark_log.types import PartitionReassignment, TopicPartition


def reassign_partition(
    image: MetadataImage, topic_id: str, partition: int, target: Sequence[int]
) -> list[MetadataRecord]:
    """Return the record that begins a reassignment, or completes it if the target is in sync.

    A partition that is being reassigned gets the new target. Its original replicas stay known, so
    that cancelling restores them. (In Kafka the replicas that the first reassignment added then
    count as original.)

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        target: the brokers that will hold the partition, the preferred leader first.

    Raises:
        InvalidReplicaAssignmentError: the target is empty; one of its brokers is named twice, is
            not registered or is being unregistered; or all are fenced.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition)
    if builder is None:
        return []
    before = builder.partition
    _validate(image, before, target)
    original = original_replicas(before)
    replicas = (*target, *(broker for broker in before.replicas if broker not in target))
    wanted = _with_replicas(
        before,
        replicas,
        adding=[broker for broker in replicas if broker not in original],
        removing=[broker for broker in replicas if broker not in target],
    )
    return builder.build(_completed(builder, wanted) or wanted)


def advance_reassignment(
    image: MetadataImage, topic_id: str, partition: int
) -> list[MetadataRecord]:
    """Return the record that completes a reassignment; none while a target replica is not in sync.

    Afterwards the partition has only the target replicas. If the leader is not one of them, the
    first target replica in the order of the in-sync replicas leads. The reassignment waits if all
    target replicas are fenced.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition)
    if builder is None or not is_reassigning(builder.partition):
        return []
    completed = _completed(builder, builder.partition)
    return [] if completed is None else builder.build(completed)


def cancel_reassignment(
    image: MetadataImage, topic_id: str, partition: int
) -> list[MetadataRecord]:
    """Return the record that restores the original replicas of a partition.

    Raises:
        NoReassignmentInProgressError: the partition is not being reassigned.
        InvalidReplicaAssignmentError: none of the original replicas can lead without a loss, and
            ``unclean.leader.election.enable`` is false, or all are fenced.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition)
    if builder is None:
        return []
    before = builder.partition
    if not is_reassigning(before):
        raise builder.error(NoReassignmentInProgressError, "no reassignment is in progress")
    wanted = _with_replicas(before, original_replicas(before))
    if not wanted.isr and not builder.has_leader(wanted, builder.election):
        raise InvalidReplicaAssignmentError(
            f"partition {builder.topic}-{partition}: none of the original replicas "
            f"{list(wanted.replicas)} can lead without a loss of records, in sync are "
            f"{list(before.isr)}; wait for the reassignment, or set "
            f"unclean.leader.election.enable and unfence one",
            partition=partition,
        )
    return builder.build(wanted, builder.election)


def list_reassignments(
    image: MetadataImage, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the reassignments in progress, sorted; of all partitions if ``partitions`` is None."""
    found = {}
    for topic in image.topics():
        for number, partition in sorted(topic.partitions.items()):
            tp = TopicPartition(topic.name, number)
            if is_reassigning(partition) and (partitions is None or tp in partitions):
                found[tp] = PartitionReassignment(
                    partition.replicas, partition.adding_replicas, partition.removing_replicas
                )
    return found


def is_reassigning(partition: PartitionRecord) -> bool:
    """Return whether a reassignment of the partition is in progress."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def original_replicas(partition: PartitionRecord) -> tuple[int, ...]:
    """Return the replicas from before the reassignment; all replicas without a reassignment."""
    adding = partition.adding_replicas
    return tuple(broker for broker in partition.replicas if broker not in adding)


def target_replicas(partition: PartitionRecord) -> tuple[int, ...]:
    """Return the replicas that a reassignment leads to; all replicas without a reassignment."""
    removing = partition.removing_replicas
    return tuple(broker for broker in partition.replicas if broker not in removing)


def _completed(
    builder: PartitionChangeBuilder, partition: PartitionRecord
) -> PartitionRecord | None:
    """Return the state after a reassignment; None if it cannot be completed yet."""
    target = target_replicas(partition)
    if not {*target}.issubset(partition.isr):
        return None
    completed = _with_replicas(partition, target)
    return completed if builder.has_leader(completed, Election.ISR) else None


def _with_replicas(
    partition: PartitionRecord,
    replicas: Sequence[int],
    *,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> PartitionRecord:
    """Return the state with only these replicas; others leave the ISR and the joining replicas."""
    numbers: Mapping[int, int] = {
        broker: partition.directory_of(broker) for broker in partition.replicas
    }
    directories = tuple(numbers.get(broker, 0) for broker in replicas)
    changes = {
        "replicas": tuple(replicas),
        "adding_replicas": tuple(adding),
        "removing_replicas": tuple(removing),
        "directories": directories if any(directories) else (),
        "isr": tuple(broker for broker in partition.isr if broker in replicas),
        "joining": tuple(broker for broker in partition.joining if broker in replicas),
    }
    return partition.model_copy(update=changes)


def _validate(image: MetadataImage, partition: PartitionRecord, target: Sequence[int]) -> None:
    usable = [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in image.brokers()
        if not broker.in_controlled_shutdown or broker.broker_id in partition.replicas
    ]
    number = partition.partition_id
    validate_replica_assignment({number: target}, usable, first_partition=number)
