"""A partition's log as one listing of its directory showed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.directory.segment_table import SegmentTable
from spark_log.log.files import LiveLog
from spark_log.log.segment import SegmentReader
from spark_log.storage import FileInfo

_SEGMENT_BYTES = 480
"""Approximate memory of a listed segment."""


@dataclass(frozen=True, slots=True)
class LogView:
    """The log as one listing showed it, with the log end offset from its last segment.

    Attributes:
        live: the chain of segments.
        log_end_offset: the next offset to be written.
        observed_ms: monotonic time before the listing began.
        leader_epoch: leader epoch of the log's last batch; -1 if the log never had a batch. None
            if it is not known: the last segment is a rewritten one and was not opened, or the log
            was emptied.
        origin: URL of the directory.
    """

    live: LiveLog
    log_end_offset: int
    observed_ms: float
    leader_epoch: int | None = None
    origin: str = ""

    def __repr__(self) -> str:
        return (
            f"<LogView log_start_offset={self.log_start_offset} "
            f"log_end_offset={self.log_end_offset} segments={len(self.live.segments)}>"
        )

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.live.log_start_offset

    @property
    def parquet_offsets(self) -> int:
        """Number of offsets that are read from Parquet segments."""
        return sum(
            segment.end_offset - segment.start_offset
            for segment in self.live.segments
            if segment.name.is_parquet and segment.end_offset is not None
        )

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the listed segments, with their names, paths and times."""
        segments = self.live.segments
        if isinstance(segments, SegmentTable):
            return segments.memory_bytes
        return len(segments) * _SEGMENT_BYTES

    def from_offset(self, offset: int, path: str) -> LogView:
        """Return the view in little memory, without the segments before an offset.

        Args:
            offset: an offset in the first segment to keep.
            path: the partition's directory, relative to the store's root.
        """
        segments = SegmentTable(path, self.live.segments[max(0, self.live.index_of(offset)) :])
        return replace(self, live=replace(self.live, segments=segments))

    def check_offset(self, offset: int, where: str) -> None:
        """Check that the log can be read from ``offset``. The log end offset is valid.

        Args:
            offset: the offset to check.
            where: the partition's directory, for the error message.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if start <= offset <= end:
            return
        holds = (
            f"the log holds {start} to {end - 1}" if start < end else f"the log is empty at {end}"
        )
        raise OffsetOutOfRangeError(
            f"{where}: offset {offset} is out of range; {holds}",
            offset=offset,
            log_start_offset=start,
            log_end_offset=end,
        )


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """One listing of a partition's directory, shared by several steps of maintenance.

    Use it only to decide that no work is due. Before a file is deleted, the directory is listed
    again.

    Attributes:
        view: the log.
        last: reader of the log's last segment if the listing had to open it; else None.
        files: the plain files and the hidden ones; None if the listing was not kept.
    """

    view: LogView
    last: SegmentReader | None = None
    files: tuple[Sequence[FileInfo], Sequence[FileInfo]] | None = None
