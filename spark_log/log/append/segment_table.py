"""Listed segments in 32 bytes each, for what an appender remembers until they are merged."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from spark_log.log.clean import MergeCandidate
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import PartitionDirectory
from spark_log.storage import FileInfo

_COLUMNS: Final = 4
_UNKNOWN: Final = -1


class SegmentTable:
    """Consecutive segments of a log, in order.

    A `LiveSegment` takes 500 bytes with its name and path. A producer of 1,000 partitions remembers
    more than 100,000 segments.
    """

    __slots__ = ("_others", "_rows")

    def __init__(self, segments: Iterable[LiveSegment] = ()) -> None:
        """Hold these segments."""
        self._rows = array("q")  # base offset, end offset, bytes, time
        self._others: dict[int, tuple[SegmentName, int]] = {}  # that are not plain, or cut off
        for each in segments:
            name, file = each.name, each.file
            if name.last_offset is not None or each.start_offset != name.base_offset:
                self._others[len(self)] = name, each.start_offset
            end_offset = _UNKNOWN if each.end_offset is None else each.end_offset
            self.append(name.base_offset, end_offset, file.size_bytes, file.modified_us)

    def __len__(self) -> int:
        return len(self._rows) // _COLUMNS

    def append(self, base_offset: int, end_offset: int, size_bytes: int, time_us: int) -> None:
        """Add a plain segment.

        Args:
            base_offset: its first offset.
            end_offset: the offset after its last.
            size_bytes: of its file.
            time_us: of its append, by the storage's clock, approximately.
        """
        self._rows.extend((base_offset, end_offset, size_bytes, time_us))

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment."""
        return self._rows[0]

    @property
    def end_offset(self) -> int:
        """The offset after the last segment."""
        return self._rows[1 - _COLUMNS]

    def candidates(self) -> list[MergeCandidate]:
        """Return the segments, which are plain, for the merge policy."""
        rows = zip(*(self._rows[at::_COLUMNS] for at in range(_COLUMNS)), strict=True)
        return [MergeCandidate(0, size, base, end, us, us) for base, end, size, us in rows]

    def without(self, merged_to: int) -> SegmentTable:
        """Return the segments that begin behind an offset, and the last one."""
        return self._picked(
            at
            for at in range(len(self))
            if self._rows[at * _COLUMNS] > merged_to or at == len(self) - 1
        )

    def behind(self, end_offset: float) -> SegmentTable:
        """Return the segments that end behind an offset."""
        return self._picked(
            at for at in range(len(self)) if self._rows[at * _COLUMNS + 1] > end_offset
        )

    def _picked(self, numbers: Iterable[int]) -> SegmentTable:
        picked = SegmentTable()
        for at in numbers:
            picked.append(*self._rows[at * _COLUMNS : (at + 1) * _COLUMNS])
        return picked

    def names(self) -> Iterator[tuple[SegmentName, int]]:
        """Yield the name of each segment, and the size of its file."""
        for at in range(len(self)):
            base_offset, _, size_bytes, _ = self._rows[at * _COLUMNS : (at + 1) * _COLUMNS]
            name, _ = self._others.get(at) or (SegmentName(base_offset), base_offset)
            yield name, size_bytes

    def segments(self, directory: PartitionDirectory) -> tuple[LiveSegment, ...]:
        """Return the segments as a listing of the partition's directory shows them."""
        found = []
        for at in range(len(self)):
            base_offset, end, size_bytes, us = self._rows[at * _COLUMNS : (at + 1) * _COLUMNS]
            name, start_offset = self._others.get(at) or (SegmentName(base_offset), base_offset)
            file = FileInfo(directory.file_path(name.log), size_bytes, us)
            found.append(LiveSegment(name, file, start_offset, None if end == _UNKNOWN else end))
        return tuple(found)
