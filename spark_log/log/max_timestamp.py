"""The record with the largest timestamp (KIP-734): found by what is known of whole segments."""

from __future__ import annotations

from contextlib import suppress

import pyarrow.compute as pc

from spark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.snapshot import SegmentSummary


def offset_of_max_timestamp(log: PartitionLog, view: LogView) -> tuple[int, int] | None:
    """Return offset and timestamp of the record with the largest timestamp; of equals, the first.

    Segments are compared by what snapshots and headers tell; of at most two the records are read.

    Args:
        log: the partition's.
        view: what to look in, from `PartitionLog.observe`.

    Returns:
        The offset, and microseconds since the epoch; None for a log without records.

    Raises:
        CorruptRecordError: a segment is damaged or missing.
    """
    while True:
        summaries, view = log.segments(view)
        found = None
        with suppress(OffsetOutOfRangeError):
            largest_us = _largest_us(log, view, summaries)
            if largest_us is None:
                return None
            found = log.offset_for_time(largest_us, view)
        if found is not None:
            return found
        before, view = view, log.observe()
        if view.log_start_offset == before.log_start_offset:  # else that has passed it meanwhile
            raise CorruptRecordError(
                f"{log.directory}: a batch header tells of a later timestamp than any record has; "
                f"spark-log verify says which",
                path=log.directory,
            )


def _largest_us(log: PartitionLog, view: LogView, summaries: list[SegmentSummary]) -> int | None:
    """Return the largest timestamp of a view, microseconds since the epoch."""
    times_us = [summary.max_timestamp_us for summary in summaries]
    if summaries and summaries[0].name.base_offset < view.log_start_offset:
        # What is known of a segment that the log's start cuts is of its deleted records too.
        if times_us[0] > max(times_us[1:], default=times_us[0] - 1):
            times_us[:1] = _times_us(log, view.log_start_offset, summaries[0].end_offset)
        else:
            del times_us[0]
    return max(times_us, default=None)


def _times_us(log: PartitionLog, start_offset: int, end_offset: int) -> list[int]:
    """Return the largest timestamp of each batch between two offsets."""
    return [
        pc.max(batch.records.column("timestamp").cast("int64")).as_py()
        for batch in log.scan(start_offset, end_offset, columns=["timestamp"])
        if batch.records.num_rows
    ]
