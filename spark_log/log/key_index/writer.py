"""Builds the key index of a segment, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Final, Self

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.errors import AlreadyExistsError
from spark_log.log.files import SegmentName
from spark_log.log.key_index.format import (
    BLOCK_ROWS,
    DIRECTORY_DTYPE,
    RUN_DTYPE,
    TRAILER_BYTES,
    Trailer,
    pack,
)
from spark_log.log.segment import SegmentReader
from spark_log.record import (
    BatchHeader,
    TemporaryRows,
    bool_array,
    bools_of,
    int_array,
    ints_of,
    murmur2_of_keys,
)
from spark_log.storage import Store, storage_errors

_MEMORY_BYTES: Final = 67_108_864
"""Size of the entries that are held in memory, those of 8 M records. More are written to temporary
files."""

_BUCKETS: Final = 64
"""Number of temporary files; each has the entries of a range of hashes."""

_SPREAD_BYTES: Final = 16_777_216
"""Size of the entries that are written to temporary files together."""

_ENTRIES: Final = pa.schema([pa.field("entry", pa.uint64(), nullable=False)])
"""The rows of a temporary file: a hash in the upper half, and the row in the lower one."""


class KeyIndexWriter:
    """Collects the keys of a segment, and writes its key index.

    Entries of 8 bytes are sorted in memory. If they are too many, they are first distributed to
    temporary files by their hashes, and one file is sorted at a time. `discard` deletes them.

    Attributes:
        row_count: number of rows so far: records that are no control records.
        record_count: number of rows that have a key.
    """

    def __init__(self, *, memory_bytes: float = _MEMORY_BYTES) -> None:
        """Begin without records. Accesses no storage.

        Args:
            memory_bytes: size of the entries that are held in memory.
        """
        self._memory_bytes = memory_bytes
        self._held: list[np.ndarray] = []
        self._held_bytes = 0
        self._buckets: dict[int, TemporaryRows] = {}
        self._failure: OSError | None = None
        self._runs: list[tuple[int, int, int]] = []
        self.row_count = 0
        self.record_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Delete the temporary files. An index that was put stays. Harmless when called twice."""
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        self._held.clear()

    def add(self, keys: pa.Array, headers: Sequence[BatchHeader]) -> None:
        """Add the next batches of the segment. Control records and null keys are left out.

        An error of the temporary files is raised by `put`.

        Args:
            keys: the keys of all batches, control records included.
            headers: the headers of the batches.
        """
        if self._failure is not None:
            return
        keys = self._without_control(keys, headers)
        rows = np.arange(self.row_count, self.row_count + len(keys), dtype=np.uint64)
        self.row_count += len(keys)
        if keys.null_count:
            rows = rows[bools_of(keys.is_valid())]
            keys = keys.drop_null()
        if not len(rows):
            return
        self.record_count += len(rows)
        entries = murmur2_of_keys(keys).astype(np.uint64) << np.uint64(32) | rows
        self._held.append(entries)
        self._held_bytes += entries.nbytes
        if self._held_bytes > (_SPREAD_BYTES if self._buckets else self._memory_bytes):
            try:
                self._spread()
            except OSError as error:  # `put` raises it: the segment can do without its index
                self._failure = error
                self.discard()

    def add_segment(self, reader: SegmentReader) -> None:
        """Add all keys of a segment.

        Args:
            reader: the segment's reader.

        Raises:
            CorruptRecordError: the segment is damaged.
            NotFoundError: the segment was deleted meanwhile.
            StorageError: the storage does not answer.
        """
        for ordinal in reader.in_order():
            headers, keys = reader.read_keys(ordinal)
            self.add(keys, headers)

    def put(
        self,
        store: Store,
        directory: str,
        name: SegmentName,
        append_id: str,
        pages: np.ndarray,
    ) -> None:
        """Write the index beside its segment, unless one exists.

        Args:
            store: the store that holds the segment.
            directory: the partition's directory, relative to the store's root.
            name: the name of the segment.
            append_id: the append id of the segment.
            pages: the pages of the segment (`SegmentReader.find_pages`).

        Raises:
            OSError: a temporary file could not be written.
            StorageError: the index cannot be written.
        """
        if self._failure is not None:
            raise self._failure
        with storage_errors(directory), store.stage(directory) as staged:
            self._write(staged.sink, append_id, pages)
            staged.seal()
            with suppress(AlreadyExistsError):
                store.put_if_absent(f"{directory}/{name.key_index}", staged)

    def build(self, append_id: str, pages: np.ndarray) -> pa.Buffer:
        """Return the bytes of the index, in memory.

        Args:
            append_id: the append id of the segment.
            pages: the pages of the segment.
        """
        sink = pa.BufferOutputStream()
        self._write(sink, append_id, pages)
        return sink.getvalue()

    def _without_control(self, keys: pa.Array, headers: Sequence[BatchHeader]) -> pa.Array:
        """Return the keys of the rows, and note what runs of rows have in common."""
        row = self.row_count
        has_control = False
        for header in headers:
            if not header.record_count:
                continue
            if header.is_control:
                has_control = True
                continue
            kind = header.leader_epoch, header.timestamp_type
            if not self._runs or self._runs[-1][1:] != kind:
                self._runs.append((row, *kind))
            row += header.record_count
        if not has_control:
            return keys
        counts = [header.record_count for header in headers]
        is_control = np.repeat([header.is_control for header in headers], counts)
        return keys.filter(bool_array(~is_control))

    def _write(self, sink: pa.NativeFile, append_id: str, pages: np.ndarray) -> None:
        row_bits = max(1, (self.row_count - 1).bit_length())
        entries: list[tuple[int, int, int]] = []
        position = 0
        for block in self._blocks():
            hashes = (block >> np.uint64(32)).astype(np.uint32)
            gaps = np.diff(hashes, prepend=hashes[:1])
            gap_bits = max(1, int(gaps.max()).bit_length())
            data = pack(gaps, gap_bits) + pack(block.astype(np.uint32), row_bits)
            sink.write(data)
            entries.append((int(hashes[0]), gap_bits, extend(0, data)))
            position += len(data)
        directory = np.array(entries, DIRECTORY_DTYPE)
        runs = np.array(self._runs, RUN_DTYPE)
        tables = directory.tobytes() + pages.tobytes() + runs.tobytes()
        trailer = Trailer(
            directory_position=position,
            block_count=len(directory),
            page_count=len(pages),
            run_count=len(runs),
            record_count=self.record_count,
            row_count=self.row_count,
            row_bits=row_bits,
            file_bytes=position + len(tables) + TRAILER_BYTES,
        )
        sink.write(tables + trailer.encode(tables, append_id))

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield the entries of each block."""
        left = np.empty(0, np.uint64)
        for entries in self._sorted():
            whole = np.concatenate([left, entries]) if len(left) else entries
            end = len(whole) - len(whole) % BLOCK_ROWS
            yield from (whole[at : at + BLOCK_ROWS] for at in range(0, end, BLOCK_ROWS))
            left = whole[end:]
        if len(left):
            yield left

    def _sorted(self) -> Iterator[np.ndarray]:
        """Yield all entries in their order."""
        if not self._buckets:
            held, self._held = self._held, []
            if held:
                entries = np.concatenate(held)
                entries.sort()
                yield entries
            return
        self._spread()
        for number in sorted(self._buckets):
            with closing(self._buckets.pop(number)) as bucket:
                column = bucket.reader().read_all().column("entry")
                yield np.sort(ints_of(column.combine_chunks(), np.uint64))

    def _spread(self) -> None:
        """Write the held entries to the temporary files of their buckets."""
        pieces, self._held, self._held_bytes = self._held, [], 0
        for entries in pieces:
            entries.sort()
            buckets = (entries >> np.uint64(64 - _BUCKETS.bit_length() + 1)).astype(np.int64)
            start = 0
            for number, count in enumerate(np.bincount(buckets, minlength=_BUCKETS).tolist()):
                if count:
                    if number not in self._buckets:
                        self._buckets[number] = TemporaryRows(_ENTRIES, "key-index")
                    column = int_array(entries[start : start + count], pa.uint64())
                    rows = pa.RecordBatch.from_arrays([column], schema=_ENTRIES)
                    self._buckets[number].write(rows)
                start += count
