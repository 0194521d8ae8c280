"""The time index of a segment: Kafka's ``TimeIndex``, from timestamp to offset."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

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
        if data.size % _ENTRY.itemsize:
            raise ValueError(f"{data.size} bytes are not a whole number of 12-byte entries")
        entries = np.frombuffer(data, _ENTRY)
        if any((np.diff(entries[field].astype(np.int64)) <= 0).any() for field in _ENTRY.names):
            raise ValueError("entries are not strictly increasing")
        return cls(base_offset, entries)

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, timestamp_us: int) -> int:
        """Return an offset at or before the first record whose timestamp is ≥ ``timestamp_us``."""
        at = int(np.searchsorted(self._entries["timestamp"], timestamp_us, side="right")) - 1
        if at < 0:
            return self._base_offset
        return self._base_offset + int(self._entries[at]["relative_offset"])


def time_index_bytes(timestamps_us: list[int], relative_offsets: list[int]) -> bytes:
    """Return the file of an index with these entries."""
    entries = np.empty(len(timestamps_us), _ENTRY)
    entries["timestamp"] = timestamps_us
    entries["relative_offset"] = relative_offsets
    return entries.tobytes()
