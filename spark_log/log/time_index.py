"""The time index of a segment: Kafka's ``TimeIndex``, from timestamp to offset."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.log.index_entries import make_entries, read_entries

_ENTRY: Final = np.dtype([("timestamp", "<i8"), ("relative_offset", "<u4")])


class TimeIndex:
    """Sparse map from timestamp to offset for one segment.

    On storage: fixed 12-byte entries, little-endian, ``timestamp i64 (us), relative_offset u32``:
    the largest timestamp up to a batch, and the first offset that has it; timestamps strictly
    increasing. So every record whose timestamp is larger than an entry's comes after its offset,
    also where timestamps go backwards. Derived data, as the offset index.
    """

    def __init__(self, base_offset: int, entries: np.ndarray) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @classmethod
    def from_bytes(cls, base_offset: int, data: pa.Buffer) -> TimeIndex:
        """Read an index file.

        Raises:
            ValueError: its size or its order shows that it is damaged.
        """
        return cls(base_offset, read_entries(data, _ENTRY))

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, timestamp_us: int) -> int:
        """Return an offset at or before the first record whose timestamp is ≥ ``timestamp_us``."""
        at = int(np.searchsorted(self._entries["timestamp"], timestamp_us, side="right")) - 1
        if at < 0:
            return self._base_offset
        return self._base_offset + int(self._entries[at]["relative_offset"])


def time_index_bytes(entries: list[tuple[int, int]]) -> bytes:
    """Return the file of an index with these entries: timestamp (us), relative offset."""
    return make_entries(_ENTRY, entries)
