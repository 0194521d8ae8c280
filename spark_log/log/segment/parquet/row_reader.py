"""Reads single rows of a Parquet segment, by the pages that have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.log.segment.parquet.pages import Page, PageTable
from spark_log.log.segment.parquet.source import Chunks, ParquetSource
from spark_log.log.segment.parquet.typed_columns import LeftOutValues
from spark_log.log.segment.parquet.writer import OFFSET_FIELD, PAGED_LEAVES
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, int_array

_NEAR_BYTES: Final = 524_288
"""Bytes between two wanted pages that are read with them. Pages of offsets, timestamps and keys lie
near each other; a request to an object store takes longer than such a range."""


_HEADERS: Final = tuple(path for path in PAGED_LEAVES if path[0] == "headers")


class RowReader:
    """Reads rows of a Parquet segment by their numbers. Control records are not counted.

    A typed column that is nested has no pages here: its column chunk is read.

    Attributes:
        table: the pages.
    """

    def __init__(
        self,
        source: ParquetSource,
        table: PageTable,
        ends: np.ndarray,
        null_columns: np.ndarray,
        left_out: LeftOutValues | None,
        read_chunks: Callable[[int, Sequence[str]], pa.Table],
    ) -> None:
        """Read nothing yet.

        Args:
            source: the bytes of the file.
            table: the pages of the file.
            ends: number of the row after the last, of each row group.
            null_columns: bits of the columns of `RECORD_SCHEMA` that have only nulls, of each row
                group.
            left_out: the values that the file left out; None if it has all.
            read_chunks: reads columns of a row group.
        """
        self._source = source
        self.table = table
        self._ends = ends
        self._null_columns = null_columns
        self._left_out = left_out
        self._read_chunks = read_chunks

    def read(self, row: int, *, with_offset: bool) -> tuple[int, pa.RecordBatch]:
        """Return a row: its offset, and a batch of one row with the columns of `RECORD_SCHEMA`.

        Args:
            row: the row's number.
            with_offset: whether the offset is read; else it is -1.

        Raises:
            ValueError, OSError, pa.ArrowException: the file is damaged.
        """
        group = int(np.searchsorted(self._ends, row, "right"))
        if row < 0 or group == len(self._ends):
            raise ValueError(f"it has no row {row}")
        nulls = int(self._null_columns[group])
        names = [name for at, name in enumerate(RECORD_SCHEMA.names) if not nulls >> at & 1]
        if with_offset:
            names.append(OFFSET_FIELD.name)
        left_out = self._left_out if "value" in names else None
        if left_out is not None:
            names += left_out.columns
        columns = self._columns(names, row, group)
        if left_out is not None:
            columns["value"] = left_out.give_back(columns["value"], columns)
        offset = columns[OFFSET_FIELD.name][0].as_py() if with_offset else -1
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(1, field.type)
            for field in RECORD_SCHEMA
        ]
        return offset, pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)

    def _columns(self, names: Sequence[str], row: int, group: int) -> dict[str, pa.Array]:
        pages: dict[str, list[Page]] = {}
        for name in names:
            paths = _HEADERS if name == "headers" else ((name,),)
            found = [self.table.find(path, row) for path in paths]
            pages[name] = [page for page in found if page is not None]
        self._source.prepare(self._chunks([page for found in pages.values() for page in found]))
        columns = {name: self._decode(name, found) for name, found in pages.items() if found}
        nested = [name for name, found in pages.items() if not found]
        if nested:
            first = int(self._ends[group - 1]) if group else 0
            table = self._read_chunks(group, nested).slice(row - first, 1)
            for name in nested:
                columns[name] = pa.concat_arrays(table.column(name).chunks)
        return columns

    def _decode(self, name: str, pages: Sequence[Page]) -> pa.Array:
        values = [
            page.decode([memoryview(self._source.read(*chunk)) for chunk in page.chunks])
            for page in pages
        ]
        if name == "headers":
            return _headers_of(*values)
        at = RECORD_SCHEMA.get_field_index(name)
        return values[0] if at < 0 else values[0].cast(RECORD_SCHEMA.field(at).type)

    def _chunks(self, pages: Sequence[Page]) -> Chunks:
        """Return the parts of the file with some pages; near ones are joined."""
        if self._source.is_in_memory:
            return []
        merged: list[tuple[int, int]] = []
        for start, end in sorted(chunk for page in pages for chunk in page.chunks):
            if merged and start <= merged[-1][1] + _NEAR_BYTES:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


def _headers_of(keys: pa.ListArray, values: pa.ListArray) -> pa.Array:
    """Return the headers of a record from their names and their values.

    Args:
        keys: a list of structs with a key each.
        values: a list of structs with a value each.

    Raises:
        ValueError: the two do not belong together.
    """
    inner = HEADERS_TYPE.value_type
    if keys.null_count:
        return pa.nulls(1, HEADERS_TYPE)
    parts = [keys.flatten(), values.flatten()]
    if len(parts[0]) != len(parts[1]):
        raise ValueError(
            f"a record has {len(parts[0])} keys of headers, and {len(parts[1])} values"
        )
    columns = [
        pc.struct_field(part, [0]).cast(inner.field(at).type) for at, part in enumerate(parts)
    ]
    structs = pa.StructArray.from_arrays(columns, fields=list(inner), mask=parts[0].is_null())
    offsets = int_array([0, len(structs)], pa.int32())
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)
