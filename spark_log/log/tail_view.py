"""A view of the log that grows at its end without another listing."""

from __future__ import annotations

from bisect import bisect_right

from spark_log.errors import NotFoundError
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment import SegmentReader
from spark_log.storage import is_listing_valid


class TailView:
    """The live log as one listing showed it, plus the segments that were appended since.

    A new segment is found by opening the file whose name is the log end offset. The listing is
    valid for half of ``file.delete.delay.ms``. Within this time no file of the log can have been
    deleted and no name reused, so no segment is missed, and each file found is part of the log.

    Attributes:
        observed_ms: monotonic time before the listing began.
        log_start_offset: of the listing.
        log_end_offset: of the listing, or of the last segment that was found since.
    """

    def __init__(self, directory: PartitionDirectory, view: LogView) -> None:
        """Begin with a listing.

        Args:
            directory: of the partition.
            view: of the listing.
        """
        self._directory = directory
        self.observed_ms = view.observed_ms
        self._valid_ms = directory.valid_ms
        self._starts = [segment.start_offset for segment in view.live.segments]
        self._names = [segment.name for segment in view.live.segments]
        self.log_start_offset = view.log_start_offset
        self.log_end_offset = view.log_end_offset
        self._opened: tuple[SegmentName, SegmentReader] | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the listing is still valid."""
        return is_listing_valid(self._directory.clock, self.observed_ms, self._valid_ms)

    def holds(self, offset: int) -> bool:
        """Return whether ``offset`` lies in the log, or is the log end offset."""
        return self.log_start_offset <= offset <= self.log_end_offset

    def open_at(self, offset: int) -> SegmentReader | None:
        """Open the segment that contains ``offset``; at the log's end, the next segment.

        Returns:
            None if the log ends there, or if the view is outdated or incomplete.
        """
        if offset == self.log_end_offset:
            return self._probe()
        name = self._names[bisect_right(self._starts, offset) - 1]
        try:
            reader = self._open(name)
            is_right = offset < reader.end_offset  # may read the last batch
        except NotFoundError:
            is_right = False
        if not is_right:
            # Rewritten and deleted since, or the listing lacks a segment that appeared during it.
            return None
        if self.is_valid:
            self._directory.identities.check(reader.path, name, reader.append_id)
        return reader

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
            return self.is_valid  # still
        return False

    def on_appended(self, base_offset: int, end_offset: int) -> None:
        """Add a segment that this process appended, if it is the next one."""
        if base_offset == self.log_end_offset:
            self._add(SegmentName(base_offset), end_offset)

    def _probe(self) -> SegmentReader | None:
        name = SegmentName(self.log_end_offset)
        try:
            reader = self._open(name)
            end_offset = reader.end_offset  # may read the last batch
        except NotFoundError:
            return None
        if not self.is_valid:
            return None  # the name may have been used before: this may be a put delivered late
        self._directory.identities.check(reader.path, name, reader.append_id)
        self._add(name, end_offset)
        self._directory.on_log_end(end_offset)
        return reader

    def _add(self, name: SegmentName, end_offset: int) -> None:
        self._starts.append(name.base_offset)
        self._names.append(name)
        self.log_end_offset = end_offset

    def _open(self, name: SegmentName) -> SegmentReader:
        if self._opened is None or self._opened[0] != name:
            self._opened = name, self._directory.open(name)
        return self._opened[1]
