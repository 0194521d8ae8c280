"""The last record of each key: exact for any number of keys, in bounded memory.

Kafka's cleaner keeps the hashes of keys in a map of fixed size, and cleans until the map is full
(``OffsetMap``, ``SkimpyOffsetMap``). spark-log compares the keys themselves. If they need more
memory than allowed, they are distributed to temporary files by their hash, and one file is read at
a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import TemporaryRows, bools_of, int_array, ints_of, murmur2_of_keys

_ROW_BYTES = 96
"""Memory for a key in addition to its own bytes: row number, hash and temporary arrays."""

_MAX_BUCKETS = 256
"""Maximum number of temporary files. A bucket that is too large is read in parts."""

_MAX_PARTS = 256
"""Maximum number of parts: each needs a pass over the whole bucket."""

_SPREAD_BYTES = 16_777_216
"""Memory of the rows that are written to temporary files together: each file gets a part of them,
and small parts cost more than their rows."""

_MAX_BUCKET_BYTES = 2**30
"""Maximum size of a bucket: an Arrow array of keys can have up to 2 GiB."""

_SCHEMA = pa.schema({"key": pa.binary(), "hash": pa.uint32(), "row": pa.int64()}.items())


class OffsetMap:
    """The keys of a log, added in offset order. It finds the rows that are the last of their key.

    Rows are numbered from 0 in the order in which they are added. The map is a context manager; the
    end of the ``with`` block deletes the temporary files.
    """

    def __init__(self, row_count: int, key_bytes: int, *, memory_bytes: int) -> None:
        """Create an empty map.

        Args:
            row_count: approximate number of rows that will be added.
            key_bytes: approximate size of all their keys. In compressed files the true size is not
                known.
            memory_bytes: maximum memory of the keys; if they need more, they are written to
                temporary files (in `tempfile.gettempdir`).
        """
        needed_bytes = key_bytes + _ROW_BYTES * row_count
        self._bucket_bytes = max(1, min(memory_bytes, _MAX_BUCKET_BYTES))
        self._bucket_count = min(_MAX_BUCKETS, max(1, -(-needed_bytes // self._bucket_bytes)))
        self._buckets: dict[int, TemporaryRows] = {}
        self._pieces: list[pa.RecordBatch] = []
        self._piece_bytes = 0
        self._next_row = 0
        self._kept: np.ndarray | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        self._kept = None

    def add(self, keys: pa.Array, *, include: bool = True) -> None:
        """Add the next rows.

        Args:
            keys: binary array; a row without a key is never the last of a key.
            include: whether the rows count. Markers and aborted records do not: none of them is the
                last of its key, and they replace no other row.
        """
        first, self._next_row = self._next_row, self._next_row + len(keys)
        if not include or keys.null_count == len(keys):
            return
        rows = np.arange(first, self._next_row)
        if keys.null_count:
            rows = rows[bools_of(keys.is_valid())]
            keys = keys.drop_null()
        batch = _batch(keys, murmur2_of_keys(keys), rows)
        self._pieces.append(batch)
        self._piece_bytes += _needed_bytes(batch)
        if self._piece_bytes > self._bucket_bytes:
            if self._bucket_count == 1:
                self._bucket_count = _MAX_BUCKETS
            self._spread_pieces()
        elif self._bucket_count > 1 and self._piece_bytes > _SPREAD_BYTES:
            self._spread_pieces()

    def _spread_pieces(self) -> None:
        pieces, self._pieces, self._piece_bytes = self._pieces, [], 0
        group: list[pa.RecordBatch] = []
        group_bytes = 0
        for piece in pieces:
            group.append(piece)
            group_bytes += _needed_bytes(piece)
            if group_bytes > _SPREAD_BYTES or piece is pieces[-1]:
                self._spread(pa.concat_batches(group))
                group, group_bytes = [], 0

    def _spread(self, batch: pa.RecordBatch) -> None:
        """Write rows to the temporary files of their buckets."""
        buckets = ints_of(batch.column("hash"), np.uint32) % np.uint32(self._bucket_count)
        order = np.argsort(buckets.astype(np.uint8), kind="stable")
        sorted_batch = batch.take(int_array(order, pa.int64()))
        ends = np.cumsum(np.bincount(buckets, minlength=self._bucket_count))
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                if bucket not in self._buckets:
                    self._buckets[bucket] = TemporaryRows(_SCHEMA, "compaction")
                self._buckets[bucket].write(sorted_batch.slice(start, end - start))
            start = end

    def is_latest(self, first_row: int, count: int) -> np.ndarray:
        """Return for each row of a range whether it is the last of its key, as a bool array.

        Call this after all rows were added.

        Args:
            first_row: number of the first row.
            count: number of rows.
        """
        if self._kept is None:
            self._kept = self._find()
        first_byte = first_row // 8
        packed = self._kept[first_byte : (first_row + count + 7) // 8]
        bits = np.unpackbits(packed, bitorder="little")
        skipped = first_row - 8 * first_byte
        return bits[skipped : skipped + count].view(np.bool_)

    def _find(self) -> np.ndarray:
        """Return one bit for each row, in a mapped temporary file: the rows may be very many."""
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
        """Yield keys, their hashes and row numbers, in order; all rows of one key together."""
        if self._bucket_count == 1:
            pieces, self._pieces = self._pieces, []
            if pieces:
                yield _columns(pa.Table.from_batches(pieces))
            return
        self._spread_pieces()
        while self._buckets:
            _, bucket = self._buckets.popitem()
            with closing(bucket):
                yield from self._parts(bucket)

    def _parts(self, bucket: TemporaryRows) -> Iterator[tuple[pa.Array, np.ndarray, np.ndarray]]:
        """Yield a bucket; if it does not fit into memory, in parts by other bits of the hashes."""
        reader = bucket.reader()
        needed_bytes = bucket.size_bytes + _ROW_BYTES * bucket.row_count
        count = min(-(-needed_bytes // self._bucket_bytes), bucket.row_count, _MAX_PARTS)
        if count <= 1:
            yield _columns(reader.read_all())
            return
        for part in range(count):
            pieces = []
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                others = ints_of(batch.column("hash"), np.uint32) // np.uint32(self._bucket_count)
                chosen = np.flatnonzero(others % count == part)
                pieces.append(batch.take(int_array(chosen, pa.int64())))
            table = pa.Table.from_batches(pieces)
            if table.num_rows:
                yield _columns(table)


def _needed_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.column("key").nbytes + _ROW_BYTES * batch.num_rows)


def _last_of_each(keys: pa.Array, hashes: np.ndarray) -> np.ndarray:
    """Return the index of the last row of each key.

    In the order of hash and index, equal keys are neighbours, unless two keys have the same hash.
    """
    places = np.arange(len(keys), dtype=np.uint64)
    order = np.sort(hashes.astype(np.uint64) << np.uint64(32) | places)
    sorted_hashes, order = (order >> np.uint64(32)).astype(np.uint32), order.astype(np.uint32)
    is_followed = np.zeros(len(keys), np.bool_)  # by another record of its key
    follows = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1])
    before, behind = (keys.take(int_array(order[at], pa.uint32())) for at in (follows, follows + 1))
    is_same = bools_of(pc.equal(before, behind))
    is_followed[follows[is_same]] = True
    strange = _places_of(sorted_hashes, np.unique(sorted_hashes[follows[~is_same]]))
    doubtful = np.sort(order[strange])
    is_followed[strange] = True
    last = order[~is_followed]
    if not len(doubtful):
        return last
    encoded = keys.take(int_array(doubtful, pa.uint32())).dictionary_encode()
    last_of = np.empty(len(encoded.dictionary), np.uint32)
    last_of[ints_of(encoded.indices, np.int32)] = (
        doubtful  # of those with one index the last one stays
    )
    return np.concatenate([last, last_of])


def _places_of(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the indexes of all elements of an ascending array that are among some values."""
    firsts = np.searchsorted(ascending, values, "left")
    counts = np.searchsorted(ascending, values, "right") - firsts
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(counts.sum())


def _columns(table: pa.Table) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    (batch,) = table.combine_chunks().to_batches()
    hashes, rows = ints_of(batch.column("hash"), np.uint32), ints_of(batch.column("row"), np.int64)
    return batch.column("key"), hashes, rows


def _batch(keys: pa.Array, hashes: np.ndarray, rows: np.ndarray) -> pa.RecordBatch:
    columns = [keys, int_array(hashes, pa.uint32()), int_array(rows, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
