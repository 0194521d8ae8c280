"""Which records are the last of their key: exact, whatever the number of keys, in bounded memory.

Kafka's cleaner keeps hashes in a map of fixed size and cleans as far as that reaches
(``OffsetMap``, ``SkimpyOffsetMap``). Here keys are compared themselves, and where they need more
memory than is allowed they are spread over temporary files by their hash, of which one at a time is
looked at.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from spark_log.record.murmur2 import murmur2

_ROW_BYTES = 96
"""What a key costs beside its own bytes: its number, its place in the hash table, their slack."""

_MAX_BUCKETS = 256
"""Temporary files that are open at once; what of one does not fit is looked at part by part."""

_MAX_PARTS = 256
"""Each costs a look at all of the bucket."""

_MAX_BUCKET_BYTES = 2**30
"""One Arrow array of keys holds 2 GiB."""

_SCHEMA = pa.schema({"key": pa.binary(), "hash": pa.uint32(), "row": pa.int64()}.items())


class OffsetMap:
    """Takes in the keys of a log in offset order; tells of each row whether it is its key's last.

    Rows are numbered from 0 in the order in which they come. Use as a context manager: what lies
    in temporary files goes with it.
    """

    def __init__(self, row_count: int, key_bytes: int, *, memory_bytes: int) -> None:
        """Get ready.

        Args:
            row_count: how many rows will come, about.
            key_bytes: how many bytes their keys have together, about: who reads compressed files
                cannot know.
            memory_bytes: what the keys may take at once; more is written to temporary files
                (in `tempfile.gettempdir`).
        """
        needed_bytes = key_bytes + _ROW_BYTES * row_count
        self._bucket_bytes = max(1, min(memory_bytes, _MAX_BUCKET_BYTES))
        self._bucket_count = min(_MAX_BUCKETS, max(1, -(-needed_bytes // self._bucket_bytes)))
        self._buckets: dict[int, _Bucket] = {}
        self._pieces: list[pa.RecordBatch] = []
        self._piece_bytes = 0
        self._next_row = 0
        self._kept: np.ndarray | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        self._kept = None

    def add(self, keys: pa.Array, *, counts: bool = True) -> None:
        """Take in the next rows.

        Args:
            keys: binary; a record without a key is nobody's last.
            counts: whether they are records of users: of others none is kept or replaced by them.
        """
        first, self._next_row = self._next_row, self._next_row + len(keys)
        if not counts or keys.null_count == len(keys):
            return
        rows = np.arange(first, self._next_row)
        if keys.null_count:
            rows = rows[keys.is_valid().to_numpy(zero_copy_only=False)]
            keys = keys.drop_null()
        batch = _batch(keys, murmur2(keys), rows)
        if self._bucket_count > 1:
            self._spread(batch)
            return
        self._pieces.append(batch)
        self._piece_bytes += _needed_bytes(batch)
        if self._piece_bytes > self._bucket_bytes:
            self._bucket_count = _MAX_BUCKETS
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                self._spread(piece)

    def _spread(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files of their buckets."""
        buckets = batch.column("hash").to_numpy() % np.uint32(self._bucket_count)
        order = np.argsort(buckets.astype(np.uint8), kind="stable")
        sorted_batch = batch.take(_array(order, pa.int64()))
        ends = np.cumsum(np.bincount(buckets, minlength=self._bucket_count))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                if bucket not in self._buckets:
                    self._buckets[bucket] = _Bucket()
                self._buckets[bucket].write(sorted_batch.slice(start, end - start))
            start = end

    def kept(self, first_row: int, count: int) -> np.ndarray:
        """Return of each of some rows whether it is the last of its key, as bool.

        Once all rows have come in.
        """
        if self._kept is None:
            self._kept = self._find()
        first_byte = first_row // 8
        packed = self._kept[first_byte : (first_row + count + 7) // 8]
        bits = np.unpackbits(packed, bitorder="little")
        skipped = first_row - 8 * first_byte
        return bits[skipped : skipped + count].view(np.bool_)

    def _find(self) -> np.ndarray:
        """Return a bit for each row; in a file, since there may be more rows than memory."""
        with tempfile.TemporaryFile() as file:
            bits = np.memmap(file, np.uint8, "w+", shape=(self._next_row // 8 + 1,))
        for keys, hashes, rows in self._groups():
            last = rows[_last_of_each(keys, hashes)]
            last.sort()
            bytes_of = last >> 3
            starts = np.flatnonzero(np.diff(bytes_of, prepend=-1))
            bits[bytes_of[starts]] |= np.bitwise_or.reduceat(
                (1 << (last & 7)).astype(np.uint8), starts
            )
        return bits

    def _groups(self) -> Iterator[tuple[pa.Array, np.ndarray, np.ndarray]]:
        """Yield keys, their hashes and rows; all that have one key together, rows in order."""
        if self._bucket_count == 1:
            pieces, self._pieces = self._pieces, []
            if pieces:
                yield _columns(pa.Table.from_batches(pieces))
            return
        while self._buckets:
            _, bucket = self._buckets.popitem()
            with closing(bucket):
                yield from self._parts(bucket.reader())

    def _parts(
        self, reader: ipc.RecordBatchFileReader
    ) -> Iterator[tuple[pa.Array, np.ndarray, np.ndarray]]:
        """Yield a bucket; in parts, by other bits of the hashes, where it is more than fits."""
        numbers = range(reader.num_record_batches)
        needed_bytes = sum(_needed_bytes(reader.get_batch(number)) for number in numbers)
        rows = sum(reader.get_batch(number).num_rows for number in numbers)
        count = min(-(-needed_bytes // self._bucket_bytes), rows, _MAX_PARTS)
        if count <= 1:
            yield _columns(reader.read_all())
            return
        for part in range(count):
            pieces = []
            for number in numbers:
                batch = reader.get_batch(number)
                others = batch.column("hash").to_numpy() // np.uint32(self._bucket_count)
                pieces.append(batch.take(pa.array(np.flatnonzero(others % count == part))))
            table = pa.Table.from_batches(pieces)
            if table.num_rows:
                yield _columns(table)


class _Bucket:
    """Rows in a temporary file without a name: it goes with the process, however that ends."""

    def __init__(self) -> None:
        self._descriptor, path = tempfile.mkstemp(prefix="spark-log-compaction-")
        try:
            self._sink = pa.OSFile(path, "wb")
        finally:
            os.unlink(path)
        self._writer = ipc.new_file(self._sink, _SCHEMA)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(rows)

    def reader(self) -> ipc.RecordBatchFileReader:
        """Return what reads all rows; no more are written."""
        self._writer.close()
        self._sink.close()
        mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        return ipc.open_file(pa.py_buffer(mapped))

    def close(self) -> None:
        """Give up the file; what was read of it stays valid."""
        self._sink.close()
        os.close(self._descriptor)


def _needed_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.column("key").nbytes + _ROW_BYTES * batch.num_rows)


def _last_of_each(keys: pa.Array, hashes: np.ndarray) -> np.ndarray:
    """Return the index of the last of each key.

    Sorted by hash and place, equal keys are neighbours, unless two keys have one hash.
    """
    places = np.arange(len(keys), dtype=np.uint64)
    order = np.sort(hashes.astype(np.uint64) << np.uint64(32) | places)
    sorted_hashes, order = (order >> np.uint64(32)).astype(np.uint32), order.astype(np.uint32)
    is_followed = np.zeros(len(keys), np.bool_)  # by another record of its key
    follows = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1])
    before, behind = (keys.take(_array(order[at], pa.uint32())) for at in (follows, follows + 1))
    is_same = pc.equal(before, behind).to_numpy(zero_copy_only=False)
    is_followed[follows[is_same]] = True
    strange = np.isin(sorted_hashes, sorted_hashes[follows[~is_same]])
    last = order[~is_followed & ~strange]
    if not strange.any():
        return last
    doubtful = np.sort(order[strange])
    encoded = keys.take(_array(doubtful, pa.uint32())).dictionary_encode()
    last_of = np.empty(len(encoded.dictionary), np.uint32)
    last_of[encoded.indices.to_numpy()] = doubtful  # of those with one index the last one stays
    return np.concatenate([last, last_of])


def _columns(table: pa.Table) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    keys = table.column("key").combine_chunks()
    return keys, table.column("hash").to_numpy(), table.column("row").to_numpy()


def _batch(keys: pa.Array, hashes: np.ndarray, rows: np.ndarray) -> pa.RecordBatch:
    columns = [keys, _array(hashes, pa.uint32()), _array(rows, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _array(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
