"""Writes the key index of a segment, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Final

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.errors import AlreadyExistsError
from spark_log.log.files import SegmentName
from spark_log.log.key_index.format import (
    BLOCK_BYTES,
    DIRECTORY_DTYPE,
    MIN_INDEXED_RECORDS,
    SCHEMA,
    TRAILER_BYTES,
    Trailer,
)
from spark_log.log.key_index.rows import index_rows
from spark_log.record import (
    BatchHeader,
    TemporaryRows,
    int_array,
    ints_of,
    record_sizes,
)
from spark_log.storage import Store, storage_errors

_MEMORY_BYTES: Final = 67_108_864
"""Size of the rows that are held in memory. More are written to temporary files."""

_BUCKETS: Final = 64
"""Number of temporary files; each has the rows of a range of hashes."""

_SPREAD_BYTES: Final = 16_777_216
"""Size of the rows that are written to temporary files together."""

_ROW_BYTES: Final = 32
"""Size of a row in a block without its key, value and headers."""


class KeyIndexWriter:
    """Collects the records of a segment, and writes its key index.

    Rows are sorted in memory. If there are too many, they are first distributed to temporary files
    by their hashes, and one file is sorted at a time. `discard` deletes them.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        name: SegmentName,
        *,
        memory_bytes: int = _MEMORY_BYTES,
        min_records: int = MIN_INDEXED_RECORDS,
    ) -> None:
        """Begin without records. Accesses no storage yet.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: the name of the segment.
            memory_bytes: size of the rows that are held in memory.
            min_records: a segment with fewer records gets no index.
        """
        self._store = store
        self._directory = directory
        self._name = name
        self._memory_bytes = memory_bytes
        self._min_records = min_records
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._buckets: dict[int, TemporaryRows] = {}
        self._failure: OSError | None = None
        self.record_count = 0

    def discard(self) -> None:
        """Delete the temporary files. An index that was put stays. Harmless when called twice."""
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        self._held.clear()

    def add(self, records: pa.RecordBatch, headers: Sequence[BatchHeader]) -> None:
        """Add the next batches of the segment. Control records and null keys are left out.

        An error of the temporary files is raised by `put`.

        Args:
            records: the rows of all batches, with the columns of `RECORD_SCHEMA` and
                ``offset_delta``.
            headers: the headers of the batches, with offset deltas relative to the segment's base.
        """
        if self._failure is not None:
            return
        rows = index_rows(records, headers, self._name.base_offset)
        if not rows.num_rows:
            return
        self.record_count += rows.num_rows
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes > (_SPREAD_BYTES if self._buckets else self._memory_bytes):
            try:
                self._spread()
            except OSError as error:  # `put` raises it: the segment can do without its index
                self._failure = error
                self.discard()

    def put(self, append_id: str) -> bool:
        """Write the index beside its segment, unless one exists; return whether there is one.

        Args:
            append_id: the append id of the segment.

        Raises:
            OSError: a temporary file could not be written.
            StorageError: the index cannot be written.
        """
        if self.record_count < self._min_records:
            return False
        if self._failure is not None:
            raise self._failure
        with storage_errors(self._directory), self._store.stage(self._directory) as staged:
            self._write(staged.sink, append_id)
            staged.seal()
            with suppress(AlreadyExistsError):
                path = f"{self._directory}/{self._name.key_index}"
                self._store.put_if_absent(path, staged)
        return True

    def _write(self, sink: pa.NativeFile, append_id: str) -> None:
        codec = pa.Codec("zstd", compression_level=1)
        entries: list[tuple[int, int, int, int, int]] = []
        position = 0
        for rows in self._sorted():
            hashes = ints_of(rows.column("hash"), np.uint32)
            for start, end in _cuts(rows, hashes):
                raw = rows.slice(start, end - start).serialize()
                data = codec.compress(raw, asbytes=True)
                sink.write(data)
                entries.append((int(hashes[start]), len(data), position, raw.size, extend(0, data)))
                position += len(data)
        directory = np.array(entries, DIRECTORY_DTYPE).tobytes()
        file_bytes = position + len(directory) + TRAILER_BYTES
        trailer = Trailer(position, len(entries), self.record_count, file_bytes)
        sink.write(directory + trailer.encode(directory, append_id))

    def _sorted(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the order of their hashes, in pieces that begin with another hash."""
        if not self._buckets:
            held, self._held = self._held, []
            if held:
                yield _by_hash(pa.concat_batches(held))
            return
        self._spread()
        for number in sorted(self._buckets):
            with closing(self._buckets.pop(number)) as bucket:
                (rows,) = bucket.reader().read_all().combine_chunks().to_batches()
                yield _by_hash(rows)

    def _spread(self) -> None:
        """Write the held rows to the temporary files of their buckets.

        Each piece by itself: a permutation of rows that fit into the processor's cache is faster.
        """
        pieces, self._held, self._held_bytes = self._held, [], 0
        for rows in pieces:
            buckets = ints_of(rows.column("hash"), np.uint32) // np.uint32(2**32 // _BUCKETS)
            order = np.argsort(buckets.astype(np.uint8), kind="stable")
            in_order = rows.take(int_array(order, pa.int64()))
            start = 0
            for number, count in enumerate(np.bincount(buckets, minlength=_BUCKETS).tolist()):
                if count:
                    if number not in self._buckets:
                        self._buckets[number] = TemporaryRows(SCHEMA, "key-index")
                    self._buckets[number].write(in_order.slice(start, count))
                start += count


def _by_hash(rows: pa.RecordBatch) -> pa.RecordBatch:
    order = np.argsort(ints_of(rows.column("hash"), np.uint32), kind="stable")
    return rows.take(int_array(order, pa.int64()))


def _cuts(rows: pa.RecordBatch, hashes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each block. Rows of one hash stay in one block."""
    ends = np.cumsum(record_sizes(rows) + _ROW_BYTES)
    start, count = 0, len(hashes)
    written = 0
    while start < count:
        end = max(start + 1, int(np.searchsorted(ends, written + BLOCK_BYTES, "right")))
        end = int(np.searchsorted(hashes, hashes[end - 1], "right"))
        yield start, end
        start, written = end, int(ends[end - 1])
