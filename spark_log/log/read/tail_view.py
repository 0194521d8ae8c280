"""A view of the log that grows at its end without another listing."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogEnd, LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.segment import SegmentReader
from spark_log.storage import is_listing_valid

_log = logging.getLogger(__name__)

_MIN_PROBES: Final = 8
"""Minimum number of segments found one by one before the log is listed again."""

_SEGMENTS_PER_PROBE: Final = 100
"""Segments of a listing for each segment that is found one by one before the log is listed
again."""


class TailView:
    """The live log as one listing showed it, plus the segments that were appended since.

    A new segment is found by opening the file whose name is the log end offset. The listing is
    valid for half of ``file.delete.delay.ms``. Within this time no file of the log can have been
    deleted and no name reused, so no segment is missed, and each file found is part of the log.

    Segments of the listing that are read one after the other are opened ahead.

    Attributes:
        observed_ms: monotonic time before the listing began.
        log_start_offset: the log start offset in the listing.
        log_end_offset: the end offset of the last segment, listed or found since.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        view: LogView,
        last: SegmentReader | None = None,
        start_offset: int | None = None,
    ) -> None:
        """Begin with a listing.

        Args:
            directory: the partition's directory.
            view: the log as the listing showed it.
            last: the last segment of the listing if it is open, to be read without another request.
            start_offset: the segment that contains this offset is the first one to be kept, and all
                are kept in little memory; None keeps the view.
        """
        self._directory = directory
        self.log_start_offset = self._first_offset = view.log_start_offset
        self._passed = 0
        if start_offset is not None and view.live.segments:
            kept = view.from_offset(start_offset, directory.path)
            self._passed = len(view.live.segments) - len(kept.live.segments)
            if self._passed:
                self._first_offset = kept.live.segments[0].start_offset
            view = kept
        self._view = view
        self._listed_end = view.log_end_offset
        self._segments = view.live.segments
        self.observed_ms = view.observed_ms
        self._valid_ms = directory.valid_ms
        self._starts = array("q", [segment.start_offset for segment in self._segments])
        self.log_end_offset = view.log_end_offset
        self._opener = directory.opener(view.log_end_offset, last)
        self._opened: tuple[SegmentName, SegmentReader] | None = None
        self._found = 0
        self._is_short = False

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the view, without the segments opened ahead."""
        opened = self._opened
        open_bytes = 0 if opened is None else opened[1].memory_bytes
        return self._view.memory_bytes + 8 * len(self._starts) + open_bytes

    @property
    def is_valid(self) -> bool:
        """Whether the listing is still valid."""
        return not self._is_short and is_listing_valid(
            self._directory.clock, self.observed_ms, self._valid_ms
        )

    def holds(self, offset: int) -> bool:
        """Return whether ``offset`` lies in a segment that was kept, or is the log end offset."""
        return self._first_offset <= offset <= self.log_end_offset

    def can_read(self, offset: int) -> bool:
        """Return whether this view can read at ``offset``, or probe for the next segment there."""
        if self.is_valid:
            return self.holds(offset)
        is_listed = self._first_offset <= offset < self._listed_end
        return is_listed and not self._directory.is_outdated(self.observed_ms)

    @property
    def is_behind(self) -> bool:
        """Whether so many segments were found one by one that a listing finds the rest sooner."""
        if self._directory.store.is_local:
            return False
        segments = self._passed + len(self._starts)
        return self._found >= max(_MIN_PROBES, segments // _SEGMENTS_PER_PROBE)

    def open_at(self, offset: int) -> SegmentReader | None:
        """Open the segment that contains ``offset``; at the log's end, the next segment.

        Returns:
            None if the log ends at ``offset``, or if the view is outdated or incomplete.
        """
        if offset == self.log_end_offset:
            return self._probe()
        index = bisect_right(self._starts, offset) - 1
        name = self._name(index)
        try:
            reader = self._open(name, index)
            end_offset = reader.end_offset  # may read the last batch
            is_right = offset < end_offset and self._fits(index, end_offset)
        except NotFoundError:
            is_right = False
        if not is_right:
            # Rewritten and deleted since, or the listing lacks a segment that appeared during it.
            return None
        if self.is_valid:
            self._directory.check_identity(reader, name)
        return reader

    def newest_first(self) -> Iterator[tuple[SegmentName, int]]:
        """Yield name and first offset of each segment that was kept, from the log's end on."""
        for index in range(len(self._starts) - 1, -1, -1):
            yield self._name(index), self._starts[index]

    def take_last(self, view: LogView) -> SegmentReader | None:
        """Hand over the last segment of the listing if it is open and ``view`` is the listing's."""
        return self._opener.take_last() if view is self._view else None

    def forget_last(self) -> None:
        """Release the last segment of the listing, since no read begins with it."""
        self._opener.take_last()

    def release(self) -> None:
        """Release the memory of the segment that was opened last, since it was read to its end."""
        self._opened = None

    def ends_at(self, offset: int) -> bool:
        """Whether the log ends at ``offset`` now; False also if the listing is not valid any more.

        Changes nothing, so any thread may call it.

        Raises:
            CorruptRecordError: the next segment is damaged.
        """
        if offset != self.log_end_offset or not self.is_valid:
            return False
        try:
            self._directory.open(SegmentName(offset))
        except NotFoundError:
            # The listing may have expired during the request.
            return self.is_valid and self._directory.reached_offset <= offset
        return False

    def end_after(self, offset: int) -> tuple[LogEnd, int]:
        """Return the log's end, and the number of segments between an offset and it."""
        last = self._name(len(self._starts) - 1) if self._starts else None
        count = len(self._starts) - bisect_left(self._starts, offset)
        return LogEnd(self.log_end_offset, self.observed_ms, last), count

    def on_appended(self, base_offset: int, end_offset: int) -> None:
        """Add a segment that this process appended, if it is the next one."""
        if base_offset == self.log_end_offset:
            self._add(SegmentName(base_offset), end_offset)

    def _probe(self) -> SegmentReader | None:
        if self._directory.is_known_end(self.log_end_offset):
            self._found = 0
            return None
        name = SegmentName(self.log_end_offset)
        try:
            reader = self._open(name, len(self._starts))
            end_offset = reader.end_offset  # may read the last batch
        except NotFoundError:
            self._found = 0
            # Records behind this end are known, and have another name: they are in a stripe's home.
            self._is_short = self._directory.reached_offset > self.log_end_offset
            return None
        if not self.is_valid:
            return None  # the name may have been used before: this may be a put delivered late
        self._directory.check_identity(reader, name)
        self._add(name, end_offset)
        self._found += 1
        _log.debug("%s: found, the log ends at offset %d", reader.path, end_offset)
        self._directory.on_log_end(end_offset)
        return reader

    def _name(self, index: int) -> SegmentName:
        if index < len(self._segments):
            return self._segments[index].name
        return SegmentName(self._starts[index])

    def _fits(self, index: int, end_offset: int) -> bool:
        """Whether a segment ends where the listing shows that the next one begins."""
        if index >= len(self._segments):
            return True
        return self._segments[index].end_offset in (None, end_offset)

    def _add(self, name: SegmentName, end_offset: int) -> None:
        self._starts.append(name.base_offset)
        self.log_end_offset = end_offset

    def _open(self, name: SegmentName, index: int) -> SegmentReader:
        if self._opened is None or self._opened[0] != name:
            if index >= len(self._segments):
                self._opened = name, self._directory.open(name)
            else:
                self._opened = name, self._opener.open(self._view, index)
        return self._opened[1]
