"""Cleans the partitions of a root in Spark tasks, one task per partition."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from spark_log.cluster import (
    CleanedPartition,
    TopicTables,
    clean_replicas,
    clean_stripe,
    open_cluster,
)
from spark_log.config import BrokerOptions
from spark_log.errors import ClockSkewError, SparkLogError, UnknownTopicOrPartitionError
from spark_log.storage import StorageClock, StorageOptions
from spark_log.types import TopicPartition
from spark_log.util import Throttle

_NO_SUMS: Final = ("log_start_offset", "log_end_offset", "future_us", "parquet_offsets")

_NOTHING_TO_DO: Final[dict[str, Any]] = {"dirt_bytes": 0}
"""The result for a partition whose topic was deleted during the job."""


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """The arguments of a Spark task that cleans a partition, or a stripe. Pickled to the tasks.

    Attributes:
        root: the root's URL.
        storage_options: the options of the file system; never shown.
        broker_options: broker id → the options of the file system of its root; never shown.
        dedupe_buffer_bytes: the memory for the keys of a compaction
            (``log.cleaner.dedupe.buffer.size``).
        bytes_per_second: the maximum number of bytes that a task reads and writes per second.
    """

    root: str
    storage_options: StorageOptions = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    dedupe_buffer_bytes: int
    bytes_per_second: float = math.inf

    def plan(self, partition: TopicPartition) -> dict[str, Any]:
        """Return the work in one partition, as the fields of `CleanReport`; changes nothing.

        If the topic may have a table, the result has the field ``has_table``. If the partition
        cannot be read, the result has the field ``error``.
        """
        return self._do(partition, dry_run=True)

    def clean(self, partition: TopicPartition) -> dict[str, Any]:
        """Clean one partition, and return the fields of `CleanReport`, summed over its replicas.

        Then the partition's new files are committed to its topic's table, so that the table grows
        while other partitions are still converted. If the partition cannot be cleaned, the result
        has the field ``error``.
        """
        return self._do(partition, dry_run=False)

    def take_home(self, stripe: TopicPartition) -> dict[str, Any]:
        """Take a stripe home, and free its numbers; return the sums of it.

        If that fails, the result has the field ``error``, too.

        Args:
            stripe: topic, and the stripe's number in place of a partition's.
        """
        return self._do_stripe(stripe, dry_run=False)

    def plan_stripe(self, stripe: TopicPartition) -> dict[str, Any]:
        """Return what `take_home` would do; changes nothing."""
        return self._do_stripe(stripe, dry_run=True)

    def _do_stripe(self, stripe: TopicPartition, *, dry_run: bool) -> dict[str, Any]:
        cluster = open_cluster(self.root, self.storage_options, broker_options=self.broker_options)
        image = cluster.image()
        topic = image.find(stripe.topic)
        if topic is None:
            return {}
        try:
            done = clean_stripe(
                cluster,
                topic,
                stripe.partition,
                dry_run=dry_run,
                max_clock_skew_ms=image.cluster_config().max_clock_skew_ms,
                storage_clock=StorageClock(cluster.clock),
                on_progress=Throttle(self.bytes_per_second),
            )
        except ClockSkewError as error:  # the clock of the machine that runs this task
            return {"error": f"on {socket.gethostname()}, {error}"}
        if done.error is not None and cluster.is_deleted(topic):
            return {}
        sums = {
            "rounds": done.rounds,
            "objects": done.objects,
            "deleted_files": done.freed_files,
            "deleted_bytes": done.freed_bytes,
        }
        return sums | ({} if done.error is None else {"error": str(done.error)})

    def _do(self, partition: TopicPartition, *, dry_run: bool) -> dict[str, Any]:
        cluster = open_cluster(self.root, self.storage_options, broker_options=self.broker_options)
        image = cluster.image()
        topic = image.find(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return _NOTHING_TO_DO
        tables, storage_clock = TopicTables(cluster), StorageClock(cluster.clock)
        try:
            cleaned = list(
                clean_replicas(
                    cluster,
                    topic,
                    partition.partition,
                    dry_run=dry_run,
                    max_clock_skew_ms=image.cluster_config().max_clock_skew_ms,
                    on_progress=Throttle(self.bytes_per_second),
                    dedupe_buffer_bytes=self.dedupe_buffer_bytes,
                    storage_clock=storage_clock,
                    tables=tables,
                )
            )
            if not dry_run and tables.used():
                try:
                    tables.commit(topic.topic_id, [partition.partition], storage_clock)
                except SparkLogError as error:
                    cleaned.append(CleanedPartition(partition, None, error))
        except UnknownTopicOrPartitionError:
            return _NOTHING_TO_DO
        except ClockSkewError as error:  # the clock of the machine that runs this task
            return {"error": f"on {socket.gethostname()}, {error}"}
        if any(each.error for each in cleaned) and cluster.is_deleted(topic):
            return _NOTHING_TO_DO
        return _document(cleaned) | ({"has_table": True} if tables.used() else {})


def _document(cleaned: Sequence[CleanedPartition]) -> dict[str, Any]:
    """Return the fields of the replicas' reports: sums, and the offsets of the first one."""
    reports = [each.report for each in cleaned if each.report is not None]
    document: dict[str, Any] = {}
    for report in reports:
        for name, value in (asdict(report) | {"dirt_bytes": report.dirt_bytes}).items():
            is_sum = name in document and isinstance(value, int) and name not in _NO_SUMS
            document[name] = document[name] + value if is_sum else document.get(name, value)
    errors = [
        f"broker {each.broker_id}: {each.error}" if each.broker_id else str(each.error)
        for each in cleaned
        if each.error
    ]
    return document | ({"error": "; ".join(errors)} if errors else {})
