"""The plan of a read of table and log: the files of each partition, and the offsets of its log.

The version is read first, and then the log is listed (protocol B12). The listing gives the end of
the read: the last stable offset. So the read is one state of the topic, however long it takes, and
has no row of an open or aborted transaction, as the table has none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_log.cluster import Cluster
from spark_log.config import DEFAULT_API_TIMEOUT_MS
from spark_log.errors import (
    InvalidOptionError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LogView, PartitionLog
from spark_log.log.files import SegmentName
from spark_log.metadata import TopicImage
from spark_log.storage import map_requests, retry_while_unavailable
from spark_log.table.both import read_of_both
from spark_log.table.read.bounds import ReadBounds
from spark_log.table.read.version import PartitionVersion, TableFile, TopicVersion
from spark_log.table.topic_table import PartitionTable, end_offset
from spark_log.threads import Deadline

_log = logging.getLogger(__name__)

NO_TABLE = PartitionVersion(PartitionTable())
"""A partition that is in no version: all of it is read from the log."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A Parquet segment, or a part of one.

    Attributes:
        name: the segment's name.
        size_bytes: the file's size; None if it is not known.
        low: rows before this offset are left out; None if the file has none.
        high: rows at and after this offset are left out; None if the file has none.
    """

    name: SegmentName
    size_bytes: int | None = None
    low: int | None = None
    high: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all offsets of the file are read."""
        return self.low is None and self.high is None


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The read of one partition.

    Attributes:
        partition: the partition's number.
        log: the partition's log.
        files: the files that may have rows, in offset order.
        log_start: the first offset that is read from the log.
        end: the offset after the last one.
    """

    partition: int
    log: PartitionLog
    files: tuple[FilePart, ...]
    log_start: int
    end: int


def plan_read(
    cluster: Cluster,
    topic: TopicImage,
    version: TopicVersion | None,
    bounds: ReadBounds,
    *,
    with_log: bool = True,
) -> list[PartitionRead]:
    """Return the reads of a topic's partitions, in order.

    Args:
        cluster: the cluster.
        topic: the topic.
        version: the version of its table, read before this call; None without a table.
        bounds: the limits of the read.
        with_log: whether the log is read behind the version's end; else the read ends there.

    Raises:
        UnknownTopicOrPartitionError: a partition does not exist.
        InvalidOptionError: a partition ends before it starts.
        OffsetOutOfRangeError: an offset to start or end at is not retained, or does not exist yet.
        LogTruncatedError: a log ends before its table does.
    """
    numbers = set(topic.partitions) if bounds.partitions is None else set(bounds.partitions)
    for number in sorted(numbers | bounds.starting_offsets.keys() | bounds.ending_offsets.keys()):
        if number not in topic.partitions:
            raise UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has no partition {number}; it has {topic.num_partitions}, "
                f"numbered from 0",
                topic=topic.name,
            )
    plan = _Plan(cluster, topic, version, bounds, with_log=with_log)
    logs = {number: cluster.partition_log(topic, number) for number in sorted(numbers)}
    reads = map_requests(cluster.store, lambda each: plan.partition(*each), list(logs.items()))
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "%s: reading version %s: %d files, and offsets %s of the log",
            topic.name,
            None if version is None else version.number,
            sum(len(each.files) for each in reads),
            {each.partition: (each.log_start, each.end) for each in reads},
        )
    return reads


class _Plan:
    """Plans the read of each partition."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicImage,
        version: TopicVersion | None,
        bounds: ReadBounds,
        *,
        with_log: bool,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._version = version
        self._bounds = bounds
        self._with_log = with_log

    def partition(self, number: int, log: PartitionLog) -> PartitionRead:
        """Return the read of a partition; any thread may call it for another partition."""
        deadline = Deadline(
            f"reading the offsets of {self._topic.name}-{number}",
            "default.api.timeout.ms",
            DEFAULT_API_TIMEOUT_MS,
        )
        return retry_while_unavailable(lambda: self._partition(number, log), deadline)

    def _partition(self, number: int, log: PartitionLog) -> PartitionRead:
        view = log.observe()
        known = NO_TABLE if self._version is None else self._version.partitions.get(number)
        known = known or NO_TABLE
        table = known.table
        both = read_of_both(table, view.log_start_offset)
        end = both.log_start
        if self._with_log:
            end = log.end_offset(view, isolation_level="read_committed")
            if end < both.log_start:
                raise LogTruncatedError(
                    f"{self._topic.name}-{number} ends at offset {end}, but its table has records "
                    f"up to {table.end}: files of the log were removed; to see which: "
                    f"spark-log verify",
                    path=log.files.path,
                )
        start, stop = both.start, end
        low = self._bounds.starting_offsets.get(number, start)
        high = self._bounds.ending_offsets.get(number, stop)
        self._check(number, view, start, stop, low, high)
        files = tuple(
            FilePart(
                name,
                file.size_bytes,
                low if name.base_offset < low else None,
                high if end_offset(name) > high else None,
            )
            for name in both.files
            for file in [known.files.get(name, TableFile())]
            if name.base_offset < high and end_offset(name) > low
            if self._bounds.may_have(file.times_us)
        )
        log_start = self._after_time(log, view, max(both.log_start, low), high)
        return PartitionRead(number, log, files, min(log_start, high), high)

    def _after_time(self, log: PartitionLog, view: LogView, start: int, end: int) -> int:
        """Return the offset from which on records may have the wanted times."""
        if start >= end or self._bounds.from_us is None:
            return start
        found = log.offset_for_time(self._bounds.from_us, view)
        return end if found is None else max(start, found[0])

    def _check(
        self, number: int, view: LogView, start: int, stop: int, low: int, high: int
    ) -> None:
        """Check the offsets that the user gave for a partition."""
        tp = f"{self._topic.name}-{number}"
        for name, offset in (("starting_offsets", low), ("ending_offsets", high)):
            if start <= offset <= stop:
                continue
            reason = "it was deleted by retention or delete_records"
            if offset > stop:
                reason = "it was not written yet, or lies behind a transaction that is open"
                if not self._with_log:
                    reason = "the version of the table ends before it"
            raise OffsetOutOfRangeError(
                f"{name} has offset {offset} for {tp}, but the read can have offsets from {start} "
                f"to {stop}: {reason}",
                offset=offset,
                log_start_offset=start,
                log_end_offset=stop,
            )
        if low > high:
            raise InvalidOptionError(
                f"{tp}: the read starts at offset {low} and ends at {high}, before its start; "
                f"lower the start or raise the end",
                key="ending_offsets",
            )
