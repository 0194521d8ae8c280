"""Lookup of the record with the largest timestamp (KIP-734)."""

from __future__ import annotations

from contextlib import suppress

from spark_log.errors import CorruptRecordError, NotFoundError, OffsetOutOfRangeError
from spark_log.log.directory import LogView
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.local_log import LocalLog
from spark_log.log.partition_log import PartitionLog
from spark_log.log.segment import SegmentSummary
from spark_log.record import times_us_of

_Log = LocalLog | PartitionLog


def offset_of_max_timestamp(log: _Log, view: LogView) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record that has the largest timestamp.

    The largest timestamp of a segment comes from snapshots and batch headers. Records are read in
    at most two segments.

    Args:
        log: the partition's log.
        view: the log's view from `PartitionLog.observe`.

    Returns:
        The offset, and the timestamp in microseconds since the epoch; None for a log without
        records.

    Raises:
        CorruptRecordError: a segment is damaged or missing.
    """
    while True:
        summaries, view = log.segments(view)
        found = None
        with suppress(OffsetOutOfRangeError, NotFoundError):
            largest_us = _largest_us(log, view, summaries)
            if largest_us is not None:
                found = log.offset_for_time(largest_us, view)
            if found is None and largest_us is not None:
                # It may be the timestamp of a transaction's marker.
                largest_us = _largest_of_records(log, view, summaries)
                if largest_us is not None:
                    found = log.offset_for_time(largest_us, view)
            if largest_us is None:
                return None
        if found is not None:
            return found
        before, view = view, log.observe()
        # Otherwise the log start offset has passed the record, or a compaction has removed it.
        if view.log_start_offset == before.log_start_offset and _parts(before) <= _parts(view):
            raise CorruptRecordError(
                f"{log.directory}: a batch header has a later timestamp than any record has; run "
                f"spark-log verify to find it",
                path=log.directory,
            )


def _largest_us(log: _Log, view: LogView, summaries: list[SegmentSummary]) -> int | None:
    """Return the largest timestamp of a view (µs since the epoch); None without records."""
    whole: list[tuple[int, LiveSegment, SegmentSummary]] = []
    cut: list[tuple[int, LiveSegment, SegmentSummary]] = []
    for segment, summary in zip(view.live.segments, summaries, strict=True):
        if summary.record_count:
            is_whole = segment.start_offset <= segment.name.base_offset
            (whole if is_whole else cut).append((summary.max_timestamp_us, segment, summary))
    largest_us = max((time_us for time_us, _, _ in whole), default=None)
    # If the log start offset or a compaction cuts off the beginning of a segment, its largest
    # timestamp may be of a record that was cut off. So its records are read.
    for time_us, segment, summary in cut:
        if largest_us is None or time_us > largest_us:
            times_us = _times_us(log, segment.start_offset, summary.end_offset)
            known = () if largest_us is None else (largest_us,)
            largest_us = max((*known, *times_us), default=None)
    return largest_us


def _largest_of_records(log: _Log, view: LogView, summaries: list[SegmentSummary]) -> int | None:
    """Return the largest timestamp of a view (µs since the epoch) without that of markers.

    Opens segments in the order of their largest timestamps, until none can have a later record.

    Raises:
        NotFoundError: a segment was deleted meanwhile.
    """
    times = [each.max_timestamp_us for each in summaries]
    found_us: list[int] = []
    for at in sorted(range(len(times)), key=times.__getitem__, reverse=True):
        if found_us and times[at] <= max(found_us):
            break
        segment = view.live.segments[at]
        if segment.start_offset > segment.name.base_offset:
            found_us += _times_us(log, segment.start_offset, summaries[at].end_offset)
            continue
        reader = log.files.open_listed(segment, view.observed_ms)
        found_us += [
            header.max_timestamp_us
            for _, headers in reader.all_headers()
            for header in headers
            if header.record_count and not header.is_control
        ]
        log.files.check_unchanged(reader, view.observed_ms)
    return max(found_us, default=None)


def _parts(view: LogView) -> set[tuple[SegmentName, int]]:
    """Return the segments of a view with their start offsets, which a compaction may move."""
    return {(segment.name, segment.start_offset) for segment in view.live.segments}


def _times_us(log: _Log, start_offset: int, end_offset: int) -> list[int]:
    """Return the largest timestamp of each batch between two offsets."""
    return [
        int(times_us_of(batch.records).max())
        for batch in log.scan(start_offset, end_offset, columns=["timestamp"])
        if batch.records.num_rows
    ]
