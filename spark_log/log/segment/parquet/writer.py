"""Writing a Parquet segment as a stream: one row group for each Arrow batch.

Columns: ``offset`` (int64), and those of `RECORD_SCHEMA`; rows are in offset order. ``offset`` and
``timestamp`` have statistics and a page index. The typed columns of the topic lie behind them
(`typed_columns`), with statistics, a page index and dictionaries. Control records are not rows.
They are stored with the batch headers (`header_block`), and readers of the log put them back in
their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidRecordError
from spark_log.log.files import SegmentName
from spark_log.log.segment.parquet.footer import FooterSink, footer_bytes
from spark_log.log.segment.parquet.header_block import BATCH_SCHEMA, NO_RECORDS, encode_block
from spark_log.log.segment.parquet.pages import find_pages
from spark_log.log.segment.parquet.row_groups import (
    TIMESTAMP_TYPES_KEY,
    RowGroup,
    encode_row_groups,
)
from spark_log.log.segment.parquet.typed_columns import TypedColumnsWriter, leaf_paths
from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.log.segment.writer import MAX_SEGMENT_RECORDS, check_rewritten
from spark_log.record import (
    NO_TIMESTAMP,
    OFFSET_DELTA_FIELD,
    RECORD_SCHEMA,
    BatchHeader,
    array_crc32c,
    bool_array,
    int_array,
    ints_of,
    latest_timestamp_us,
    segment_schema,
    times_us_of,
)
from spark_log.storage import Store, storage_errors

if TYPE_CHECKING:
    from pyarrow import parquet

    from spark_log.values import TypedValues

OFFSET_FIELD: Final = pa.field("offset", pa.int64(), nullable=False)

PARTITION_FIELD: Final = pa.field("partition", pa.int32())
"""The partition's number, the same in every row: some readers of Delta tables (polars 2.1) take a
partition column from the file or from the names of directories, and not from the table."""

PARQUET_SCHEMA: Final = pa.schema(
    [
        OFFSET_FIELD,
        *map(RECORD_SCHEMA.field, ("timestamp", "key", "value", "headers")),
        PARTITION_FIELD,
    ]
)
"""The columns of a Parquet segment."""

PAGED_LEAVES: Final = (
    ("offset",),
    ("timestamp",),
    ("key",),
    ("value",),
    ("headers", "list", "element", "key"),
    ("headers", "list", "element", "value"),
)
"""The leaves whose pages a look-up of a key reads alone (`pages`)."""

WRITER_OPTIONS: Final[dict[str, object]] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "dictionary_pagesize_limit": 65_536,
    "column_encoding": dict.fromkeys(("offset", "timestamp", "partition"), "DELTA_BINARY_PACKED"),
    "write_statistics": ["offset", "timestamp"],
    "write_page_index": True,
    "write_page_checksum": True,
}
"""Options of pyarrow's writer. Values have no dictionary: zstd finds what repeats, and building one
takes longer. zstd's level 3 saves 2 % of the size, and takes 14 % longer. A dictionary ends at 64
KiB: a row group has few rows for each entry of a larger one, and engines decode all entries."""

_SAMPLE_ROWS: Final = 8_192
_ROWS_A_KEY: Final = 4
"""Keys have a dictionary if each of the first ones occurs so often, on average. Engines then read
the keys in half the time or less."""

_MAGIC_BYTES: Final = 4
"""Bytes at the beginning of a Parquet file, before the first row group."""

_HELD_BYTES: Final = 4_194_304
"""Bytes of header blocks that are held until the last row group is written. Behind it, they are
read together with the footer."""


class ParquetSegmentWriter:
    """Streams rewritten batches into a staged Parquet segment, one row group in memory."""

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        topic_id: str,
        partition: int,
        name: SegmentName,
        compaction_id: str | None = None,
        typed: TypedValues | None = None,
    ) -> None:
        """Begin a segment.

        Args:
            store: the store that will hold the segment.
            directory: the partition's directory, relative to the store's root.
            topic_id: the topic's id.
            partition: number of the partition.
            name: name of the segment, which its file contains.
            compaction_id: id of the compaction that writes the segment; None for a merge.
            typed: the topic's typed columns; None if it has none.

        Raises:
            StorageError: the segment cannot be staged.
        """
        self._directory = directory
        self._url = f"{store.url}/{directory}"
        self._base_offset = name.base_offset
        self._partition = pa.scalar(partition, PARTITION_FIELD.type)
        schema = segment_schema(topic_id, partition, name.stem, compaction_id)
        self._identity: dict[bytes, bytes] = schema.metadata
        self._typed = None if typed is None else TypedColumnsWriter(typed)
        self._schema = PARQUET_SCHEMA
        if typed is not None:
            self._schema = pa.schema([*PARQUET_SCHEMA, *typed.decoded_schema])
        self._append_id = self._identity[b"spark_log.append_id"]
        self._row_groups: list[RowGroup] = []
        self._held: list[bytes] = []
        self._next_delta = 0
        self._min_timestamp_us: int | None = None
        self._max_timestamp_us: int | None = None
        self._last_header: BatchHeader | None = None
        self._index = b"", 0
        self._timestamp_types: set[int] = set()
        self._writer: parquet.ParquetWriter | None = None
        with storage_errors(directory):
            self._staged = store.stage(directory)
        try:
            self._sink = FooterSink(self._staged.sink)
            self._file = pa.PythonFile(self._sink, mode="w")  # counts what was written
        except BaseException:
            self._staged.discard()
            raise

    @property
    def record_count(self) -> int:
        """Number of offsets covered so far, also by records that a rewrite left out."""
        return self._next_delta

    def find_pages(self) -> np.ndarray:
        """Return the pages of the finished file, for `SegmentReader.read_row`."""
        index, position = self._index
        paths = list(PAGED_LEAVES)
        if self._typed is not None:
            paths += [(name,) for name in self._typed.columns_of_left_out_values]
        size_bytes = footer_bytes(pa.py_buffer(index))
        return find_pages(
            index[-size_bytes:-8],
            lambda start, end: index[start - position : end - position],
            paths,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._staged.size_bytes

    def write_rewritten(self, records: pa.RecordBatch, headers: Sequence[BatchHeader]) -> None:
        """Write batches of the log as one row group, and keep their headers.

        Args:
            records: the rows of all batches, with the columns of `RECORD_SCHEMA` and
                ``offset_delta`` (`record.rebase_batches`).
            headers: the batches' headers, with offset deltas relative to the base offset of this
                segment and unchanged checksums.

        Raises:
            InvalidRecordError: the headers do not fit the rows, or offsets are not ascending.
            StorageFullError: no part of the segment will be visible.
        """
        check_rewritten(records, headers, self._next_delta, with_offsets=True)
        if not records.schema.equals(BATCH_SCHEMA):
            raise InvalidRecordError(
                f"rewritten records need the columns {BATCH_SCHEMA.names}, got "
                f"{records.schema.to_string()}"
            )
        if headers[-1].last_offset_delta >= MAX_SEGMENT_RECORDS:
            raise InvalidRecordError(f"a segment holds at most {MAX_SEGMENT_RECORDS} records")
        rows, control = _without_control(records, headers)
        with storage_errors(self._directory):
            position = self._file.tell() or _MAGIC_BYTES
            if rows.num_rows:
                writer = self._opened(rows)
                table = pa.Table.from_batches([self._stored(rows)])
                writer.write_table(table, row_group_size=rows.num_rows)
            size_bytes = self._file.tell() - position
            sums = [array_crc32c(column) for column in records.columns]
            self._held.append(encode_block(headers, sums, control, self._append_id))
            self._row_groups.append(self._row_group(position, size_bytes, rows, headers))
            if sum(map(len, self._held)) > _HELD_BYTES:
                self._write_held()
        self._note_times(records, headers)
        self._timestamp_types.update(
            each.timestamp_type for each in headers if each.record_count and not each.is_control
        )
        self._next_delta = headers[-1].last_offset_delta + 1
        self._last_header = headers[-1]

    def finish(self) -> StagedSegment:
        """Close the file, and return the staged segment.

        Raises:
            InvalidRecordError: no batch was written.
            StorageFullError: no part of the segment will be visible.
        """
        if self._last_header is None:
            raise InvalidRecordError("a segment needs at least one batch")
        least_us, latest_us = self._min_timestamp_us, self._max_timestamp_us
        with storage_errors(self._directory):
            writer = self._opened(NO_RECORDS)
            self._write_held()
            types = ",".join(map(str, sorted(self._timestamp_types))).encode()
            identity = {**self._identity, TIMESTAMP_TYPES_KEY: types}
            if self._typed is not None:
                identity |= self._typed.metadata()
            writer.add_key_value_metadata(encode_row_groups(self._row_groups, identity))
            position = self._file.tell()
            self._sink.hold()
            writer.close()
            self._index = self._sink.write_held(), position
            self._staged.seal()
        return StagedSegment(
            self._staged,
            self._append_id.decode(),
            self._next_delta,
            self._last_header,
            (),
            b"",
            b"",
            producer=None,
            min_timestamp_us=NO_TIMESTAMP if least_us is None else least_us,
            max_timestamp_us=NO_TIMESTAMP if latest_us is None else latest_us,
            staged_for=self._url,
            compression="zstd",
        )

    def discard(self) -> None:
        """Delete the staged file. A segment that was put from it stays."""
        self._sink.hold()  # the footer that pyarrow writes on closing
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
        self._staged.discard()

    def _opened(self, rows: pa.RecordBatch) -> parquet.ParquetWriter:
        """Return pyarrow's writer; open it for the first rows, which decide about a dictionary."""
        if self._writer is None:
            from pyarrow import parquet  # late: clients without a table start without it

            options = _writer_options(self._schema, has_key_dictionary=_repeats(rows["key"]))
            self._writer = parquet.ParquetWriter(self._file, self._schema, **options)
        return self._writer

    def _stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        offsets = ints_of(rows.column(OFFSET_DELTA_FIELD.name), np.int32).astype(np.int64)
        columns = {name: rows.column(name) for name in RECORD_SCHEMA.names}
        columns[OFFSET_FIELD.name] = int_array(offsets + self._base_offset, pa.int64())
        columns[PARTITION_FIELD.name] = pa.repeat(self._partition, len(offsets))
        if self._typed is not None:
            columns |= self._typed.columns(columns["value"])
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    def _row_group(
        self, position: int, size_bytes: int, rows: pa.RecordBatch, headers: Sequence[BatchHeader]
    ) -> RowGroup:
        """Return the entry of a row group; its headers have no position yet."""
        times_us = times_us_of(rows)
        first, last = headers[0].base_offset_delta, headers[-1].last_offset_delta
        has_gaps = first != self._next_delta or any(header.has_gaps for header in headers)
        follows = all(
            header.base_offset_delta == before.last_offset_delta + 1
            for before, header in pairwise(headers)
        )
        null_columns = sum(
            1 << at
            for at, name in enumerate(RECORD_SCHEMA.names)
            if rows.column(name).null_count == rows.num_rows
        )
        return RowGroup(
            position,
            size_bytes,
            -1,
            len(self._held[-1]),
            rows.num_rows,
            first,
            last,
            int(times_us.min()) if len(times_us) else NO_TIMESTAMP,
            int(times_us.max()) if len(times_us) else NO_TIMESTAMP,
            null_columns,
            has_gaps or not follows,
        )

    def _write_held(self) -> None:
        """Write the header blocks that are held."""
        self._opened(NO_RECORDS)
        first = len(self._row_groups) - len(self._held)
        for at, block in enumerate(self._held, first):
            position = self._file.tell()
            self._row_groups[at] = self._row_groups[at]._replace(headers_position=position)
            self._file.write(block)
        self._held.clear()

    def _note_times(self, records: pa.RecordBatch, headers: Sequence[BatchHeader]) -> None:
        latest_us = latest_timestamp_us(headers)
        if latest_us is not None:
            known_us = self._max_timestamp_us
            self._max_timestamp_us = latest_us if known_us is None else max(latest_us, known_us)
        if records.num_rows:
            least_us = int(times_us_of(records).min())
            known_us = self._min_timestamp_us
            self._min_timestamp_us = least_us if known_us is None else min(least_us, known_us)


def _repeats(keys: pa.Array) -> bool:
    """Return whether keys occur often enough for a dictionary, as far as the first ones tell."""
    sample = keys.slice(0, _SAMPLE_ROWS)
    count = len(sample) - int(sample.null_count)
    return count > 0 and int(pc.count_distinct(sample).as_py()) * _ROWS_A_KEY <= count


def _writer_options(schema: pa.Schema, *, has_key_dictionary: bool) -> dict[str, object]:
    """Return the options of pyarrow's writer for a file.

    Typed columns are mostly read without the value. They, and the keys then, have dictionaries; the
    writer stops to use one when it becomes large.
    """
    typed = [path for field in list(schema)[len(PARQUET_SCHEMA) :] for path in leaf_paths(field)]
    if not typed:
        return WRITER_OPTIONS | {"use_dictionary": ["key"] if has_key_dictionary else False}
    return WRITER_OPTIONS | {
        "use_dictionary": ["key", *typed],
        "write_statistics": ["offset", "timestamp", *typed],
    }


def _without_control(
    records: pa.RecordBatch, headers: Sequence[BatchHeader]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows that are no control records, and the control records."""
    if not any(header.is_control and header.record_count for header in headers):
        return records, NO_RECORDS
    is_control = np.repeat(
        [header.is_control for header in headers], [header.record_count for header in headers]
    )
    return records.filter(bool_array(~is_control)), records.filter(bool_array(is_control))
