"""Summaries of a partition's segments, kept so that segments need not be opened again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment import SegmentReader
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.record import BatchHeader, latest_delete_horizon_us


class SegmentSummaries:
    """The known segment summaries of one partition, and the headers of recent appends.

    Segments never change, so a summary is valid as long as its file exists.
    """

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._by_name: dict[SegmentName, SegmentSummary] = {}
        self._recent_headers: dict[SegmentName, tuple[BatchHeader, ...]] = {}

    def covers(self, view: LogView) -> bool:
        """Whether the summary of each segment of a view is known."""
        return all(segment.name in self._by_name for segment in view.live.segments)

    def known(self, segment: LiveSegment) -> SegmentSummary | None:
        """Return the summary of a listed segment; None if it is not known."""
        known = self._by_name.get(segment.name)
        return known if known and known.size_bytes == segment.file.size_bytes else None

    def get(
        self, segment: LiveSegment, observed_ms: float, reader: SegmentReader | None = None
    ) -> SegmentSummary:
        """Return the summary of a listed segment. Opens the segment if it is not known.

        Args:
            segment: of the listing.
            observed_ms: monotonic time before the listing began.
            reader: of the segment if it is open.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        if self.known(segment) is None:
            self.headers(segment, observed_ms, reader)
        return self._by_name[segment.name]

    def has_headers(self, segment: LiveSegment) -> bool:
        """Whether `headers` need not open a listed segment: it was appended recently."""
        return self.known(segment) is not None and segment.name in self._recent_headers

    def headers(
        self, segment: LiveSegment, observed_ms: float, reader: SegmentReader | None = None
    ) -> tuple[int, Sequence[BatchHeader]]:
        """Return end offset and batch headers of a listed segment; keep its summary.

        Opens the segment unless it was appended recently.

        Args:
            segment: of the listing.
            observed_ms: monotonic time before the listing began.
            reader: of the segment if it is open.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        known, recent = self.known(segment), self._recent_headers.get(segment.name)
        if known is not None and recent is not None:
            return known.end_offset, recent
        reader = self._directory.open_listed(segment, observed_ms, reader)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        if known is None:
            self._by_name[segment.name] = SegmentSummary.of_headers(segment.name, reader, headers)
        return reader.end_offset, headers

    def read_delete_horizon(self, segment: LiveSegment, observed_ms: float) -> int:
        """Read a segment's delete horizon from its headers, and add it to its summary.

        Args:
            segment: of a listing; its summary is known.
            observed_ms: monotonic time before the listing began.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        reader = self._directory.open_listed(segment, observed_ms)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        horizon_us = latest_delete_horizon_us(headers)
        known = self._by_name[segment.name]
        self._by_name[segment.name] = replace(known, delete_horizon_us=horizon_us)
        return horizon_us

    def on_appended(self, summary: SegmentSummary, headers: tuple[BatchHeader, ...]) -> None:
        """Add a segment that was appended, with its headers."""
        self._by_name[summary.name] = summary
        self._recent_headers[summary.name] = headers

    def on_opened(self, name: SegmentName, reader: SegmentReader) -> None:
        """Add a segment that was opened and read whole, with its headers."""
        headers = tuple(header for _, found in reader.all_headers() for header in found)
        self.on_appended(SegmentSummary.of_headers(name, reader, headers), headers)

    def on_rewritten(self, summary: SegmentSummary) -> None:
        """Add a segment that a merge wrote."""
        self._by_name[summary.name] = summary

    def load(self, summaries: Iterable[SegmentSummary]) -> None:
        """Add the summaries of a snapshot. Those that are known already stay."""
        self._by_name = {each.name: each for each in summaries} | self._by_name

    def replace(self, live: Mapping[SegmentName, SegmentSummary]) -> None:
        """Keep the summaries of these live segments alone."""
        self._by_name = dict(live)

    def drop_before(self, offset: int, segment_count: int) -> None:
        """Drop headers and summaries that only a snapshot up to ``offset`` needed.

        Args:
            offset: of a snapshot that exists.
            segment_count: number of live segments. Summaries are dropped if there are more than
                twice as many.
        """
        self._recent_headers = {
            name: headers
            for name, headers in self._recent_headers.items()
            if name.base_offset >= offset
        }
        if len(self._by_name) > 2 * segment_count:
            self._by_name = {
                name: self._by_name[name] for name in self._recent_headers if name in self._by_name
            }
