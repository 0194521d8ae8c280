"""Converts what a topic has to Parquet files of its table, and counts what is converted already.

A conversion is a cleaning, so it may be killed at any time, and run beside others: segments that
are converted are not converted again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from spark_log.cluster.cleaner import FAILURES, CleanedPartition, clean_replicas
from spark_log.cluster.cluster import Cluster
from spark_log.cluster.stripe_cleaning import clean_stripes
from spark_log.cluster.topic_tables import TopicTables
from spark_log.errors import (
    InvalidConfigurationError,
    SparkLogError,
    UnknownTopicOrPartitionError,
)
from spark_log.log.clean import DEDUPE_BUFFER_BYTES, MIN_DEDUPE_BUFFER_BYTES, OnProgress
from spark_log.metadata import TopicImage, check_is_table, check_table_requirements
from spark_log.storage import StorageClock, map_requests
from spark_log.threads import DaemonPool
from spark_log.types import TopicPartition

if TYPE_CHECKING:
    from spark_log.table import TableVersion

_PATIENCE_MS: Final = 30 * 86_400_000
"""Time after which the conversion of one partition is given up. Each request has its own limit."""

_log = logging.getLogger(__name__)

_MAX_AGE_MS = 10_000.0
"""Maximum age of the listings behind a text."""


class TopicConversion:
    """Converts the partitions of a topic that is a table, several at a time. Use it once.

    Each partition is cleaned, as by `ClusterCleaner`: also retention is applied, and files that are
    no longer needed are deleted. All that no open transaction holds back is cold.

    Attributes:
        partitions: the numbers of the partitions.
        running: the partitions that are converted at this moment.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicImage,
        partitions: Collection[int] | None = None,
        *,
        threads: int,
    ) -> None:
        """Prepare a conversion; nothing is changed yet.

        Args:
            cluster: the opened root.
            topic: the topic.
            partitions: the numbers of the partitions; None for all.
            threads: maximum number of partitions that are converted at the same time. They share
                the memory for the keys of compactions.

        Raises:
            InvalidConfigurationError: the topic is no table, or cannot be one.
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        check_is_table(topic)
        check_table_requirements(topic)
        self.partitions = sorted(topic.partitions if partitions is None else set(partitions))
        for number in self.partitions:
            cluster.partition_log(topic, number)  # raises if there is no such partition
        self.running: set[TopicPartition] = set()
        self._cluster = cluster
        self._topic = topic
        self._threads = threads
        self._tables = TopicTables(cluster)
        self._storage_clock = StorageClock(cluster.clock)
        self._max_clock_skew_ms = cluster.image().cluster_config().max_clock_skew_ms

    def convert(
        self, on_progress: OnProgress = lambda done_bytes: None
    ) -> Iterator[CleanedPartition]:
        """Convert the partitions; the failure of one does not stop the others.

        Each is committed to the table when it is converted, so that the table grows meanwhile.

        Args:
            on_progress: called on the converting threads with the number of bytes just processed;
                it may sleep to throttle.

        Yields:
            The result of each replica, as soon as its partition is converted; and the error of each
            commit that failed.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; the remaining
                partitions are not converted.
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
        """
        for stripe in clean_stripes(
            self._cluster,
            {TopicPartition(self._topic.name, number): self._topic for number in self.partitions},
            dry_run=False,
            max_clock_skew_ms=self._max_clock_skew_ms,
            storage_clock=self._storage_clock,
            on_progress=on_progress,
        ):
            if stripe.error is not None:
                tp = TopicPartition(self._topic.name, stripe.stripe)
                yield CleanedPartition(tp, None, stripe.error)
        pool = DaemonPool(self._threads, _PATIENCE_MS, name="spark-log-convert")
        for number, outcome in pool.run(partial(self._convert, on_progress), self.partitions):
            yield from outcome.result()
            try:
                version = self._tables.commit(self._topic.topic_id, [number], self._storage_clock)
            except (*FAILURES, InvalidConfigurationError) as error:
                yield CleanedPartition(TopicPartition(self._topic.name, number), None, error)
            else:
                _log.debug(
                    "%s-%d: converted, in version %d",
                    self._topic.name,
                    number,
                    -1 if version is None else version.number,
                )
        self._cluster.keep_reserve()

    def commit(self) -> TableVersion:
        """Commit also what earlier conversions left, and return the newest version.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            CorruptRecordError: a segment is damaged.
            StorageError: the storage does not answer, or the table is damaged or was changed by
                another program.
        """
        version = self._tables.commit(self._topic.topic_id, None, self._storage_clock)
        if version is None:
            raise UnknownTopicOrPartitionError(
                f"topic {self._topic.name!r} was deleted while it was converted"
            )
        return version

    def _convert(self, on_progress: OnProgress, number: int) -> list[CleanedPartition]:
        memory_bytes = DEDUPE_BUFFER_BYTES // self._threads
        tp = TopicPartition(self._topic.name, number)
        cleaned = clean_replicas(
            self._cluster,
            self._topic,
            number,
            dry_run=False,
            max_clock_skew_ms=self._max_clock_skew_ms,
            on_progress=on_progress,
            dedupe_buffer_bytes=max(MIN_DEDUPE_BUFFER_BYTES, memory_bytes),
            storage_clock=self._storage_clock,
            table_at_once=True,
            tables=self._tables,
        )
        self.running.add(tp)
        try:
            return list(cleaned)
        finally:
            self.running.discard(tp)


class ConversionProgress:
    """Counts offsets in Parquet files and in others, in the partitions of topics that are tables.

    One thread at a time uses it.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[TopicImage]) -> None:
        """Return the progress; nothing is read yet.

        Args:
            cluster: the opened root.
            topics: the topics; those that are no tables do not count.
        """
        self._cluster = cluster
        self._logs = {
            TopicPartition(topic.name, number): topic
            for topic in topics
            if topic.config().table_format != "none"
            for number in sorted(topic.partitions)
        }
        self._known: dict[TopicPartition, tuple[int, int]] = {}
        self._text = ""
        self._read_ms = float("-inf")

    def read(self, changed: Collection[TopicPartition] | None = None) -> tuple[int, int]:
        """List partitions; return the number of offsets in Parquet files, and of all.

        A partition that cannot be read does not count.

        Args:
            changed: the partitions to list; those that were never listed are listed, too. None
                lists all.
        """
        chosen = [
            tp for tp in self._logs if changed is None or tp in changed or tp not in self._known
        ]
        found = zip(chosen, map_requests(self._cluster.store, self._observe, chosen), strict=True)
        self._known |= found
        converted, offsets = zip((0, 0), *self._known.values(), strict=True)
        return sum(converted), sum(offsets)

    def document(self) -> dict[str, int]:
        """Return the progress for JSON; empty if no topic is a table."""
        if not self._logs:
            return {}
        converted, offsets = self.read()
        return {"table_offsets": offsets, "parquet_offsets": converted}

    def text(self) -> str:
        """Return the progress in words, some seconds old; empty if no topic is a table."""
        now_ms = self._cluster.clock.monotonic_ms()
        if self._logs and now_ms - self._read_ms >= _MAX_AGE_MS:
            self._text = f"{offsets_converted(*self.read())} converted"
            self._read_ms = self._cluster.clock.monotonic_ms()
        return self._text

    def _observe(self, tp: TopicPartition) -> tuple[int, int]:
        with self._cluster.suppressed.suppress("conversion progress", str(tp), SparkLogError):
            view = self._cluster.partition_log(self._logs[tp], tp.partition).observe()
            return view.parquet_offsets, view.log_end_offset - view.log_start_offset
        return 0, 0


def offsets_converted(converted: int, offsets: int) -> str:
    """Return the two numbers of `ConversionProgress.read` in words."""
    share = converted / offsets if offsets else 1.0
    return f"{converted:,} of {offsets:,} offsets ({share:.1%})"
