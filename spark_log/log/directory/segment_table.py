"""A table of listed segments, 32 bytes each, for objects that keep many of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

from spark_log.log.files import LiveSegment, SegmentName
from spark_log.storage import FileInfo

_COLUMNS: Final = 4
_UNKNOWN: Final = -1

_TABLE_BYTES: Final = 256
_OTHER_BYTES: Final = 400
"""Approximate memory of a segment that is not plain, or is cut off."""


class SegmentTable(Sequence[LiveSegment]):
    """Consecutive segments of a log, in order. A `LiveSegment` is made only when it is accessed.

    A `LiveSegment` takes 500 bytes with its name and path. Producers and consumers of 1,000
    partitions keep more than 100,000 segments.
    """

    __slots__ = ("_others", "_path", "_rows")

    def __init__(self, path: str, segments: Iterable[LiveSegment] = ()) -> None:
        """Hold these segments.

        Args:
            path: the partition's directory, relative to the store's root.
            segments: the directory's segments, in offset order.
        """
        self._path = path
        self._rows = array("q")  # base offset, end offset, bytes, time
        self._others: dict[int, tuple[SegmentName, int]] = {}  # that are not plain, or cut off
        for each in segments:
            name, file = each.name, each.file
            if name.last_offset is not None or each.start_offset != name.base_offset:
                self._others[len(self)] = name, each.start_offset
            end_offset = _UNKNOWN if each.end_offset is None else each.end_offset
            self.append(name.base_offset, end_offset, file.size_bytes, file.modified_us)

    def append(self, base_offset: int, end_offset: int, size_bytes: int, time_us: int) -> None:
        """Add a plain segment.

        Args:
            base_offset: its first offset.
            end_offset: the offset after its last.
            size_bytes: size of its file.
            time_us: approximate time of its append by the storage's clock.
        """
        self._rows.extend((base_offset, end_offset, size_bytes, time_us))

    def __len__(self) -> int:
        return len(self._rows) // _COLUMNS

    @overload
    def __getitem__(self, at: int) -> LiveSegment: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[LiveSegment, ...]: ...

    def __getitem__(self, at: int | slice) -> LiveSegment | tuple[LiveSegment, ...]:
        if isinstance(at, slice):
            return tuple(self[each] for each in range(*at.indices(len(self))))
        at = range(len(self))[at]
        base_offset, end, size_bytes, us = self._rows[at * _COLUMNS : (at + 1) * _COLUMNS]
        name, start_offset = self._others.get(at) or (SegmentName(base_offset), base_offset)
        file = FileInfo(f"{self._path}/{name.file_name}", size_bytes, us)
        return LiveSegment(name, file, start_offset, None if end == _UNKNOWN else end)

    def part(self, indexes: range) -> SegmentTable:
        """Return the segments of a range of indexes."""
        if self._others:
            return SegmentTable(self._path, self[indexes.start : indexes.stop])
        part = SegmentTable(self._path)
        part._rows = self._rows[indexes.start * _COLUMNS : indexes.stop * _COLUMNS]
        return part

    def names(self) -> Iterator[SegmentName]:
        """Yield the segments' names."""
        for at, base_offset in enumerate(self._rows[::_COLUMNS]):
            other = self._others.get(at)
            yield SegmentName(base_offset) if other is None else other[0]

    @property
    def start_offset(self) -> int:
        """Base offset of the first segment."""
        return self._rows[0]

    @property
    def end_offset(self) -> int:
        """The offset after the last segment."""
        return self._rows[1 - _COLUMNS]

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the table."""
        return _TABLE_BYTES + 8 * len(self._rows) + _OTHER_BYTES * len(self._others)

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield base offset, end offset, bytes and time of each segment, as `append` takes them."""
        columns = (self._rows[at::_COLUMNS] for at in range(_COLUMNS))
        return zip(*columns, strict=True)

    def without(self, merged_to: int) -> SegmentTable:
        """Return the segments that begin behind an offset, and the last one; all are plain."""
        last = self._rows[-_COLUMNS]
        return self._picked(row for row in self.rows() if row[0] > merged_to or row[0] == last)

    def behind(self, end_offset: float) -> SegmentTable:
        """Return the segments that end behind an offset; all are plain."""
        return self._picked(row for row in self.rows() if row[1] > end_offset)

    def _picked(self, rows: Iterable[tuple[int, int, int, int]]) -> SegmentTable:
        picked = SegmentTable(self._path)
        for row in rows:
            picked.append(*row)
        return picked
