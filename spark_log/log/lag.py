"""Lag: how many records a reader has not read yet, and how old the first of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spark_log.errors import OffsetOutOfRangeError, SparkLogError
from spark_log.log.local_log import LocalLog
from spark_log.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Lag:
    """Distance of a position from the end of a log, in offsets.

    Attributes:
        first_offset: the first offset that can be read: the position, or the log start offset if
            that is higher.
        unread: number of offsets from ``first_offset`` to the end; 0 also for a position beyond the
            end.
        deleted: number of offsets from the position to the log start offset. Their records were
            deleted before the reader read them, and no reader will get them.
    """

    first_offset: int
    unread: int
    deleted: int

    @classmethod
    def of(cls, position: int, log_start_offset: int, end_offset: int) -> Self:
        """Return the lag of a position.

        Args:
            position: the next offset to read.
            log_start_offset: the first offset that can be read.
            end_offset: the log end offset, or the last stable offset.
        """
        first = max(position, log_start_offset)
        return cls(first, max(0, end_offset - first), max(0, log_start_offset - position))


def first_unread_us(log: LocalLog | PartitionLog, offset: int) -> int | None:
    """Return the timestamp of the first record at or after an offset, microseconds since the epoch.

    For an offset before the log's start, the log's first record counts. None if no such record
    exists, or if it cannot be read: a metric of lag must not fail. The error is counted in
    `PartitionLog.suppressed`.
    """
    try:
        return _timestamp_us(log, offset)
    except SparkLogError as error:
        log.suppressed.add("lag in time", log.directory, error)
        return None


def _timestamp_us(log: LocalLog | PartitionLog, offset: int) -> int | None:
    try:
        batches = log.read(offset, 1, columns=["timestamp"], check_crcs=False)[0]
    except OffsetOutOfRangeError as error:
        if error.log_start_offset <= offset:
            raise
        # Records were deleted since the caller has listed the log.
        batches = log.read(error.log_start_offset, 1, columns=["timestamp"], check_crcs=False)[0]
    if not batches:
        return None
    return int(batches[0].records.column("timestamp")[0].value)
