"""Pruning: which segments of a log, and which offsets of a segment, a read by time can skip.

- `SegmentTimes`: the segments that a lookup of the first record at or after a time has to open.
- `prune_segments`: the offsets that a read within bounds of time has to read, by whole segments.
- `parts_within_times`: the same inside one segment, by batches.

Which Arrow batches are read for an offset range, and for the lookup of a time, is decided in
`log.segment.batch_pruning`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView
from spark_log.log.files import LiveSegment
from spark_log.log.segment import SegmentReader, SegmentSummary
from spark_log.log.snapshot import Snapshots
from spark_log.record import times_us_of


class SegmentTimes:
    """The largest timestamp of each segment of a view, and of all segments up to it.

    The newest snapshot has the timestamps of most segments. The segments behind it are opened one
    after the other, when a time is searched for that no earlier segment reaches.

    Attributes:
        view: the log's view.
    """

    def __init__(self, snapshots: Snapshots, view: LogView) -> None:
        """Load the newest snapshot if it is needed.

        Raises:
            NotFoundError: the view lacks a segment, or is outdated.
        """
        self.view = view
        self._snapshots = snapshots
        self._largest_us: list[int] = []
        self._largest_so_far_us: list[int] = []
        for segment, summary in zip(
            view.live.segments, snapshots.known_summaries(view), strict=False
        ):
            self._add(segment, summary)

    def segments_reaching(
        self, timestamp_us: int, last: SegmentReader | None = None
    ) -> Iterator[LiveSegment]:
        """Yield, in offset order, the segments that have a record at or after a time.

        Args:
            timestamp_us: microseconds since the epoch.
            last: reader of the view's last segment if it is open, so that it is not opened again.

        Raises:
            NotFoundError: the view lacks a segment, or is outdated.
            CorruptRecordError: a segment is damaged.
        """
        # The largest timestamp so far never decreases, so bisection finds the first segment that
        # reaches the time, also if timestamps are not in order.
        at = bisect_left(self._largest_so_far_us, timestamp_us)
        segments = self.view.live.segments
        for segment in segments[at:]:
            if at == len(self._largest_us):
                reader = last if segment is segments[-1] else None
                summaries, observed_ms = self._snapshots.summaries, self.view.observed_ms
                self._add(segment, summaries.get(segment, observed_ms, reader))
            if self._largest_us[at] >= timestamp_us:
                yield segment
            at += 1

    def _add(self, segment: LiveSegment, summary: SegmentSummary) -> None:
        if segment.end_offset not in (None, summary.end_offset):
            raise NotFoundError(f"the listing leaves out the segment behind {segment.file.path}")
        largest_us = summary.max_timestamp_us
        self._largest_us.append(largest_us)
        so_far_us = self._largest_so_far_us
        so_far_us.append(max(largest_us, so_far_us[-1]) if so_far_us else largest_us)


def prune_segments(
    view: LogView,
    summaries: Sequence[SegmentSummary],
    offsets: tuple[int, int],
    times_us: tuple[int, int],
) -> list[tuple[int, int]]:
    """Return the parts of an offset range whose segments can hold records within bounds of time.

    Args:
        view: the log's view.
        summaries: the summary of each of its segments.
        offsets: the first offset, and the one after the last.
        times_us: the first timestamp and the one after the last, in microseconds since the epoch.

    Returns:
        Ranges of offsets, in order; neighbours are joined.
    """
    parts: list[tuple[int, int]] = []
    for segment, summary in zip(view.live.segments, summaries, strict=True):
        start = max(offsets[0], segment.start_offset)
        end = min(offsets[1], summary.end_offset)
        earliest_us = summary.min_timestamp_us
        is_late = earliest_us is not None and earliest_us >= times_us[1]
        if start >= end or is_late or summary.max_timestamp_us < times_us[0]:
            continue
        if parts and parts[-1][1] == start:
            start = parts.pop()[0]
        parts.append((start, end))
    return parts


def parts_within_times(
    reader: SegmentReader,
    offsets: tuple[int, int],
    times_us: tuple[int, int],
    *,
    reads_times_first: bool,
) -> Iterator[tuple[int, int]]:
    """Yield the parts of an offset range of a segment that a read within bounds of time needs.

    The first part begins at the first record with the first timestamp, or a later one; in a Parquet
    file, whose footer tells the times of its row groups, at the row group with this record. The
    parts may also have records outside of the bounds: the caller compares their timestamps.

    Args:
        reader: the segment's reader.
        offsets: the first offset, and the one after the last.
        times_us: the first timestamp and the one after the last, in microseconds since the epoch.
        reads_times_first: whether the timestamps of all batches are read first, so that the parts
            have only batches with a record within the bounds, and the other columns of other
            batches are not read. If not, one part reaches to the end of the range.
    """
    told = reader.ranges_in_time(times_us)
    if told is not None:
        pairs = ((max(first, offsets[0]), min(last, offsets[1])) for first, last in told)
        yield from (pair for pair in pairs if pair[0] < pair[1])
        return
    low_us, high_us = times_us
    found = reader.offset_for_time(low_us, offsets[0])
    if found is None or found[0] >= offsets[1]:
        return
    start = end = found[0]
    if not reads_times_first:
        yield start, offsets[1]
        return
    # Checksums are verified whatever the read selects: timestamps decide which records are read.
    for batch in reader.read(start, offsets[1], columns=["timestamp"]):
        batch_us = times_us_of(batch.records)
        if not ((batch_us >= low_us) & (batch_us < high_us)).any():
            continue
        if end < batch.base_offset:  # batches between the part and this one are skipped
            if start < end:
                yield start, end
            start = batch.base_offset
        end = batch.end_offset
    if start < end:
        yield start, end
