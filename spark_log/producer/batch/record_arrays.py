"""Converts single records and users' tables to Arrow record batches of `RECORD_SCHEMA`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidRecordError
from spark_log.producer.batch.producer_batch import RECORD_FIELDS
from spark_log.record import (
    HEADERS_TYPE,
    MOST_SMALL_ROWS,
    RECORD_SCHEMA,
    SmallBatch,
    binary_array,
    bools_of,
    ints_of,
    timestamp_array,
)

PARTITION_COLUMN: Final = "partition"
_TYPES: Final = {field.name: field.type for field in RECORD_SCHEMA}


def record_batch(records: Sequence[Any]) -> pa.RecordBatch:
    """Return a flat list of records as one Arrow batch of `RECORD_SCHEMA`.

    Args:
        records: key, value, headers and timestamp (nanoseconds) of each record, one after another.
    """
    times_us = np.array(records[3::RECORD_FIELDS], np.int64) // 1000
    return pa.RecordBatch.from_arrays(
        [
            binary_array(records[0::RECORD_FIELDS]),
            binary_array(records[1::RECORD_FIELDS]),
            _header_array(records[2::RECORD_FIELDS]),
            timestamp_array(times_us),
        ],
        schema=RECORD_SCHEMA,
    )


def small_batch(records: Sequence[Any]) -> SmallBatch | None:
    """Return a flat list of few records as the buffers of one batch; None for other records.

    Args:
        records: key, value, headers and timestamp (nanoseconds) of each record, one after another.
    """
    if len(records) > MOST_SMALL_ROWS * RECORD_FIELDS:
        return None
    headers = records[2::RECORD_FIELDS]
    if headers.count(None) < len(headers):
        return None
    times_us = (time_ns // 1000 for time_ns in records[3::RECORD_FIELDS])
    return SmallBatch.of_records(records[0::RECORD_FIELDS], records[1::RECORD_FIELDS], times_us)


def check_is_table(table: object) -> None:
    """Check that a user's argument is an Arrow table or record batch.

    Raises:
        InvalidRecordError: the argument is of another type.
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidRecordError(
            f"a {type(table).__name__} is no table; give a pyarrow Table or RecordBatch, such as "
            f"pa.table({{'value': [b'one', b'two']}}), or pa.Table.from_pandas(frame)"
        )


def table_records(table: pa.Table | pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """Return a user's table as one Arrow batch of `RECORD_SCHEMA`, without copying if possible.

    Args:
        table: a table with the columns ``value``, ``key`` (binary or text), ``headers`` and
            ``timestamp``. Any column may be missing, but not both ``key`` and ``value``. A column
            ``partition`` is ignored.
        now_us: the timestamp of rows without one.

    Raises:
        InvalidRecordError: the table has other columns, or columns of a wrong type.
    """
    known = {*_TYPES, PARTITION_COLUMN}
    names = table.schema.names
    unknown = [name for name in names if name not in known]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if unknown or doubled or not {"key", "value"} & {*names}:
        what = (
            f"unknown columns {', '.join(unknown)}"
            if unknown
            else f"columns {', '.join(doubled)} appear twice"
            if doubled
            else "there is neither a column value nor a column key"
        )
        raise InvalidRecordError(
            f"{what}; a table of records has some of the columns {', '.join(sorted(known))}: "
            f"select and rename the columns to send"
        )
    count = table.num_rows
    columns = [_column(table, name, kind) for name, kind in _TYPES.items()]
    if columns[3] is None:
        columns[3] = timestamp_array(np.full(count, now_us, np.int64))
    elif columns[3].null_count:
        is_given = bools_of(columns[3].is_valid())
        columns[3] = timestamp_array(np.where(is_given, ints_of(columns[3], np.int64), now_us))
    filled = [
        pa.nulls(count, kind) if column is None else column
        for column, kind in zip(columns, _TYPES.values(), strict=True)
    ]
    headers = filled[2]
    if headers.null_count < count:
        items = headers.flatten()
        if items.null_count or items.field(0).null_count:
            raise InvalidRecordError("a record header has no name; every header needs one")
    return pa.RecordBatch.from_arrays(filled, schema=RECORD_SCHEMA)


def partition_column(table: pa.Table | pa.RecordBatch, partitions: int) -> np.ndarray | None:
    """Return the column ``partition`` as int32, -1 for null; None if the table does not have it.

    Raises:
        InvalidRecordError: a number is not one of the topic's partitions.
    """
    if PARTITION_COLUMN not in table.schema.names:
        return None
    column = _column(table, PARTITION_COLUMN, pa.int64())
    valid = bools_of(column.is_valid())
    chosen = np.where(valid, ints_of(column, np.int64), -1)
    wrong = chosen[valid & ((chosen < 0) | (chosen >= partitions))]
    if len(wrong):
        raise InvalidRecordError(
            f"column partition has {wrong[0]}, but the topic's partitions are 0 to {partitions - 1}"
        )
    return chosen.astype(np.int32)


def _column(table: pa.Table | pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
    """Return a column as one array, cast to a type; None if the column is missing."""
    if name not in table.schema.names:
        return None
    column = table.column(name)
    try:
        if not column.type.equals(kind):
            column = column.cast(kind)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(column, pa.ChunkedArray):
            raise pa.ArrowInvalid("more than 2 GiB")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecordError(
            f"column {name} of type {table.schema.field(name).type} cannot be cast to {kind}: "
            f"{str(error).splitlines()[0]}"
        ) from None
    return column


def _header_array(headers: Sequence[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    if headers.count(None) == len(headers):
        return pa.nulls(len(headers), HEADERS_TYPE)
    made = [
        None if items is None else [{"key": name, "value": value} for name, value in items]
        for items in headers
    ]
    return pa.array(made, HEADERS_TYPE)
