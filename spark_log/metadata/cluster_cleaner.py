"""Cleans the partitions of a root, and what is left of its deleted topics.

Each partition by the settings that its topic has when it is its turn, as Kafka's cleaner does.
Only topics: what spark-log keeps for itself looks after itself. The metadata log is small, a
group's log moves its own start, and the offsets table is Delta's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from spark_log.errors import CorruptRecordError, StorageError, UnknownTopicOrPartitionError
from spark_log.log import PartitionLog
from spark_log.log.clean.cleaner import CleanReport, PartitionCleaner
from spark_log.log.clean.compacted_segment import OnProgress
from spark_log.log.clean.compactor import DEDUPE_BUFFER_BYTES
from spark_log.metadata import metadata_log
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.topics.deletion import DeletedTopic, finish_deletions
from spark_log.storage import check_clock_skew, storage_time_us
from spark_log.types import TopicPartition


def check_clock(cluster: Cluster) -> None:
    """Check that this process may delete something of a root, by its clock and the storage's.

    Raises:
        ClockSkewError: they are more than ``max.clock.skew.ms`` apart.
        StorageError: the storage does not answer.
    """
    max_skew_ms = cluster.image().cluster_config().max_clock_skew_ms
    now_us = storage_time_us(cluster.store, metadata_log.DIRECTORY)
    check_clock_skew(cluster.clock, now_us, max_skew_ms)


class CleanedPartition(NamedTuple):
    """What cleaning one partition came to.

    Attributes:
        partition: which.
        report: what was done; None where it failed.
        error: why it failed.
    """

    partition: TopicPartition
    report: CleanReport | None
    error: StorageError | CorruptRecordError | None = None


class ClusterCleaner:
    """Cleans partitions one after the other; that one fails keeps no other from being cleaned."""

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
        """Find out which partitions are meant.

        Args:
            cluster: the root.
            topics: names; None for all, and what is left of those that were deleted.
            partitions: only these numbers; None for all.
            dry_run: tell what there is to do, and do nothing.
            on_progress: see `PartitionCleaner`.
            dedupe_buffer_bytes: likewise.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic, or it has no such partition.
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
        """Return how many partitions are meant."""
        return len(self._logs)

    def clean(self) -> Iterator[CleanedPartition]:
        """Clean one partition after the other; those of topics deleted meanwhile are left out.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's: from here on nothing
                is cleaned.
        """
        for partition, opened in self._logs.items():
            log = opened
            # By the settings of now, if they can be read.
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
        """Whether a topic was deleted since it was chosen: its files vanish as they are read."""
        try:
            topics = self._cluster.image().topics()
        except (StorageError, CorruptRecordError):
            return False
        return all(topic.topic_id != log.files.topic_id for topic in topics)

    def deleted_topics(self) -> Iterator[DeletedTopic]:
        """Remove what is left of deleted topics, where all topics are meant.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's.
            StorageError: the storage does not answer.
        """
        if self._is_whole:
            yield from finish_deletions(self._cluster, dry_run=self._dry_run)
            if not self._dry_run:
                self._cluster.keep_reserve()
