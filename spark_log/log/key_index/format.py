"""The bytes of a key index.

On storage::

    blocks       each one Arrow IPC message with a record batch of `SCHEMA`, compressed by zstd
    directory    an entry of `DIRECTORY_DTYPE` for each block
    40 bytes     the trailer: position of the directory, number of blocks, number of records,
                 size of the file, CRC-32C, ``SLKX``, version

Rows are in the order of the hashes of their keys, and of offsets where hashes are equal. Rows of
one hash are in one block. The hash is the murmur2 of the partitioner: keys are compared anyway, so
that equal hashes of different keys cost a comparison, and no second hash is needed. The checksum
of the trailer covers the directory, the trailer and the append id of the segment, so an index
fits one file alone. Each block has its own checksum in the directory.

A record whose value and headers are larger than `MAX_STORED_BYTES` is not in the index: its row
has only key and offset, and the record is read from the segment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.record import RECORD_SCHEMA

MIN_INDEXED_RECORDS: Final = 4_096
"""A segment with fewer records has no key index: its keys are read at once."""

MAX_STORED_BYTES: Final = 4_096
"""Maximum size of the value and headers of a record that is stored in the index."""

BLOCK_BYTES: Final = 32_768
"""Approximate size of a block before compression."""

SCHEMA: Final = pa.schema(
    [
        pa.field("hash", pa.uint32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("is_stored", pa.bool_(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The rows of a block."""

DIRECTORY_DTYPE: Final = np.dtype(
    [
        ("first_hash", "<u4"),
        ("size_bytes", "<u4"),
        ("position", "<u8"),
        ("raw_bytes", "<u4"),
        ("crc32c", "<u4"),
    ]
)

_TRAILER: Final = struct.Struct("<QIQQI4sI")
TRAILER_BYTES: Final = _TRAILER.size
_MAGIC: Final = b"SLKX"
_VERSION: Final = 1
_SEALED_BYTES: Final = struct.calcsize("<QIQQ")


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last bytes of the file.

    Attributes:
        directory_position: position of the directory.
        block_count: number of blocks.
        record_count: number of rows in all blocks.
        file_bytes: size of the file.
    """

    directory_position: int
    block_count: int
    record_count: int
    file_bytes: int

    def encode(self, directory: bytes, append_id: str) -> bytes:
        """Return the trailer's bytes.

        Args:
            directory: the bytes of the directory.
            append_id: the append id of the segment.
        """
        fields = self.directory_position, self.block_count, self.record_count, self.file_bytes
        sealed = _TRAILER.pack(*fields, 0, _MAGIC, _VERSION)[:_SEALED_BYTES]
        checksum = _checksum(directory, sealed, append_id)
        return _TRAILER.pack(*fields, checksum, _MAGIC, _VERSION)

    @classmethod
    def decode(cls, data: bytes) -> Trailer:
        """Return the trailer in the last bytes of a file. Its checksum is not checked yet.

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
        directory_bytes = trailer.block_count * DIRECTORY_DTYPE.itemsize
        end = trailer.directory_position + directory_bytes + TRAILER_BYTES
        if end != trailer.file_bytes:
            raise ValueError("its trailer contradicts itself")
        return trailer

    def check(self, directory: bytes, trailer: bytes, append_id: str) -> None:
        """Check that directory and trailer are whole, and those of a segment.

        Args:
            directory: the bytes of the directory.
            trailer: the last bytes of the file.
            append_id: the append id of the segment.

        Raises:
            ValueError: they are damaged, or of another segment's index.
        """
        trailer = trailer[-TRAILER_BYTES:]
        expected = _TRAILER.unpack(trailer)[4]
        actual = _checksum(directory, trailer[:_SEALED_BYTES], append_id)
        if actual != expected:
            raise ValueError(
                f"checksum of the directory of keys is {actual:#010x}, expected {expected:#010x}: "
                f"it is damaged, or of another segment"
            )


def _checksum(directory: bytes, sealed: bytes, append_id: str) -> int:
    return int(extend(extend(extend(0, append_id.encode()), sealed), directory))
