"""Cleans the partitions of a root, and removes the files of its deleted topics.

Each partition is cleaned by the configs that its topic has at that moment, as in Kafka's cleaner.
Only topics are cleaned here. Internal logs need no cleaner: the metadata log is small, a group's
log moves its own start, and the offsets table has its own maintenance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from spark_log.errors import CorruptRecordError, StorageError, UnknownTopicOrPartitionError
from spark_log.log import (
    DEDUPE_BUFFER_BYTES,
    CleanReport,
    OnProgress,
    PartitionCleaner,
    PartitionLog,
)
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from spark_log.metadata.topics import (
    DeletedTopic,
    StrayReplica,
    finish_deletions,
    remove_stray_replicas,
)
from spark_log.storage import check_clock_skew, storage_time_us
from spark_log.types import TopicPartition


def check_clock(cluster: Cluster) -> None:
    """Check by its clock and the storage's that this process may delete files of a root.

    Raises:
        ClockSkewError: the clocks are more than ``max.clock.skew.ms`` apart.
        StorageError: the storage does not answer.
    """
    max_skew_ms = cluster.image().cluster_config().max_clock_skew_ms
    now_us = storage_time_us(cluster.store, METADATA_DIRECTORY)
    check_clock_skew(cluster.clock, now_us, max_skew_ms)


class CleanedPartition(NamedTuple):
    """The result of cleaning one partition.

    Attributes:
        partition: the topic and partition.
        report: what was done; None if it failed.
        error: why it failed; None if it did not.
    """

    partition: TopicPartition
    report: CleanReport | None
    error: StorageError | CorruptRecordError | None = None


class ClusterCleaner:
    """Cleans partitions one after the other; a failure of one does not stop the others."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        *,
        dry_run: bool = False,
        on_progress: OnProgress = lambda done_bytes: None,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    ) -> None:
        """Return a cleaner for some partitions of a root, or for all.

        Args:
            cluster: the opened root.
            topics: names of topics; None for all, and for the files of deleted topics.
            partitions: only partitions with these numbers; None for all.
            dry_run: report what would be done, and do nothing.
            on_progress: called with the number of bytes just processed; it may sleep to throttle.
            dedupe_buffer_bytes: memory for the offset map of compaction.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or has no such partition.
        """
        image = cluster.image()
        chosen = list(image.topics()) if topics is None else [image.topic(name) for name in topics]
        self._logs = {
            TopicPartition(topic.name, number): cluster.partition_log(topic, number)
            for topic in chosen
            for number in (sorted(topic.partitions) if partitions is None else partitions)
            if topics is not None or number in topic.partitions
        }
        if partitions is not None and not self._logs:
            raise UnknownTopicOrPartitionError(f"no topic has a partition {list(partitions)}")
        self._cluster = cluster
        self._max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
        self._is_whole = topics is None and partitions is None
        self._dry_run = dry_run
        self._on_progress = on_progress
        self._dedupe_buffer_bytes = dedupe_buffer_bytes

    def __len__(self) -> int:
        """Return the number of partitions to clean."""
        return len(self._logs)

    def clean(self) -> Iterator[CleanedPartition]:
        """Clean one partition after the other; skip those of topics that were deleted meanwhile.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; the remaining
                partitions are not cleaned.
        """
        for partition, opened in self._logs.items():
            log = opened
            # Use the present configs, if they can be read.
            with self._cluster.suppressed.suppress(
                "reading of settings", log.directory, StorageError, CorruptRecordError
            ):
                image = self._cluster.image()
                self._max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
                topic = image.find(partition.topic)
                if topic is not None and topic.topic_id == opened.files.topic_id:
                    log = self._cluster.partition_log(topic, partition.partition)
            cleaner = PartitionCleaner(
                log,
                on_progress=self._on_progress,
                dedupe_buffer_bytes=self._dedupe_buffer_bytes,
                max_clock_skew_ms=self._max_clock_skew_ms,
            )
            try:
                report = cleaner.plan() if self._dry_run else cleaner.clean()
            except (StorageError, CorruptRecordError) as error:
                if not self._is_deleted(log):
                    yield CleanedPartition(partition, None, error)
            else:
                yield CleanedPartition(partition, report)
        if not self._dry_run:
            self._cluster.keep_reserve()

    def _is_deleted(self, log: PartitionLog) -> bool:
        """Return whether the topic was deleted since this cleaner was created."""
        try:
            topics = self._cluster.image().topics()
        except (StorageError, CorruptRecordError):
            return False
        return all(topic.topic_id != log.files.topic_id for topic in topics)

    def deleted_topics(self) -> Iterator[DeletedTopic]:
        """Remove the files of deleted topics, if this cleaner is for all topics.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
            StorageError: the storage does not answer.
        """
        if self._is_whole:
            yield from finish_deletions(self._cluster, dry_run=self._dry_run)
            if not self._dry_run:
                self._cluster.keep_reserve()

    def stray_replicas(self) -> Iterator[StrayReplica]:
        """Remove directories that are replicas no more, if this cleaner is for all topics.

        Raises:
            ClockSkewError: this process's clock is too far from a storage's.
            StorageError: the storage does not answer.
        """
        if self._is_whole:
            yield from remove_stray_replicas(self._cluster, dry_run=self._dry_run)
