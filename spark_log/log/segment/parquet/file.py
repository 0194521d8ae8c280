"""Access to a Parquet segment: its rows look like those of an Arrow file with the same batches.

A row group, with the control records between its rows, is one Arrow batch. If offsets are missing
somewhere in the file, each batch has the column ``offset_delta``, as in an Arrow file with gaps.
The file is mapped, or read from an object store in ranges: only the columns that are wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.log.files import SegmentName
from spark_log.log.segment.file import (
    ColumnStatistics,
    Decode,
    LeftOutColumns,
    PackedHeaders,
    RowStatistics,
    SegmentFile,
)
from spark_log.log.segment.parquet.column_statistics import column_statistics
from spark_log.log.segment.parquet.header_block import (
    BATCH_SCHEMA,
    HeaderBlock,
    decode_block,
    no_rows,
)
from spark_log.log.segment.parquet.pages import PageTable, find_pages
from spark_log.log.segment.parquet.row_groups import decode_row_groups
from spark_log.log.segment.parquet.row_reader import RowReader
from spark_log.log.segment.parquet.source import Chunks, ParquetSource, open_source
from spark_log.log.segment.parquet.typed_columns import (
    FORMAT_KEY,
    LeftOutValues,
    TypedColumnsCheck,
    typed_columns_id,
)
from spark_log.log.segment.parquet.writer import OFFSET_FIELD, PAGED_LEAVES, PARQUET_SCHEMA
from spark_log.record import (
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    Blocks,
    header_array,
    int_array,
    ints_of,
)
from spark_log.storage import Store

if TYPE_CHECKING:
    from pyarrow import parquet

_NEAR_BYTES: Final = 65_536
"""Bytes between two wanted column chunks that are read with them: one request costs more."""

_PARSED: Final = 3
"""Approximate memory of a parsed footer, in sizes of the stored one."""


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
    return _ParquetFile(open_source(store, path, size_bytes), name)


class _ParquetFile(SegmentFile):
    """A Parquet segment. It decodes one row group at a time, on the calling thread."""

    kind = "Parquet"

    def __init__(self, source: ParquetSource, name: SegmentName) -> None:
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
        self.min_timestamps_us = entries["min_timestamp_us"]
        self.max_timestamps_us = entries["max_timestamp_us"]
        assert name.last_offset is not None
        last_delta = name.last_offset - name.base_offset
        self._has_gaps = bool(entries["has_gaps"].any()) or (
            len(entries) > 0 and int(entries["last_offset_delta"][-1]) != last_delta
        )
        self._is_dense = int(entries["rows"].sum()) == last_delta + 1
        schema = BATCH_SCHEMA if self._has_gaps else RECORD_SCHEMA
        self.schema = schema.with_metadata(identity)
        self._append_id = identity.get(b"spark_log.append_id", b"")
        self._left_out = LeftOutValues.of(identity)
        self._block: tuple[int, HeaderBlock] | None = None
        self._ahead: int | None = None
        self._row_reader: RowReader | None = None

    @property
    def is_in_memory(self) -> bool:
        return self._source.is_in_memory

    @property
    def memory_bytes(self) -> int:
        return self._source.memory_bytes + _PARSED * int(self._reader.metadata.serialized_size)

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
        """Return the problem of ``offset``, of statistics, or of typed columns; None without one.

        Readers of the log do not read the offsets of a file without gaps, since the batch headers
        tell them, nor the typed columns of a value that was kept.
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
        return self._problem_of_typed_columns(row_group)

    def _problem_of_typed_columns(self, row_group: int) -> str | None:
        check = TypedColumnsCheck.of(self.schema.metadata)
        if check is None:
            return None
        table = self._read_chunks(row_group, ["offset", "value", *check.columns])
        columns = {name: _one_array(table.column(name)) for name in table.schema.names}
        return check.problem(pa.RecordBatch.from_pydict(columns))

    def to_arrow(self) -> pa.NativeFile:
        return self._source.to_arrow()

    def row_statistics(self) -> RowStatistics:
        entries = self._entries[self._entries["rows"] > 0]
        typed = typed_columns_id(self.schema.metadata or {})
        if not len(entries):
            return RowStatistics(typed_columns=typed)
        footer = self._reader.metadata
        first = footer.row_group(0).column(0).statistics
        last = footer.row_group(footer.num_row_groups - 1).column(0).statistics
        return RowStatistics(
            int(entries["rows"].sum()),
            first.min_raw,
            last.max_raw,
            int(entries["min_timestamp_us"].min()),
            int(entries["max_timestamp_us"].max()),
            sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups)),
            typed,
        )

    def column_statistics(self) -> list[ColumnStatistics]:
        columns = column_statistics(
            self._reader.metadata, self._reader.schema_arrow, len(PARQUET_SCHEMA), self._has_nan
        )
        return list(columns)

    def _has_nan(self, path: tuple[str, ...]) -> bool:
        """Return whether a typed column has NaN. JSON has none; the column of others is read."""
        if self.schema.metadata.get(FORMAT_KEY) == b"json":
            return False
        for row_group in range(self._reader.metadata.num_row_groups):
            column = self._read_chunks(row_group, [path[0]]).column(0)
            for name in path[1:]:
                column = pc.struct_field(column, name)
            if pc.any(pc.is_nan(column)).as_py():
                return True
        return False

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

    # --- one row ---------------------------------------------------------------------------------

    @property
    def left_out(self) -> LeftOutColumns | None:
        found = self._left_out
        return None if found is None else LeftOutColumns(found.schema, found.give_back)

    def find_pages(self) -> np.ndarray:
        paths = list(PAGED_LEAVES)
        if self._left_out is not None:
            paths += [(name,) for name in self._left_out.columns]
        return find_pages(
            self._source.footer(), lambda *part: self._source.read(*part).to_pybytes(), paths
        )

    def read_row(self, row: int, pages: np.ndarray) -> tuple[int, pa.RecordBatch]:
        reader = self._row_reader
        if reader is None or reader.table.pages is not pages:
            with_rows = self._entries[self._entries["rows"] > 0]
            reader = self._row_reader = RowReader(
                self._source,
                PageTable(pages, self._source.footer()),
                np.cumsum(with_rows["rows"], dtype=np.int64),
                with_rows["null_columns"],
                self._left_out,
                self._read_chunks,
            )
        offset, record = reader.read(row, with_offset=not self._is_dense)
        return (row if self._is_dense else offset - self._base_offset), record

    def _read_chunks(self, row_group: int, columns: Sequence[str]) -> pa.Table:
        ordinal = int(np.searchsorted(self._row_group_of, row_group))
        self._source.prepare(self._chunks(ordinal, columns))
        return self._reader.read_row_group(row_group, columns=list(columns), use_threads=False)

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
            return no_rows(schema)
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
        """Check the footer against the table of row groups.

        Raises:
            ValueError: the two differ.
        """
        rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
        expected = self._entries["rows"][self._entries["rows"] > 0]
        if rows != expected.tolist():
            raise ValueError("its row groups are not those in its table of row groups")
        ends = self._entries["headers_position"] + self._entries["headers_bytes"]
        if len(ends) and not 0 < ends.max() < self.size_bytes:
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
    ends = np.append(np.flatnonzero(is_control[1:] != is_control[:-1]), len(headers) - 1)
    counts = np.diff(np.cumsum(headers["record_count"], dtype=np.int64)[ends], prepend=0)
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
