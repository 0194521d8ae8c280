"""The columns of a write, and their conversion to records."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from spark_log.errors import InvalidRecordError
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_COLUMN_TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp", "double"),
}
"""Types that Spark's Kafka connector takes. A double counts seconds since the epoch."""


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
        raise InvalidRecordError(
            f"the DataFrame has no column 'value'; its columns are {', '.join(types) or 'none'}. "
            f"Add one, for example with selectExpr('to_json(struct(*)) AS value')"
        )
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


def to_records(batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """Return Spark's columns as a batch of `RECORD_SCHEMA`.

    Missing columns are null. Missing timestamps, and timestamps of a type that `check_columns`
    ignores, are ``now_us`` (microseconds since the epoch).
    """
    names = batch.schema.names
    rows = batch.num_rows

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return batch.column(name).cast(kind) if name in names else pa.nulls(rows, kind)

    given = batch.schema.field("timestamp").type if "timestamp" in names else None
    if given == pa.float64():
        timestamps = _from_seconds(batch.column("timestamp"))
    elif given is not None and pa.types.is_timestamp(given) and given.tz is not None:
        timestamps = column("timestamp", TIMESTAMP_TYPE)
    else:  # another type, about which `check_columns` has warned
        timestamps = pa.nulls(rows, TIMESTAMP_TYPE)
    if timestamps.null_count:
        timestamps = pc.fill_null(timestamps, pa.scalar(now_us, TIMESTAMP_TYPE))
    arrays = [
        column("key", pa.binary()),
        column("value", pa.binary()),
        column("headers", HEADERS_TYPE),
        timestamps,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)


def _from_seconds(seconds: pa.Array) -> pa.Array:
    """Return doubles as timestamps, as Spark casts them: NaN and infinity become null."""
    finite = pc.if_else(pc.is_finite(seconds), seconds, None)
    microseconds = pc.trunc(pc.multiply(finite, 1e6))
    return microseconds.cast(pa.int64()).cast(TIMESTAMP_TYPE)
