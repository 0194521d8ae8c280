"""The offset index of a segment: Kafka's ``OffsetIndex``, from offset to file position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.log.index_entries import make_entries, read_entries

_ENTRY: Final = np.dtype([("relative_offset", "<u4"), ("position", "<u4")])


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """Where a record batch begins: its first offset and its block's position in the file."""

    offset: int
    position: int


class OffsetIndex:
    """Sparse map from offset to file position for one segment.

    On storage: fixed 8-byte entries, little-endian, ``relative_offset u32, position u32``, both
    strictly increasing. Derived data: a missing, short or damaged index costs reads of batch
    headers, and no answer depends on it being there.
    """

    def __init__(self, base_offset: int, entries: np.ndarray) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @classmethod
    def from_bytes(cls, base_offset: int, data: pa.Buffer) -> OffsetIndex:
        """Read an index file.

        Raises:
            ValueError: its size or its order shows that it is damaged.
        """
        return cls(base_offset, read_entries(data, _ENTRY))

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Return the last entry at or before ``offset``; None means: from the segment's start."""
        relative = offset - self._base_offset
        at = int(np.searchsorted(self._entries["relative_offset"], relative, side="right")) - 1
        if at < 0:
            return None
        entry = self._entries[at]
        return OffsetPosition(
            self._base_offset + int(entry["relative_offset"]), int(entry["position"])
        )


def offset_index_bytes(entries: list[tuple[int, int]]) -> bytes:
    """Return the file of an index with these entries: relative offset, position."""
    return make_entries(_ENTRY, entries)
