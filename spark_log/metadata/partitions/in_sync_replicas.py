"""Replicas leave the in-sync replicas of a partition, and come back by joining.

The functions are for `MetadataLog.commit`: they are given the present image, have no effects, and
return no records if there is nothing to change, or if the decision was made on an earlier leader
epoch. The caller then looks at the present state and decides again.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import dropwhile

from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change import (
    change_records,
    find_in_epoch,
    unfenced_brokers,
)
from spark_log.metadata.records import NO_LEADER, MetadataRecord


def leave_isr(
    image: MetadataImage,
    topic_id: str,
    partition: int,
    brokers: Collection[int],
    *,
    leader_epoch: int,
) -> list[MetadataRecord]:
    """Return the record that takes brokers out of the in-sync and of the joining replicas.

    Each in-sync replica holds a prefix of the one before it. So the leader is the first one that is
    left and not fenced, and those before it leave, too: they may hold records that it lacks. If
    none can lead, all stay in sync and the partition has no leader: nobody appends, so each of them
    still holds every acknowledged record.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        brokers: those that failed or lag. Others than replicas are ignored.
        leader_epoch: the leader epoch in which this was noticed.
    """
    before = find_in_epoch(image, topic_id, partition, leader_epoch)
    if before is None or not {*before.isr, *before.joining}.intersection(brokers):
        return []
    unfenced = unfenced_brokers(image)
    left = (broker for broker in before.isr if broker not in brokers)
    isr = tuple(dropwhile(lambda broker: broker not in unfenced, left))
    changes = {
        "isr": isr or before.isr,
        "leader": isr[0] if isr else NO_LEADER,
        "joining": tuple(broker for broker in before.joining if broker not in brokers),
    }
    return change_records(before, before.model_copy(update=changes))


def begin_joining(
    image: MetadataImage,
    topic_id: str,
    partition: int,
    broker_id: int,
    *,
    leader_epoch: int,
    directory: int,
) -> list[MetadataRecord]:
    """Return the record that puts a replica that is not in sync at the end of those that join.

    A partition without a leader is not changed: nobody would append the barrier. Nor is one whose
    replica is on a fenced broker, as in Kafka (``INELIGIBLE_REPLICA``). A replica that joins cannot
    change its directory: it leaves first.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        broker_id: the broker with the replica.
        leader_epoch: the leader epoch in which the replica was found to be a prefix of the leader.
        directory: the number of the directory with this replica.
    """
    before = find_in_epoch(image, topic_id, partition, leader_epoch)
    if before is None or before.leader == NO_LEADER or broker_id not in unfenced_brokers(image):
        return []
    if broker_id not in before.replicas or broker_id in (*before.isr, *before.joining):
        return []
    directories = tuple(
        directory if replica == broker_id else before.directory_of(replica)
        for replica in before.replicas
    )
    changes = {
        "joining": (*before.joining, broker_id),
        "directories": directories if any(directories) else (),
    }
    return change_records(before, before.model_copy(update=changes))


def complete_joining(
    image: MetadataImage, topic_id: str, partition: int, broker_id: int, *, leader_epoch: int
) -> list[MetadataRecord]:
    """Return the record that puts a joining replica at the end of the in-sync replicas.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        broker_id: the broker with the replica.
        leader_epoch: the leader epoch whose barrier stands on all in-sync replicas and on this one.
    """
    before = find_in_epoch(image, topic_id, partition, leader_epoch)
    if before is None or broker_id not in before.joining:
        return []
    changes = {
        "isr": (*before.isr, broker_id),
        "joining": tuple(broker for broker in before.joining if broker != broker_id),
    }
    return change_records(before, before.model_copy(update=changes))
