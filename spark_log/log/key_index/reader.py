"""Reads the key index of a segment: one small read finds the record of a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import extend
from pyarrow import ipc

from spark_log.log.files import SegmentName
from spark_log.log.key_index.format import DIRECTORY_DTYPE, SCHEMA, TRAILER_BYTES, Trailer
from spark_log.log.segment import LogBatch
from spark_log.record import RECORD_SCHEMA, ints_of
from spark_log.storage import Store

_END_BYTES: Final = 131_072
"""Bytes at the end of the file that are read first. Those of 160 MB of records have the whole
directory."""


class KeyEntry(NamedTuple):
    """The record of a key in an index.

    Attributes:
        offset: the record's offset.
        record: the record; None if it is too large for the index, and has to be read.
    """

    offset: int
    record: LogBatch | None


class KeyIndex:
    """The key index of one segment. Its directory is in memory, the blocks are not.

    Attributes:
        record_count: number of records that have a key.
    """

    def __init__(
        self, store: Store, directory: str, name: SegmentName, append_id: str | None
    ) -> None:
        """Read the directory: by one request, or by two if it is large.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: the name of the segment.
            append_id: the append id of the segment; None does not check the directory.

        Raises:
            NotFoundError: the segment has no key index.
            ValueError: the index is damaged, or of another segment.
            StorageError: the storage does not answer.
        """
        self._store = store
        self._path = f"{directory}/{name.key_index}"
        self._base_offset = name.base_offset
        self._buffer: pa.Buffer | None = store.open_buffer(self._path) if store.is_mapped else None
        end = store.read_tail(self._path, _END_BYTES) if self._buffer is None else self._buffer
        last = end.slice(max(0, end.size - TRAILER_BYTES)).to_pybytes()
        trailer = Trailer.decode(last)
        if self._buffer is not None and self._buffer.size != trailer.file_bytes:
            raise ValueError(f"it has {self._buffer.size} bytes instead of {trailer.file_bytes}")
        size_bytes = trailer.block_count * DIRECTORY_DTYPE.itemsize
        if size_bytes + TRAILER_BYTES <= end.size:
            data = end.slice(end.size - size_bytes - TRAILER_BYTES, size_bytes)
        else:
            data = store.read(self._path, trailer.directory_position, size_bytes)
        directory_bytes = data.to_pybytes()
        if append_id is not None:
            trailer.check(directory_bytes, last, append_id)
        self.record_count = trailer.record_count
        entries = np.frombuffer(directory_bytes, DIRECTORY_DTYPE)
        self._first_hashes = np.ascontiguousarray(entries["first_hash"])
        self._entries = entries

    @property
    def memory_bytes(self) -> int:
        """Memory of the directory."""
        return int(self._first_hashes.nbytes + self._entries.nbytes)

    def find(self, key: bytes, key_hash: int, start_offset: int) -> KeyEntry | None:
        """Return the newest record of a key; None if the segment has none. Reads one block.

        Args:
            key: the key's bytes.
            key_hash: the murmur2 hash of the key.
            start_offset: records before it do not count.

        Raises:
            NotFoundError: the index was deleted since.
            ValueError: the block is damaged.
            StorageError: the storage does not answer.
        """
        number = int(np.searchsorted(self._first_hashes, np.uint32(key_hash), "right")) - 1
        if number < 0:
            return None
        rows = self._read(number)
        hashes = ints_of(rows.column("hash"), np.uint32)
        wanted = np.uint32(key_hash)  # an int would convert the whole array
        low = int(np.searchsorted(hashes, wanted, "left"))
        high = int(np.searchsorted(hashes, wanted, "right"))
        keys = rows.column("key")
        for at in range(high - 1, low - 1, -1):
            if keys[at].as_py() == key:
                offset = int(rows.column("offset")[at].as_py())
                if offset < start_offset:
                    return None
                return _entry(rows.slice(at, 1), offset, self._base_offset)
        return None

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each block (`format.SCHEMA`), to check them.

        Raises:
            ValueError: a block is damaged.
            StorageError: the storage does not answer.
        """
        yield from map(self._read, range(len(self._entries)))

    def _read(self, number: int) -> pa.RecordBatch:
        entry = self._entries[number]
        position, size_bytes = int(entry["position"]), int(entry["size_bytes"])
        if self._buffer is not None:
            data = self._buffer.slice(position, size_bytes)
        else:
            data = self._store.read(self._path, position, size_bytes)
        actual = extend(0, memoryview(data).tobytes())
        if data.size != size_bytes or actual != entry["crc32c"]:
            raise ValueError(f"the block of keys at position {position} is damaged")
        raw = pa.decompress(data, int(entry["raw_bytes"]), "zstd")
        try:
            return ipc.read_record_batch(raw, SCHEMA)
        except pa.ArrowException as error:
            raise ValueError(f"the block of keys at position {position}: {error}") from None


def _entry(row: pa.RecordBatch, offset: int, base_offset: int) -> KeyEntry:
    if not row.column("is_stored")[0].as_py():
        return KeyEntry(offset, None)
    record = LogBatch(
        offset,
        row.select(RECORD_SCHEMA.names),
        row.column("timestamp_type")[0].as_py(),
        row.column("leader_epoch")[0].as_py(),
        is_control=False,
        segment_base_offset=base_offset,
        stored_bytes=int(row.nbytes),
    )
    return KeyEntry(offset, record)
