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
    """The largest timestamp so far, and the first offset of the batch that reached it."""

    timestamp_us: int
    offset: int


class TimeIndex:
    """Sparse map from timestamp to offset for one segment.

    On storage: fixed 12-byte entries, little-endian, ``timestamp i64 (us), relative_offset u32``:
    the largest timestamp before a place, and the first offset of the batch that reached it; both
    strictly increasing; then a checksum that begins with that of the offset index. The places are
    those of the offset index's entries, without those up to which the largest timestamp stood
    still. So the first record that is not earlier than a time lies at or behind the entry before
    it in the *offset* index (`TimeIndex.ceiling`), however often time went back before.
    Control batches do not count. Derived data, as the offset index.
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
            base_offset: of the segment.
            data: the whole file.
            offset_index: the file that was made with it; None where that is not known, and nothing
                is checked.

        Raises:
            ValueError: it is damaged, or was not made with this offset index.
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

        The first such record lies in its batch or before it, and behind the last place of the
        offset index before it. None: all that the index covers is earlier.
        """
        at = int(np.searchsorted(self._entries["timestamp"], timestamp_us, side="left"))
        if at == len(self._entries):
            return None
        entry = self._entries[at]
        return TimestampOffset(
            int(entry["timestamp"]), self._base_offset + int(entry["relative_offset"])
        )


def time_index_bytes(entries: Sequence[tuple[int, int]], offset_index: bytes) -> bytes:
    """Return the file of an index with these entries (timestamp in us, relative offset).

    Args:
        entries: strictly increasing in both; none, no bytes.
        offset_index: the file that was made with it.
    """
    return make_entries(_ENTRY, entries, checksum_of(offset_index))
