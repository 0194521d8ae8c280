"""The record with the largest timestamp (KIP-734): found by what is known of whole segments."""

from __future__ import annotations

from contextlib import suppress

import pyarrow.compute as pc

from spark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.snapshot.snapshot import SegmentSummary


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
        # Else the start has passed it meanwhile, or a compaction has left it out.
        if view.log_start_offset == before.log_start_offset and _parts(before) <= _parts(view):
            raise CorruptRecordError(
                f"{log.directory}: a batch header tells of a later timestamp than any record has; "
                f"spark-log verify says which",
                path=log.directory,
            )


def _largest_us(log: PartitionLog, view: LogView, summaries: list[SegmentSummary]) -> int | None:
    """Return the largest timestamp of a view, microseconds since the epoch."""
    whole: list[tuple[int, LiveSegment, SegmentSummary]] = []
    cut: list[tuple[int, LiveSegment, SegmentSummary]] = []
    for segment, summary in zip(view.live.segments, summaries, strict=True):
        if summary.record_count:
            is_whole = segment.start_offset <= segment.name.base_offset
            (whole if is_whole else cut).append((summary.max_timestamp_us, segment, summary))
    largest_us = max((time_us for time_us, _, _ in whole), default=None)
    # What is known of a segment that the log's start cuts, or a compaction, is of the records
    # before that too.
    for time_us, segment, summary in cut:
        if largest_us is None or time_us > largest_us:
            times_us = _times_us(log, segment.start_offset, summary.end_offset)
            known = () if largest_us is None else (largest_us,)
            largest_us = max((*known, *times_us), default=None)
    return largest_us


def _parts(view: LogView) -> set[tuple[SegmentName, int]]:
    """Return what a view is made of: a compaction may have replaced the first part of a segment."""
    return {(segment.name, segment.start_offset) for segment in view.live.segments}


def _times_us(log: PartitionLog, start_offset: int, end_offset: int) -> list[int]:
    """Return the largest timestamp of each batch between two offsets."""
    return [
        pc.max(batch.records.column("timestamp").cast("int64")).as_py()
        for batch in log.scan(start_offset, end_offset, columns=["timestamp"])
        if batch.records.num_rows
    ]
