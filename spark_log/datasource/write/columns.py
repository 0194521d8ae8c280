"""The columns of a write, and their conversion to records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from spark_log.errors import InvalidRecordError
from spark_log.record import RECORD_SCHEMA, TIMESTAMP_TYPE, bools_of, ints_of, timestamp_array

_COLUMN_TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "double"),
}
"""Types that Spark's Kafka connector accepts. A double is a number of seconds since the epoch."""


def check_columns(schema: StructType, topic: str | None) -> list[str]:
    """Check a DataFrame's columns.

    Columns with other names, and a ``timestamp`` of another type, are ignored as by the connector.

    Args:
        schema: the DataFrame's schema.
        topic: topic of the option ``topic``; None if it is not set.

    Returns:
        Warnings, one sentence each.

    Raises:
        InvalidRecordError: a column is missing or has an unsupported type.
    """
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise no_value_column(types)
    if topic is None and "topic" not in types:
        raise InvalidRecordError(
            "no topic: set the option 'topic', or add a column 'topic' of type string"
        )
    warnings: list[str] = []
    for name, allowed in _COLUMN_TYPES.items():
        if name == "topic" and topic is not None:
            continue  # the option wins, whatever the column is
        if name not in types or types[name].simpleString() in allowed:
            continue
        wrong = (
            f"column {name!r} is of type {types[name].simpleString()}, expected "
            f"{' or '.join(allowed)}"
        )
        if name != "timestamp":
            raise InvalidRecordError(f"{wrong}; cast it")
        warnings.append(f"{wrong}; it is ignored, and records get the time of writing. Cast it")
    return warnings


def no_value_column(names: Iterable[str]) -> InvalidRecordError:
    """Return the error for a DataFrame whose columns lack ``value``."""
    return InvalidRecordError(
        f"the DataFrame has no column 'value'; its columns are {', '.join(names) or 'none'}. "
        f"Add one, for example with selectExpr('to_json(struct(*)) AS value')"
    )


def given_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the record columns in Spark's batch, in the types of `RECORD_SCHEMA`.

    Columns that are missing, and a ``timestamp`` of a type that `check_columns` ignores, are left
    out. `to_records` adds them after the rows are sorted, so that their nulls are not sorted, too.
    """
    names = batch.schema.names
    columns = {
        name: batch.column(name).cast(RECORD_SCHEMA.field(name).type)
        for name in ("key", "value", "headers")
        if name in names
    }
    given = batch.schema.field("timestamp").type if "timestamp" in names else None
    if given == pa.float64():
        columns["timestamp"] = _from_seconds(batch.column("timestamp"))
    elif given is not None and pa.types.is_timestamp(given) and given.tz is not None:
        columns["timestamp"] = batch.column("timestamp").cast(TIMESTAMP_TYPE)
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def to_records(given: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """Return the columns of `given_columns` as a batch of `RECORD_SCHEMA`.

    Missing columns are null. Missing timestamps are ``now_us`` (microseconds since the epoch).
    """
    names, rows = given.schema.names, given.num_rows
    arrays = [
        given.column(field.name) if field.name in names else pa.nulls(rows, field.type)
        for field in RECORD_SCHEMA
    ]
    timestamps = arrays[-1]
    if timestamps.null_count:
        times_us = np.full(rows, now_us, np.int64)
        if timestamps.null_count < rows:
            known = bools_of(timestamps.is_valid())
            times_us[known] = ints_of(timestamps, np.int64)[known]
        arrays[-1] = timestamp_array(times_us)
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def _from_seconds(seconds: pa.Array) -> pa.Array:
    """Return doubles as timestamps, as Spark casts them: NaN and infinity become null."""
    import pyarrow.compute as pc  # imported here: the driver does not need it

    finite = pc.if_else(pc.is_finite(seconds), seconds, None)
    microseconds = pc.trunc(pc.multiply(finite, 1e6))
    return microseconds.cast(pa.int64()).cast(TIMESTAMP_TYPE)
