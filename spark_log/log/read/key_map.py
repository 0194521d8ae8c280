"""The keys of one segment in memory: their hashes, and the offsets of their records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_log.log.read.segment_batches import Batches
from spark_log.record import bools_of, murmur2_of_keys


class KeyMap:
    """Hashes and offsets of all records of a segment that have a key, 8 bytes for each.

    Control records are left out. Records of aborted transactions are not: the read of a record
    shows that it was aborted.
    """

    def __init__(self, base_offset: int, hashes: np.ndarray, deltas: np.ndarray) -> None:
        """Hold the records of a segment.

        Args:
            base_offset: the segment's base offset.
            hashes: uint32, murmur2 of each key, in offset order.
            deltas: uint32, offsets relative to the base offset, ascending.
        """
        order = np.argsort(hashes, kind="stable")
        self._base_offset = base_offset
        self._hashes = hashes[order]
        self._deltas = deltas[order]

    @classmethod
    def of_batches(cls, base_offset: int, batches: Batches) -> KeyMap:
        """Return the map of a segment.

        Args:
            base_offset: the segment's base offset.
            batches: all batches of the segment, with the column ``key`` at least.
        """
        hashes, deltas = [np.empty(0, np.uint32)], [np.empty(0, np.uint32)]
        for batch, _ in batches:
            if batch is None or batch.is_control:
                continue
            keys = batch.records.column("key")
            offsets = batch.offsets() - base_offset
            if keys.null_count:
                offsets = offsets[bools_of(keys.is_valid())]
                keys = keys.drop_null()
            hashes.append(murmur2_of_keys(keys))
            deltas.append(offsets.astype(np.uint32))
        return cls(base_offset, np.concatenate(hashes), np.concatenate(deltas))

    @property
    def record_count(self) -> int:
        """Number of records that have a key."""
        return len(self._hashes)

    @property
    def memory_bytes(self) -> int:
        """Memory of the map."""
        return int(self._hashes.nbytes + self._deltas.nbytes)

    def offsets(self, key_hash: int, start_offset: int, end_offset: float) -> Iterator[int]:
        """Yield the offsets of records whose keys have a hash, the newest first.

        Args:
            key_hash: murmur2 of the key.
            start_offset: the first offset to be returned.
            end_offset: the offset after the last to be returned.
        """
        wanted = np.uint32(key_hash)  # an int would convert the whole array
        low = int(np.searchsorted(self._hashes, wanted, "left"))
        high = int(np.searchsorted(self._hashes, wanted, "right"))
        for delta in self._deltas[low:high][::-1].tolist():
            if start_offset <= (offset := self._base_offset + delta) < end_offset:
                yield offset
