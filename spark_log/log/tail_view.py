"""A view of the log that grows at its end without listing again (DESIGN.md, section 7)."""

from __future__ import annotations

from bisect import bisect_right

from spark_log.errors import NotFoundError
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment.reader import SegmentReader
from spark_log.storage import is_known


class TailView:
    """The live log as one listing showed it, and the segments that were appended since.

    A new segment is found by trying its name, which is the log end offset. The listing counts for
    half of ``file.delete.delay.ms``: until then no name that it allows can have been freed, and
    so none can be missed, or hold anything but the log.
    """

    def __init__(self, directory: PartitionDirectory, view: LogView) -> None:
        """Args: directory: the partition's; view: to begin with."""
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
        """Whether the listing still counts."""
        return is_known(self._directory.clock, self.observed_ms, self._valid_ms)

    def holds(self, offset: int) -> bool:
        """Return whether there is a record to be read at ``offset``, or the log goes on there."""
        return self.log_start_offset <= offset <= self.log_end_offset

    def open_at(self, offset: int) -> SegmentReader | None:
        """Open the segment that ``offset`` is read from, the next one to come at the log's end.

        Returns:
            None where the log ends, or where the view is not right (any more).
        """
        if offset == self.log_end_offset:
            return self._probe()
        name = self._names[bisect_right(self._starts, offset) - 1]
        try:
            reader = self._open(name)
            is_right = offset < reader.end_offset  # it may have to be read, too
        except NotFoundError:
            is_right = False
        if not is_right:
            return None  # rewritten and freed since, or the listing left out what came during it
        if self.is_valid:
            self._directory.identities.check(reader.path, name, reader.append_id)
        return reader

    def _probe(self) -> SegmentReader | None:
        name = SegmentName(self.log_end_offset)
        try:
            reader = self._open(name)
            end_offset = reader.end_offset  # it may have to be read, too
        except NotFoundError:
            return None
        if not self.is_valid:
            return None  # the name may have been spent: what stands there may be nobody's
        self._directory.identities.check(reader.path, name, reader.append_id)
        self._starts.append(self.log_end_offset)
        self._names.append(name)
        self.log_end_offset = end_offset
        self._directory.on_log_end(end_offset)
        return reader

    def _open(self, name: SegmentName) -> SegmentReader:
        if self._opened is None or self._opened[0] != name:
            self._opened = name, self._directory.open(name)
        return self._opened[1]
