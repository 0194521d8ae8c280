"""`Admin` on log directories: a broker here is a storage root."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.log import LogView
from spark_log.types import (
    LogDirDescription,
    ReplicaInfo,
    TopicPartition,
)

_BROKER_ID = 0
"""The id of the one storage root that a cluster has."""


class LogDirOperations(ClusterAccess):
    """Describes log directories."""

    @limited
    def describe_log_dirs(
        self, topic_partitions: Mapping[str, Collection[int]] | Collection[str] | None = None
    ) -> list[LogDirDescription]:
        """Describe storage roots: the replicas in each, their sizes and offsets.

        Args:
            topic_partitions: topic → partitions, or topics; None for all.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        image = self._cluster().image()
        names = [topic.name for topic in image.topics()]
        wanted = [
            TopicPartition(name, number)
            for name in dict.fromkeys(names if topic_partitions is None else topic_partitions)
            for number in (
                topic_partitions[name]
                if isinstance(topic_partitions, Mapping)
                else sorted(image.topic(name).partitions)
            )
        ]
        logs = {tp: self._log(image, tp) for tp in wanted}

        def observe(tp: TopicPartition) -> LogView | None:
            try:
                with self._cluster().detecting_deletion(image.topic(tp.topic)):
                    return logs[tp].observe()
            except UnknownTopicOrPartitionError:
                if topic_partitions is not None:
                    raise
                return None  # deleted since the metadata were read

        views = self._map_partitions(observe, wanted, image.topic)
        root = self._cluster().root
        replicas = [
            _describe_replica(tp, view, f"{root}/{logs[tp].directory}")
            for tp, view in zip(wanted, views, strict=True)
            if view is not None
        ]
        return [LogDirDescription(_BROKER_ID, root, tuple(replicas))]


def _describe_replica(tp: TopicPartition, view: LogView, path: str) -> ReplicaInfo:
    return ReplicaInfo(
        topic=tp.topic,
        partition=tp.partition,
        size_bytes=sum(segment.file.size_bytes for segment in view.live.segments),
        offset_lag=0,  # the only replica: its end is the high watermark
        is_future=False,
        segments=len(view.live.segments),
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        path=path,
    )
