"""The time index of a segment: Kafka's ``TimeIndex``, from timestamp to offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.log.segment.entries import (
    checksum_of,
    make_entries,
    read_entries,
    unchecked_entries,
)

_ENTRY: Final = np.dtype([("timestamp", "<i8"), ("relative_offset", "<u4")])


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """The largest timestamp so far, and the first offset of the batch that has it."""

    timestamp_us: int
    offset: int


class TimeIndex:
    """Sparse map from timestamp to offset for one segment.

    On storage: fixed 12-byte entries, little-endian, ``timestamp i64 (us), relative_offset u32``,
    both strictly increasing; then a checksum whose seed is the checksum of the offset index.

    For each entry of the offset index, the time index has the largest timestamp of all batches
    before it, and the first offset of the batch that has it. Entries with the same timestamp as the
    one before are left out, and control batches are ignored. A search for the first record at or
    after a time begins at the last entry of the *offset* index at or before `ceiling`, also if
    timestamps are not in order. Derived data: a missing or damaged index costs reads of batch
    headers, and never changes an answer.
    """

    def __init__(self, base_offset: int, entries: np.ndarray) -> None:
        self._base_offset = base_offset
        self._entries = entries

    @classmethod
    def from_bytes(
        cls, base_offset: int, data: pa.Buffer, offset_index: pa.Buffer | None
    ) -> TimeIndex:
        """Read an index file.

        Args:
            base_offset: the segment's base offset.
            data: the whole file.
            offset_index: the offset index file that was written with it; None does not check the
                checksum.

        Raises:
            ValueError: the file is damaged, or was not written with this offset index.
        """
        if offset_index is None:
            return cls(base_offset, unchecked_entries(data, _ENTRY))
        return cls(base_offset, read_entries(data, _ENTRY, checksum_of(offset_index)))

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield all entries in order."""
        for timestamp_us, relative_offset in self._entries.tolist():
            yield TimestampOffset(timestamp_us, self._base_offset + relative_offset)

    def ceiling(self, timestamp_us: int) -> TimestampOffset | None:
        """Return the first entry whose timestamp is ≥ ``timestamp_us``.

        The first such record is in the batch of this entry or before it, and not before the last
        entry of the offset index at or before that batch. None if all indexed batches are earlier.
        """
        at = int(np.searchsorted(self._entries["timestamp"], timestamp_us, side="left"))
        if at == len(self._entries):
            return None
        entry = self._entries[at]
        return TimestampOffset(
            int(entry["timestamp"]), self._base_offset + int(entry["relative_offset"])
        )


def time_index_bytes(entries: Sequence[tuple[int, int]], offset_index: bytes) -> bytes:
    """Return the content of a time index file; empty without entries.

    Args:
        entries: pairs of timestamp in microseconds and relative offset, both strictly increasing.
        offset_index: content of the offset index file that is written with it.
    """
    return make_entries(_ENTRY, entries, checksum_of(offset_index))
