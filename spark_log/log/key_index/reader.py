"""Reads the key index of a segment: one small read finds the rows that may have a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.log.files import SegmentName
from spark_log.log.key_index.format import (
    DIRECTORY_DTYPE,
    RUN_DTYPE,
    TRAILER_BYTES,
    Tables,
    Trailer,
    packed_bytes,
    unpack,
    unpack_one,
)
from spark_log.log.segment import PAGE_DTYPE
from spark_log.storage import Store

_END_BYTES: Final = 131_072
"""Bytes at the end of the file that are read first. Those of 10 M records have all tables."""


class Block(NamedTuple):
    """The entries of a block.

    Attributes:
        hashes: uint32, ascending.
        rows: the packed rows.
        row_bits: number of bits of each.
    """

    hashes: np.ndarray
    rows: bytes
    row_bits: int

    def row(self, at: int) -> int:
        """Return the row of an entry."""
        return unpack_one(self.rows, at, self.row_bits)


class KeyIndex:
    """The key index of one segment. Its tables are in memory, the blocks are not.

    Attributes:
        record_count: number of records that have a key.
        row_count: number of rows in the segment.
        tables: directory, pages and runs.
    """

    def __init__(
        self,
        store: Store | None,
        path: str,
        append_id: str | None,
        buffer: pa.Buffer | None = None,
    ) -> None:
        self._store = store
        self._path = path
        self._buffer = buffer
        end = self._end()
        last = end.slice(max(0, end.size - TRAILER_BYTES)).to_pybytes()
        trailer = Trailer.decode(last, PAGE_DTYPE.itemsize)
        if buffer is not None and buffer.size != trailer.file_bytes:
            raise ValueError(f"it has {buffer.size} bytes instead of {trailer.file_bytes}")
        size_bytes = trailer.tables_bytes
        if size_bytes + TRAILER_BYTES <= end.size:
            data = end.slice(end.size - size_bytes - TRAILER_BYTES, size_bytes).to_pybytes()
        else:
            data = self._bytes(trailer.directory_position, size_bytes)
        if append_id is not None:
            trailer.check(data, last, append_id)
        self._trailer = trailer
        self.record_count = trailer.record_count
        self.row_count = trailer.row_count
        self.tables = _tables(data, trailer)
        directory = self.tables.directory
        self._first_hashes = np.ascontiguousarray(directory["first_hash"])
        sizes = map(trailer.block_size, range(len(directory)), directory["gap_bits"].tolist())
        self._positions = np.cumsum([0, *sizes])
        if int(self._positions[-1]) != trailer.directory_position:
            raise ValueError("its directory does not fit its blocks")

    @classmethod
    def open(
        cls, store: Store, directory: str, name: SegmentName, append_id: str | None
    ) -> KeyIndex:
        """Read the tables of an index: by one request, or by two if they are large.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: the name of the segment.
            append_id: the append id of the segment; None does not check the tables.

        Raises:
            NotFoundError: the segment has no key index.
            ValueError: the index is damaged, of another segment, or of another version.
            StorageError: the storage does not answer.
        """
        path = f"{directory}/{name.key_index}"
        return cls(store, path, append_id, store.open_buffer(path) if store.is_mapped else None)

    @classmethod
    def of_buffer(cls, data: pa.Buffer) -> KeyIndex:
        """Return an index that was built in memory (`KeyIndexWriter.build`)."""
        return cls(None, "", None, data)

    @property
    def memory_bytes(self) -> int:
        """Memory of the tables, and of all blocks if no file has them."""
        size_bytes = sum(table.nbytes for table in self.tables)
        if self._store is None and self._buffer is not None:
            size_bytes += self._buffer.size
        return int(size_bytes + self._first_hashes.nbytes + self._positions.nbytes)

    def rows(self, key_hash: int) -> Iterator[int]:
        """Yield the rows whose keys have a hash, the newest first. Reads one block, as a rule.

        Args:
            key_hash: the murmur2 hash of the key.

        Raises:
            NotFoundError: the index was deleted since.
            ValueError: a block is damaged.
            StorageError: the storage does not answer.
        """
        wanted = np.uint32(key_hash)  # an int would convert the whole array
        number = int(np.searchsorted(self._first_hashes, wanted, "right")) - 1
        while number >= 0:
            block = self._block(number)
            low = int(np.searchsorted(block.hashes, wanted, "left"))
            high = int(np.searchsorted(block.hashes, wanted, "right"))
            for at in range(high - 1, low - 1, -1):
                yield block.row(at)
            if low:
                return
            number -= 1  # the block before may end with the same hash

    def run_of(self, row: int) -> tuple[int, int]:
        """Return leader epoch and timestamp type of a row."""
        runs = self.tables.runs
        at = int(np.searchsorted(runs["first_row"], np.uint32(row), "right")) - 1
        return int(runs["leader_epoch"][at]), int(runs["timestamp_type"][at])

    def entries(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield hashes and rows of each block, to check them.

        Raises:
            ValueError: a block is damaged.
            StorageError: the storage does not answer.
        """
        for number in range(len(self.tables.directory)):
            block = self._block(number)
            yield block.hashes, unpack(block.rows, len(block.hashes), block.row_bits)

    def _block(self, number: int) -> Block:
        start, end = self._positions[number : number + 2].tolist()
        data = self._bytes(start, end - start)
        entry = self.tables.directory[number]
        if len(data) != end - start or extend(0, data) != entry["crc32c"]:
            raise ValueError(f"the block of keys at position {start} is damaged")
        count, gap_bits = self._trailer.entries_of(number), int(entry["gap_bits"])
        behind = packed_bytes(count, gap_bits)
        hashes = np.cumsum(unpack(data[:behind], count, gap_bits), dtype=np.uint64)
        hashes = (hashes + np.uint64(entry["first_hash"])).astype(np.uint32)
        return Block(hashes, data[behind:], self._trailer.row_bits)

    def _end(self) -> pa.Buffer:
        if self._buffer is not None:
            return self._buffer
        assert self._store is not None
        return self._store.read_tail(self._path, _END_BYTES)

    def _bytes(self, position: int, size_bytes: int) -> bytes:
        if self._buffer is not None:
            data = self._buffer.slice(position, size_bytes)
        else:
            assert self._store is not None
            data = self._store.read(self._path, position, size_bytes)
        return bytes(data.to_pybytes())


def _tables(data: bytes, trailer: Trailer) -> Tables:
    directory = np.frombuffer(data, DIRECTORY_DTYPE, trailer.block_count)
    position = directory.nbytes
    pages = np.frombuffer(data, PAGE_DTYPE, trailer.page_count, position)
    runs = np.frombuffer(data, RUN_DTYPE, trailer.run_count, position + pages.nbytes)
    return Tables(directory, pages, runs)
