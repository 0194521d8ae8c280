"""Changes of the in-sync replicas of a partition: replicas leave them, and return by joining.

The functions are for `MetadataLog.commit`: they are given the present image, have no effects, and
return no records if there is nothing to change, or if the decision was made on an earlier leader
epoch. The caller then reads the present state and decides again.

The callers decide which replicas leave. A client removes a replica that failed it:
``log/chain/replica_failure.py`` decides whether an error is the fault of a replica. The controller
removes the replicas on brokers that have failed for ``replica.lag.time.max.ms``
(``replication/controller.py``, ``_shrink``).
"""

from __future__ import annotations

from collections.abc import Collection

from spark_log.log.chain import NO_LEADER
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change_builder import PartitionChangeBuilder
from spark_log.metadata.records import MetadataRecord


def shrink_isr(
    image: MetadataImage,
    topic_id: str,
    partition: int,
    brokers: Collection[int],
    *,
    leader_epoch: int,
) -> list[MetadataRecord]:
    """Return the record that removes brokers from the in-sync and the joining replicas.

    The leader is the first remaining in-sync replica that is not fenced; replicas before it leave,
    too. If no remaining replica can lead, all stay in sync and the partition has no leader. Below
    ``min.insync.replicas`` the leaving replicas are eligible to lead (KIP-966), but this function
    elects none of them: a writer that cannot reach any replica must not move the leadership around.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        brokers: the ids of the brokers that failed or lag. Ids that hold no replica are ignored.
        leader_epoch: the leader epoch in which this was noticed.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition, leader_epoch=leader_epoch)
    if builder is None:
        return []
    before = builder.partition
    if not {*before.isr, *before.joining}.intersection(brokers):
        return []
    changes = {
        "isr": tuple(broker for broker in before.isr if broker not in brokers),
        "joining": tuple(broker for broker in before.joining if broker not in brokers),
    }
    return builder.without(brokers).build(before.model_copy(update=changes))


def begin_joining(
    image: MetadataImage,
    topic_id: str,
    partition: int,
    broker_id: int,
    *,
    leader_epoch: int,
    directory: int,
) -> list[MetadataRecord]:
    """Return the record that appends a replica that is not in sync to the joining replicas.

    A partition without a leader is not changed: nobody would append the barrier. A replica on a
    fenced broker cannot join, as in Kafka (``INELIGIBLE_REPLICA``). A replica that joins cannot
    change its directory: it has to leave first.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        broker_id: the broker with the replica.
        leader_epoch: the leader epoch in which the replica was found to be a prefix of the leader.
        directory: the number of the directory with this replica.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition, leader_epoch=leader_epoch)
    if builder is None or broker_id not in builder.can_lead:
        return []
    before = builder.partition
    if before.leader == NO_LEADER or broker_id not in before.replicas:
        return []
    if broker_id in (*before.isr, *before.joining):
        return []
    directories = tuple(
        directory if replica == broker_id else before.directory_of(replica)
        for replica in before.replicas
    )
    changes = {
        "joining": (*before.joining, broker_id),
        "directories": directories if any(directories) else (),
    }
    return builder.build(before.model_copy(update=changes))


def complete_joining(
    image: MetadataImage, topic_id: str, partition: int, broker_id: int, *, leader_epoch: int
) -> list[MetadataRecord]:
    """Return the record that moves a joining replica to the end of the in-sync replicas.

    A partition without a leader is not changed: its leader epoch can have no barrier.

    Args:
        image: the present metadata.
        topic_id: the id of the topic.
        partition: the number of the partition.
        broker_id: the broker with the replica.
        leader_epoch: the leader epoch whose barrier is on all in-sync replicas and on this one.
    """
    builder = PartitionChangeBuilder.find(image, topic_id, partition, leader_epoch=leader_epoch)
    if builder is None:
        return []
    before = builder.partition
    if before.leader == NO_LEADER or broker_id not in before.joining:
        return []
    changes = {
        "isr": (*before.isr, broker_id),
        "joining": tuple(broker for broker in before.joining if broker != broker_id),
    }
    return builder.build(before.model_copy(update=changes))
