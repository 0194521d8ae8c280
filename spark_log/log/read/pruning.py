"""Finding the segments of one view that can contain the first record at or after a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView
from spark_log.log.files import LiveSegment
from spark_log.log.segment import SegmentReader, SegmentSummary
from spark_log.log.snapshot import Snapshots


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
