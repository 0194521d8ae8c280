"""Log directories: the replicas in the root of each broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from spark_log.admin.cluster_calls import open_log
from spark_log.cluster import Cluster
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LogView
from spark_log.metadata import ROOT_BROKER_ID, MetadataImage
from spark_log.storage import map_requests
from spark_log.types import LogDirDescription, ReplicaInfo, TopicPartition


def describe_log_dirs(
    cluster: Cluster, topic_partitions: Mapping[str, Collection[int]] | Collection[str] | None
) -> list[LogDirDescription]:
    """Return the roots of all brokers, sorted by id, with their replicas."""
    image = cluster.image()
    wanted = _wanted(image, topic_partitions)
    for tp in wanted:
        open_log(cluster, image, tp)  # raises if the partition does not exist
    log_dirs = []
    for broker in image.brokers():
        broker_id = broker.broker_id
        root = cluster.root if broker_id == ROOT_BROKER_ID else broker.root
        here = [
            tp
            for tp in wanted
            if broker_id in image.topic(tp.topic).partitions[tp.partition].replicas
        ]
        topics = dict.fromkeys(tp.topic for tp in here) if broker_id == ROOT_BROKER_ID else ()
        stripes = [stripe for name in topics for stripe in cluster.stripes(image.topic(name))]
        try:
            replicas = _describe_replicas(
                cluster, image, broker_id, root, here, may_be_deleted=topic_partitions is None
            )
        except (BrokerIdNotRegisteredError, CorruptRecordError, StorageError) as error:
            if broker_id == ROOT_BROKER_ID:
                raise
            log_dirs.append(LogDirDescription(broker_id, root, (), str(error)))
        else:
            found = map_requests(cluster.store, lambda each: each.directory.describe(), stripes)
            described = LogDirDescription(broker_id, root, tuple(replicas), stripes=tuple(found))
            log_dirs.append(described)
    return _with_lags(image, log_dirs)


def _describe_replicas(
    cluster: Cluster,
    image: MetadataImage,
    broker_id: int,
    root: str,
    partitions: Sequence[TopicPartition],
    *,
    may_be_deleted: bool,
) -> list[ReplicaInfo]:
    """Return the replicas of a broker."""

    def describe(tp: TopicPartition) -> ReplicaInfo | None:
        topic = image.topic(tp.topic)
        number = topic.partitions[tp.partition].directory_of(broker_id)
        log = cluster.partition_log(topic, tp.partition).replica_of(broker_id, number)
        try:
            with cluster.detecting_deletion(topic):
                return _describe_replica(tp, log.observe(), f"{root}/{log.directory}")
        except UnknownTopicOrPartitionError:
            if not may_be_deleted:
                raise
            return None  # deleted since the metadata were read

    described = map_requests(cluster.broker_store(broker_id), describe, partitions)
    return [replica for replica in described if replica is not None]


def _wanted(
    image: MetadataImage, topic_partitions: Mapping[str, Collection[int]] | Collection[str] | None
) -> list[TopicPartition]:
    """Return the partitions that a caller has asked for."""
    names = [topic.name for topic in image.topics()]
    return [
        TopicPartition(name, number)
        for name in dict.fromkeys(names if topic_partitions is None else topic_partitions)
        for number in (
            topic_partitions[name]
            if isinstance(topic_partitions, Mapping)
            else sorted(image.topic(name).partitions)
        )
    ]


def _describe_replica(tp: TopicPartition, view: LogView, path: str) -> ReplicaInfo:
    return ReplicaInfo(
        topic=tp.topic,
        partition=tp.partition,
        size_bytes=sum(segment.file.size_bytes for segment in view.live.segments),
        offset_lag=0,
        is_future=False,
        segments=len(view.live.segments),
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        path=path,
    )


def _with_lags(image: MetadataImage, log_dirs: list[LogDirDescription]) -> list[LogDirDescription]:
    """Set each replica's lag behind the high watermark, the end of the last in-sync replica."""
    ends = {
        (log_dir.broker, replica.topic, replica.partition): replica.log_end_offset
        for log_dir in log_dirs
        for replica in log_dir.replicas
    }

    def with_lag(replica: ReplicaInfo) -> ReplicaInfo:
        last = image.topic(replica.topic).partitions[replica.partition].isr[-1]
        high_watermark = ends.get((last, replica.topic, replica.partition), replica.log_end_offset)
        return replace(replica, offset_lag=max(0, high_watermark - replica.log_end_offset))

    return [
        replace(log_dir, replicas=tuple(map(with_lag, log_dir.replicas))) for log_dir in log_dirs
    ]
