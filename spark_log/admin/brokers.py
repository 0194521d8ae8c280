"""The cluster and its brokers; a broker here is a storage root."""

from __future__ import annotations

import logging
import os
from collections import Counter

from spark_log.admin.cluster_calls import all_partitions, commit
from spark_log.cluster import Cluster
from spark_log.cluster import register_broker as register_root
from spark_log.metadata import (
    ROOT_BROKER_ID,
    MetadataImage,
    alter_broker_records,
    fence_broker_records,
    unregister_broker_records,
)
from spark_log.types import BrokerDescription, ClusterDescription, TopicPartition

_log = logging.getLogger(__name__)


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Return the cluster's id and brokers."""
    return ClusterDescription(cluster.cluster_id, tuple(list_brokers(cluster)))


def list_brokers(cluster: Cluster) -> list[BrokerDescription]:
    """Return the registered brokers, sorted by id."""
    return _describe_brokers(cluster.root, cluster.image())


def register_broker(
    cluster: Cluster, broker_id: int, log_dir: str | os.PathLike[str], *, rack: str | None
) -> BrokerDescription:
    """Register a storage root as a broker."""
    register_root(cluster, broker_id, log_dir, rack=rack)
    return _describe(cluster, broker_id)


def alter_broker(cluster: Cluster, broker_id: int, *, rack: str | None) -> BrokerDescription:
    """Change the rack of a broker."""
    commit(cluster, lambda image: alter_broker_records(image, broker_id, rack=rack))
    return _describe(cluster, broker_id)


def set_fenced(cluster: Cluster, broker_id: int, *, fenced: bool) -> BrokerDescription:
    """Fence or unfence a broker."""
    commit(cluster, lambda image: fence_broker_records(image, broker_id, fenced=fenced))
    _log.info("%s: broker %d is %s", cluster.root, broker_id, "fenced" if fenced else "unfenced")
    return _describe(cluster, broker_id)


def unregister_broker(cluster: Cluster, broker_id: int) -> list[TopicPartition]:
    """Unregister a broker, or begin to; return the partitions that it still has replicas of."""
    commit(cluster, lambda image: unregister_broker_records(image, broker_id))
    image = cluster.image()
    remaining = [
        tp
        for tp in all_partitions(image)
        if broker_id in image.topic(tp.topic).partitions[tp.partition].replicas
    ]
    if remaining:
        _log.info(
            "%s: broker %d gets no new replicas; it is unregistered when its replicas of %d "
            "partitions were moved",
            cluster.root,
            broker_id,
            len(remaining),
        )
    else:
        _log.info("%s: broker %d is unregistered", cluster.root, broker_id)
    return remaining


def _describe(cluster: Cluster, broker_id: int) -> BrokerDescription:
    image = cluster.image()
    image.broker(broker_id)  # another process may just have unregistered it
    brokers = _describe_brokers(cluster.root, image)
    return next(each for each in brokers if each.broker_id == broker_id)


def _describe_brokers(root: str, image: MetadataImage) -> list[BrokerDescription]:
    replicas, in_sync, leaders = _counts(image)
    return [
        BrokerDescription(
            broker_id=broker.broker_id,
            log_dir=root if broker.broker_id == ROOT_BROKER_ID else broker.root,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            broker_epoch=broker.broker_epoch,
            incarnation_id=broker.incarnation_id,
            replica_count=replicas[broker.broker_id],
            in_sync_count=in_sync[broker.broker_id],
            leader_count=leaders[broker.broker_id],
        )
        for broker in image.brokers()
    ]


def _counts(image: MetadataImage) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Return by broker its numbers of replicas, in-sync replicas, and partitions that it leads."""
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    for topic in image.topics():
        for partition in topic.partitions.values():
            replicas.update(partition.replicas)
            in_sync.update(partition.isr)
            leaders[partition.leader] += 1
    return replicas, in_sync, leaders
