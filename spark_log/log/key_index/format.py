"""The bytes of a key index.

On storage::

    blocks       each `BLOCK_ROWS` hashes and rows; the last one may have fewer
    directory    an entry of `DIRECTORY_DTYPE` for each block
    pages        the pages of the segment's columns, to read one row (`PAGE_DTYPE`)
    runs         the leader epoch and timestamp type of rows, an entry of `RUN_DTYPE` for each run
    56 bytes     the trailer: position of the directory, numbers of blocks, pages, runs, records and
                 rows, bits of a row, size of the file, CRC-32C, ``SLKX``, version

An entry is the hash of a key, and the number of the row that has it. Entries are in the order of
hashes, and of rows where hashes are equal. The hash is the murmur2 of the partitioner, 32 bits:
keys are compared anyway, so that equal hashes of different keys cost reading a row. In a block, the
differences of neighbouring hashes come first, in the fewest bits that hold the largest (the first
is 0: the directory has the hash), then, from the next byte on, the rows. With n rows in a segment
the two take about 32 + 4 bits, whatever n is.

The checksum of the trailer covers directory, pages, runs, the trailer and the append id of the
segment, so an index fits one file alone. Each block has its own checksum in the directory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from google_crc32c import extend

MIN_INDEXED_RECORDS: Final = 4_096
"""A segment with fewer records has no key index: its keys are read at once."""

BLOCK_ROWS: Final = 2_048
"""Number of entries in a block. One is read and decoded for a look-up: 9 KB."""

DIRECTORY_DTYPE: Final = np.dtype([("first_hash", "<u4"), ("gap_bits", "<u1"), ("crc32c", "<u4")])

RUN_DTYPE: Final = np.dtype(
    [("first_row", "<u4"), ("leader_epoch", "<i4"), ("timestamp_type", "<u1")]
)

_TRAILER: Final = struct.Struct("<QIIIIIIQI4sI")
TRAILER_BYTES: Final = _TRAILER.size
_MAGIC: Final = b"SLKX"
_VERSION: Final = 2
"""Version 1 had copies of the records. An index of it is not used, as if it were missing."""

_SEALED_BYTES: Final = struct.calcsize("<QIIIIIIQ")


class Tables(NamedTuple):
    """The tables behind the blocks.

    Attributes:
        directory: the blocks, as an array of `DIRECTORY_DTYPE`.
        pages: the pages, as an array of `PAGE_DTYPE`.
        runs: runs of rows of one leader epoch and timestamp type, as an array of `RUN_DTYPE`.
    """

    directory: np.ndarray
    pages: np.ndarray
    runs: np.ndarray


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last bytes of the file.

    Attributes:
        directory_position: position of the directory.
        block_count: number of blocks.
        page_count: number of pages.
        run_count: number of runs.
        record_count: number of entries: records that have a key.
        row_count: number of rows in the segment.
        row_bits: number of bits of a row in a block.
        file_bytes: size of the file.
    """

    directory_position: int
    block_count: int
    page_count: int
    run_count: int
    record_count: int
    row_count: int
    row_bits: int
    file_bytes: int

    @property
    def tables_bytes(self) -> int:
        """Size of directory, pages and runs."""
        return self.file_bytes - self.directory_position - TRAILER_BYTES

    def block_size(self, number: int, gap_bits: int) -> int:
        """Return the size of a block.

        Args:
            number: the block's number.
            gap_bits: number of bits of a difference of hashes in it.
        """
        count = self.entries_of(number)
        return packed_bytes(count, gap_bits) + packed_bytes(count, self.row_bits)

    def entries_of(self, number: int) -> int:
        """Return the number of entries in a block."""
        return min(BLOCK_ROWS, self.record_count - number * BLOCK_ROWS)

    def encode(self, tables: bytes, append_id: str) -> bytes:
        """Return the trailer's bytes.

        Args:
            tables: the bytes of directory, pages and runs.
            append_id: the append id of the segment.
        """
        fields = (
            self.directory_position,
            self.block_count,
            self.page_count,
            self.run_count,
            self.record_count,
            self.row_count,
            self.row_bits,
            self.file_bytes,
        )
        sealed = _TRAILER.pack(*fields, 0, _MAGIC, _VERSION)[:_SEALED_BYTES]
        return _TRAILER.pack(*fields, _checksum(tables, sealed, append_id), _MAGIC, _VERSION)

    @classmethod
    def decode(cls, data: bytes, page_bytes: int) -> Trailer:
        """Return the trailer in the last bytes of a file. Its checksum is not checked yet.

        Args:
            data: the last bytes of the file.
            page_bytes: the size of an entry of the pages.

        Raises:
            ValueError: these are not the last bytes of a key index.
        """
        if len(data) < TRAILER_BYTES:
            raise ValueError(f"{len(data)} bytes are not a key index")
        *fields, _, magic, version = _TRAILER.unpack(data[-TRAILER_BYTES:])
        if magic != _MAGIC:
            raise ValueError("it does not end like a key index")
        if version != _VERSION:
            raise ValueError(f"it is a key index of version {version}, expected {_VERSION}")
        trailer = cls(*fields)
        expected = (
            trailer.block_count * DIRECTORY_DTYPE.itemsize
            + trailer.page_count * page_bytes
            + trailer.run_count * RUN_DTYPE.itemsize
        )
        blocks = -(-trailer.record_count // BLOCK_ROWS)
        if trailer.tables_bytes != expected or trailer.block_count != blocks:
            raise ValueError("its trailer contradicts itself")
        return trailer

    def check(self, tables: bytes, trailer: bytes, append_id: str) -> None:
        """Check that tables and trailer are whole, and those of a segment.

        Args:
            tables: the bytes of directory, pages and runs.
            trailer: the last bytes of the file.
            append_id: the append id of the segment.

        Raises:
            ValueError: they are damaged, or of another segment's index.
        """
        trailer = trailer[-TRAILER_BYTES:]
        expected = _TRAILER.unpack(trailer)[-3]
        actual = _checksum(tables, trailer[:_SEALED_BYTES], append_id)
        if actual != expected:
            raise ValueError(
                f"checksum of the directory of keys is {actual:#010x}, expected {expected:#010x}: "
                f"it is damaged, or of another segment"
            )


def _checksum(tables: bytes, sealed: bytes, append_id: str) -> int:
    return int(extend(extend(extend(0, append_id.encode()), sealed), tables))


def packed_bytes(count: int, bits: int) -> int:
    """Return the size of packed numbers."""
    return (count * bits + 7) // 8


def pack(numbers: np.ndarray, bits: int) -> bytes:
    """Return numbers with a fixed number of bits each, the highest bit first.

    Args:
        numbers: uint32.
        bits: number of bits of each, from 1 to 32.
    """
    flags = np.unpackbits(numbers.astype(">u4").view(np.uint8)).reshape(-1, 32)
    return np.packbits(flags[:, 32 - bits :]).tobytes()


def unpack(data: bytes, count: int, bits: int) -> np.ndarray:
    """Return the numbers of `pack`, uint32.

    Args:
        data: the packed numbers.
        count: how many they are.
        bits: number of bits of each.
    """
    flags = np.zeros((count, 32), np.uint8)
    packed = np.frombuffer(data, np.uint8)
    flags[:, 32 - bits :] = np.unpackbits(packed, count=count * bits).reshape(count, bits)
    return np.packbits(flags).view(">u4").astype(np.uint32)


def unpack_one(data: bytes, at: int, bits: int) -> int:
    """Return one of the numbers of `pack`.

    Args:
        data: the packed numbers.
        at: its index.
        bits: number of bits of each.
    """
    first, last = at * bits, (at + 1) * bits
    whole = int.from_bytes(data[first // 8 : (last + 7) // 8], "big")
    return whole >> (-last % 8) & ((1 << bits) - 1)
