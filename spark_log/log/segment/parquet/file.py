"""Access to a Parquet segment: its rows look like those of an Arrow file with the same batches.

A row group, with the control records between its rows, is one Arrow batch. If offsets are missing
somewhere in the file, each batch has the column ``offset_delta``, as in an Arrow file with gaps.
The file is mapped, or read from an object store in ranges: only the columns that are wanted.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.file import (
    FIRST_RANGE_BYTES,
    Decode,
    PackedHeaders,
    Range,
    SegmentFile,
    read_end,
)
from spark_log.log.segment.parquet.header_block import (
    BATCH_SCHEMA,
    HeaderBlock,
    decode_block,
)
from spark_log.log.segment.parquet.row_groups import decode_row_groups
from spark_log.log.segment.parquet.typed_columns import LeftOutValues
from spark_log.log.segment.parquet.writer import OFFSET_FIELD, PARQUET_SCHEMA
from spark_log.record import (
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    Blocks,
    header_array,
    int_array,
    ints_of,
)
from spark_log.storage import COPIED_BYTES, Store

if TYPE_CHECKING:
    from pyarrow import parquet

_MAGIC: Final = b"PAR1"
_TRAILER: Final = struct.Struct("<I4s")

_NEAR_BYTES: Final = 65_536
"""Bytes between two wanted column chunks that are read with them: one request costs more."""

Chunks = Sequence[tuple[int, int]]
"""Parts of a file: position of the first byte, and position behind the last."""


def open_parquet_file(
    store: Store, path: str, name: SegmentName, size_bytes: int | None = None
) -> SegmentFile:
    """Open a Parquet segment.

    Args:
        store: the store that holds the file.
        path: the file's path, relative to the store's root.
        name: parsed name of the file.
        size_bytes: the file's size in a listing; None if not known.

    Raises:
        NotFoundError: the file does not exist.
        ValueError, OSError, pa.ArrowException: the file is not a Parquet segment, or its footer is
            damaged.
    """
    source: _Source
    if store.is_mapped:
        source = _MappedSource(store, store.open_buffer(path))
    else:
        source = _RangedSource(store, path, size_bytes)
    return _ParquetFile(source, name)


class _ParquetFile(SegmentFile):
    """A Parquet segment. It decodes one row group at a time, on the calling thread."""

    kind = "Parquet"

    def __init__(self, source: _Source, name: SegmentName) -> None:
        from pyarrow import parquet  # late: clients without a table start without it

        self._source = source
        self._base_offset = name.base_offset
        self.size_bytes = source.size_bytes
        self._reader = parquet.ParquetFile(source.to_arrow(), page_checksum_verification=True)
        footer = self._reader.metadata
        entries, identity = decode_row_groups(footer.metadata or {})
        self._entries = entries
        self._row_group_of = np.cumsum(entries["rows"] > 0) - 1
        self._check_footer(footer)
        self.blocks = Blocks.of(entries["position"], entries["size_bytes"])
        self.base_offset_deltas = entries["base_offset_delta"]
        self.max_timestamps_us = entries["max_timestamp_us"]
        assert name.last_offset is not None
        last_delta = name.last_offset - name.base_offset
        self._has_gaps = bool(entries["has_gaps"].any()) or (
            len(entries) > 0 and int(entries["last_offset_delta"][-1]) != last_delta
        )
        schema = BATCH_SCHEMA if self._has_gaps else RECORD_SCHEMA
        self.schema = schema.with_metadata(identity)
        self._append_id = identity.get(b"spark_log.append_id", b"")
        self._left_out = LeftOutValues.of(identity)
        self._block: tuple[int, HeaderBlock] | None = None
        self._ahead: int | None = None

    @property
    def is_in_memory(self) -> bool:
        return self._source.is_in_memory

    @property
    def memory_bytes(self) -> int:
        return self._source.memory_bytes

    def forget(self) -> None:
        self._source.forget()

    def packed_headers(self, ordinal: int, append_id: bytes) -> PackedHeaders:
        block = self._header_block(ordinal)
        sums = block.column_sums[: len(self.schema)]
        return PackedHeaders(block.headers, are_checked=True, column_sums=sums)

    def compression(self, ordinal: int) -> str:
        if not self._entries["rows"][ordinal]:
            return "zstd"  # nothing is stored
        row_group = self._reader.metadata.row_group(int(self._row_group_of[ordinal]))
        return str(row_group.column(0).compression).lower()

    def problem_for_others(self, ordinal: int) -> str | None:
        """Return the problem of the column ``offset``, or of the statistics; None without one.

        The offsets of a file without gaps are not read: the batch headers tell them.
        """
        if not self._entries["rows"][ordinal]:
            return None
        row_group = int(self._row_group_of[ordinal])
        self._source.prepare(self._chunks(ordinal, [OFFSET_FIELD.name]))
        table = self._reader.read_row_group(row_group, columns=[OFFSET_FIELD.name])
        offsets = ints_of(_one_array(table.column(0)), np.int64)
        headers = header_array(self._header_block(ordinal).headers)
        headers = headers[headers["attributes"] & BatchHeader.CONTROL_BIT == 0]
        if not self._has_gaps:
            ranges = [
                np.arange(first, last + 1)
                for first, last in headers[["base_offset_delta", "last_offset_delta"]].tolist()
            ]
            expected = np.concatenate(ranges) + self._base_offset
            if not np.array_equal(offsets, expected):
                return "its column offset has other offsets than its batch headers"
        entry = self._entries[ordinal]
        times_us = entry["min_timestamp_us"], entry["max_timestamp_us"]
        metadata = self._reader.metadata.row_group(row_group)
        for at, least, most in ((0, offsets[0], offsets[-1]), (1, *times_us)):
            statistics = metadata.column(at).statistics
            if statistics is None or (statistics.min_raw, statistics.max_raw) != (least, most):
                name = metadata.column(at).path_in_schema
                return f"the statistics of its column {name} are not those of its records"
        return None

    def decoder(self, columns: Sequence[str]) -> Decode:
        schema = pa.schema([BATCH_SCHEMA.field(name) for name in columns])
        return lambda ordinal: self._decode(ordinal, schema)

    def in_order(self, first: int, behind: int | None = None) -> Iterator[int]:
        """Yield ordinals from ``first`` to before ``behind``, to read each batch.

        While one row group is decoded, the next one is read in the background. This begins after
        the first row group, since many readers need a few batches alone.
        """
        behind = len(self.blocks) if behind is None else behind
        try:
            for ordinal in range(first, behind):
                self._ahead = ordinal + 1 if first < ordinal < behind - 1 else None
                yield ordinal
        finally:
            self._ahead = None
            self._source.end_reading_ahead()

    # --- one batch -------------------------------------------------------------------------------

    def _header_block(self, ordinal: int) -> HeaderBlock:
        if self._block is None or self._block[0] != ordinal:
            entry = self._entries[ordinal]
            start = int(entry["headers_position"])
            last = self._entries[-1]
            behind = int(last["headers_position"] + last["headers_bytes"])
            data = self._source.part(start, start + int(entry["headers_bytes"]), behind)
            self._block = ordinal, decode_block(data, self._append_id)
        return self._block[1]

    def _decode(self, ordinal: int, schema: pa.Schema) -> pa.RecordBatch:
        block = self._header_block(ordinal)
        if not schema.names:
            count = int(self._entries["rows"][ordinal]) + block.control.num_rows
            return pa.RecordBatch.from_arrays([pa.nulls(count)], [""]).select([])
        rows = self._rows(ordinal, schema)
        return _with_control(rows, block) if block.control.num_rows else rows

    def _rows(self, ordinal: int, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of a row group, as columns of a schema."""
        count = int(self._entries["rows"][ordinal])
        if not count:
            return pa.RecordBatch.from_pylist([], schema)
        nulls = int(self._entries["null_columns"][ordinal])
        stored = {
            _stored_name(name)
            for name in schema.names
            if name not in RECORD_SCHEMA.names
            or not nulls >> RECORD_SCHEMA.get_field_index(name) & 1
        }
        left_out = self._left_out if "value" in stored else None
        if left_out is not None:
            stored.update(left_out.columns)
        columns: dict[str, pa.Array] = {}
        if stored:
            row_group = int(self._row_group_of[ordinal])
            self._source.prepare(self._chunks(ordinal, stored))
            if self._ahead is not None:
                self._source.read_ahead(self._chunks(self._ahead, stored))
            table = self._reader.read_row_group(
                row_group, columns=sorted(stored), use_threads=False
            )
            if table.num_rows != count:
                raise ValueError(f"a row group has {table.num_rows} rows instead of {count}")
            columns = dict(zip(table.schema.names, map(_one_array, table.columns), strict=True))
        if left_out is not None:
            columns["value"] = left_out.give_back(columns["value"], columns)
        return pa.RecordBatch.from_arrays(
            [self._column(field, columns, count) for field in schema], schema=schema
        )

    def _column(self, field: pa.Field, columns: dict[str, pa.Array], count: int) -> pa.Array:
        array = columns.get(_stored_name(field.name))
        if array is None:
            return pa.nulls(count, field.type)
        if field.name == OFFSET_DELTA_FIELD.name:
            deltas = ints_of(array, np.int64) - self._base_offset
            return int_array(deltas.astype(np.int32), pa.int32())
        return array

    def _chunks(self, ordinal: int, columns: Collection[str]) -> Chunks:
        """Return the parts of the file with some columns of a row group; near ones are joined."""
        if self._source.is_in_memory or not self._entries["rows"][ordinal]:
            return []
        metadata = self._reader.metadata.row_group(int(self._row_group_of[ordinal]))
        found: list[tuple[int, int]] = []
        for at in range(metadata.num_columns):
            chunk = metadata.column(at)
            if chunk.path_in_schema.partition(".")[0] in columns:
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                found.append((start, start + chunk.total_compressed_size))
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start <= merged[-1][1] + _NEAR_BYTES:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _check_footer(self, footer: parquet.FileMetaData) -> None:
        """Check the footer, which no checksum covers, against the table of row groups.

        Raises:
            ValueError: the two differ.
        """
        rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
        expected = self._entries["rows"][self._entries["rows"] > 0]
        if rows != expected.tolist():
            raise ValueError("its row groups are not those in its table of row groups")
        ends = self._entries["headers_position"] + self._entries["headers_bytes"]
        if len(ends) and not 0 < ends.max() < self.size_bytes - _TRAILER.size:
            raise ValueError("its batch headers lie outside of the file")
        schema = self._reader.schema_arrow
        columns = schema.names[: len(PARQUET_SCHEMA)]  # others may stand behind
        if columns != PARQUET_SCHEMA.names or any(
            schema.field(field.name).type != field.type for field in PARQUET_SCHEMA
        ):
            raise ValueError(f"its columns are not a segment's: {schema.to_string()}")


def _stored_name(name: str) -> str:
    return OFFSET_FIELD.name if name == OFFSET_DELTA_FIELD.name else name


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _with_control(rows: pa.RecordBatch, block: HeaderBlock) -> pa.RecordBatch:
    """Return rows with the control records of the same batches in their places."""
    headers = header_array(block.headers)
    headers = headers[headers["record_count"] > 0]
    is_control = headers["attributes"] & BatchHeader.CONTROL_BIT != 0
    changes = np.flatnonzero(is_control[1:] != is_control[:-1]) + 1
    counts = np.add.reduceat(headers["record_count"], np.concatenate([[0], changes]))
    parts = (rows, block.control.select(rows.schema.names))
    taken = [0, 0]
    pieces = []
    which = int(is_control[0])
    for count in counts.tolist():
        pieces.append(parts[which].slice(taken[which], count))
        taken[which] += count
        which = 1 - which
    if taken != [rows.num_rows, block.control.num_rows]:
        raise ValueError("the batch headers do not cover the rows and the control records")
    return pa.concat_batches(pieces)


# --- the bytes of the file -----------------------------------------------------------------------


class _Source(ABC):
    """The bytes of a Parquet file.

    Attributes:
        size_bytes: the file's size.
        is_in_memory: whether no request will be made.
    """

    size_bytes: int
    is_in_memory: bool

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory of the process that holds bytes of the file; for a mapped file, an upper bound."""

    @abstractmethod
    def to_arrow(self) -> pa.NativeFile:
        """Return a file for pyarrow's reader."""

    @abstractmethod
    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        """Return a part of the file.

        Args:
            start: position of its first byte.
            end: position behind its last byte.
            near_end: position behind what will be wanted next; some of it is read, too.
        """

    def prepare(self, chunks: Chunks) -> None:  # noqa: B027 - a mapped file needs no preparation
        """Read parts of the file that pyarrow's reader will ask for."""

    def read_ahead(self, chunks: Chunks) -> None:  # noqa: B027
        """Begin to read the parts that will be prepared next, in the background."""

    def end_reading_ahead(self) -> None:  # noqa: B027
        """Drop what was read."""

    def forget(self) -> None:  # noqa: B027
        """Release the memory of data that was read."""


class _MappedSource(_Source):
    """A file that is mapped into memory."""

    is_in_memory = True

    def __init__(self, store: Store, buffer: pa.Buffer) -> None:
        self._store = store
        self._buffer = buffer
        self.size_bytes = int(buffer.size)

    @property
    def memory_bytes(self) -> int:
        return self.size_bytes if self.size_bytes <= COPIED_BYTES else 0

    def to_arrow(self) -> pa.NativeFile:
        return pa.BufferReader(self._buffer)

    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        return self._buffer.slice(start, end - start)

    def forget(self) -> None:
        self._store.release_memory(self._buffer)


class _RangedSource(_Source):
    """A file that is read by requests: a small one whole by one request, else the needed ranges."""

    def __init__(self, store: Store, path: str, size_bytes: int | None) -> None:
        self._store = store
        self._path = path
        tail, size_bytes = read_end(store, path, size_bytes)
        if size_bytes is None:
            size_bytes = store.head(path).size_bytes
        self.size_bytes = size_bytes
        footer = _footer_bytes(tail)
        if footer > tail.size and tail.size < size_bytes:
            tail = store.read_tail(path, footer)
        self._tail = Range(size_bytes - int(tail.size), tail)
        self.is_in_memory = self._tail.start == 0
        self._headers = Range(0, pa.py_buffer(b""))
        self._recent: list[Range] = []
        self._ahead: tuple[Chunks, Future[list[Range]]] | None = None
        self._background: ThreadPoolExecutor | None = None

    @property
    def memory_bytes(self) -> int:
        held = (self._tail, self._headers, *self._recent)
        return sum(int(each.data.size) for each in held)

    def to_arrow(self) -> pa.NativeFile:
        return pa.PythonFile(_Cursor(self), mode="r")

    def part(self, start: int, end: int, near_end: int) -> pa.Buffer:
        for held in (self._tail, self._headers):
            if held.covers(start, end):
                return held.cut(start, end)
        self._headers = self._fetch(start, max(end, min(near_end, start + FIRST_RANGE_BYTES)))
        return self._headers.cut(start, end)

    def prepare(self, chunks: Chunks) -> None:
        if self._ahead is not None:
            known, future = self._ahead
            self._ahead = None
            fetched = future.result()
            if known == chunks:
                self._recent = fetched
                return
        if not all(self._find(start, end) for start, end in chunks):
            self._recent = self._fetch_all(chunks)

    def read_ahead(self, chunks: Chunks) -> None:
        if not all(self._tail.covers(start, end) for start, end in chunks):
            if self._background is None:
                self._background = ThreadPoolExecutor(1, "spark-log-read-ahead")
            self._ahead = chunks, self._background.submit(self._fetch_all, chunks)

    def end_reading_ahead(self) -> None:
        self._recent, self._ahead = [], None
        if self._background is not None:
            self._background.shutdown(wait=False, cancel_futures=True)
            self._background = None

    def forget(self) -> None:
        self._recent = []

    def read(self, start: int, end: int) -> pa.Buffer:
        """Return bytes that pyarrow's reader asks for."""
        found = self._find(start, end)
        return (found or self._fetch(start, end)).cut(start, end)

    def _find(self, start: int, end: int) -> Range | None:
        held = (*self._recent, self._tail)
        return next((each for each in held if each.covers(start, end)), None)

    def _fetch_all(self, chunks: Chunks) -> list[Range]:
        return [self._fetch(start, end) for start, end in chunks]

    def _fetch(self, start: int, end: int) -> Range:
        data = self._store.read(self._path, start, end - start)
        if data.size != end - start:
            raise CorruptRecordError(
                f"{self._path} has {data.size} bytes from position {start} on, but its footer "
                f"speaks of {end - start}. Restore the file from a copy",
                path=self._path,
                position=start,
            )
        return Range(start, data)


def _footer_bytes(tail: pa.Buffer) -> int:
    """Return the size of the footer with its trailer.

    Raises:
        ValueError: the bytes are not the end of a Parquet file.
    """
    if tail.size < _TRAILER.size:
        raise ValueError("is too short for a Parquet file")
    length, magic = _TRAILER.unpack(tail.slice(tail.size - _TRAILER.size).to_pybytes())
    if magic != _MAGIC:
        raise ValueError("does not end as a Parquet file does")
    return int(length) + _TRAILER.size


class _Cursor(io.RawIOBase):
    """A file for pyarrow's reader, which seeks and reads."""

    def __init__(self, source: _RangedSource) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size_bytes}
        self._position = start[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._source.size_bytes
        if size >= 0:
            end = min(end, self._position + size)
        if end <= self._position:
            return b""
        data = self._source.read(self._position, end)
        self._position = end
        content: bytes = data.to_pybytes()
        return content
