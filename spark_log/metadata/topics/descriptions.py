"""What is told of topics and replicas: metadata, and one look at each partition's log."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.log import LogView
from spark_log.metadata.image import TopicImage
from spark_log.types import PartitionDescription, ReplicaInfo, TopicDescription, TopicPartition


def describe_topic(topic: TopicImage, views: Mapping[int, LogView]) -> TopicDescription:
    """Return the description of a topic.

    Args:
        topic: as metadata has it.
        views: what each of its partitions holds.
    """
    partitions = [
        PartitionDescription(
            partition=number,
            leader=topic.partitions[number].leader,
            replicas=topic.partitions[number].replicas,
            isr=topic.partitions[number].isr,
            log_start_offset=view.log_start_offset,
            log_end_offset=view.log_end_offset,
            size_bytes=_size_bytes(view),
            segments=len(view.live.segments),
        )
        for number, view in views.items()
    ]
    return TopicDescription(topic.name, topic.topic_id, tuple(partitions), dict(topic.overrides))


def describe_replica(partition: TopicPartition, view: LogView, path: str) -> ReplicaInfo:
    """Return the description of the one replica that a partition has.

    Args:
        partition: which.
        view: what it holds.
        path: where it lies.
    """
    return ReplicaInfo(
        topic=partition.topic,
        partition=partition.partition,
        size_bytes=_size_bytes(view),
        offset_lag=0,  # there is no other: its end is the high watermark
        is_future=False,
        segments=len(view.live.segments),
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        path=path,
    )


def _size_bytes(view: LogView) -> int:
    return sum(segment.file.size_bytes for segment in view.live.segments)
