"""The offset index of a segment: Kafka's ``OffsetIndex``, from offset to file position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.log.segment.entries import make_entries, read_entries, unchecked_entries

_ENTRY: Final = np.dtype([("relative_offset", "<u4"), ("position", "<u4")])


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """The start of a record batch: its first offset and the position of its block in the file."""

    offset: int
    position: int


class OffsetIndex:
    """Sparse map from offset to file position for one segment.

    On storage: fixed 8-byte entries, little-endian, ``relative_offset u32, position u32``, both
    strictly increasing; then a checksum whose seed is the segment's append id. Derived data: a
    missing or damaged index costs reads of batch headers, and never changes an answer.
    """

    def __init__(self, base_offset: int, entries: np.ndarray) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @classmethod
    def from_bytes(cls, base_offset: int, data: pa.Buffer, append_id: str | None) -> OffsetIndex:
        """Read an index file.

        Args:
            base_offset: the segment's base offset.
            data: the whole file.
            append_id: the segment's append id; None does not check the checksum.

        Raises:
            ValueError: the file is damaged, or was made for another segment.
        """
        if append_id is None:
            return cls(base_offset, unchecked_entries(data, _ENTRY))
        return cls(base_offset, read_entries(data, _ENTRY, append_id.encode()))

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield all entries in order."""
        for relative_offset, position in self._entries.tolist():
            yield OffsetPosition(self._base_offset + relative_offset, position)

    def positions(self) -> np.ndarray:
        """Return the positions of all entries, uint32."""
        return self._entries["position"]

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Return the last entry up to ``offset``; None to search from the segment's start."""
        return self._entry(self._entries_up_to(offset) - 1)

    def following(self, offset: int) -> OffsetPosition | None:
        """Return the first entry after ``offset``; None to search to the segment's end."""
        return self._entry(self._entries_up_to(offset))

    def last(self) -> OffsetPosition | None:
        """Return the last entry; None without entries."""
        return self._entry(len(self._entries) - 1)

    def _entries_up_to(self, offset: int) -> int:
        relative = offset - self._base_offset
        return int(np.searchsorted(self._entries["relative_offset"], relative, side="right"))

    def _entry(self, at: int) -> OffsetPosition | None:
        if not 0 <= at < len(self._entries):
            return None
        entry = self._entries[at]
        return OffsetPosition(
            self._base_offset + int(entry["relative_offset"]), int(entry["position"])
        )


def offset_index_bytes(entries: Sequence[tuple[int, int]], append_id: str) -> bytes:
    """Return the content of an offset index file; empty without entries.

    Args:
        entries: pairs of relative offset and position, both strictly increasing.
        append_id: the segment's append id.
    """
    return make_entries(_ENTRY, entries, append_id.encode())
