"""The columns of a read: those of Spark's Kafka connector, or a subset."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_log.errors import InvalidOptionError, nearest

HEADERS_FIELD = StructField(
    "headers",
    ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())]),
    ),
)
READ_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of Spark's Kafka connector. The option ``includeHeaders`` adds `HEADERS_FIELD`."""


def read_schema(include_headers: bool) -> StructType:
    """Return the columns of a read for which the user gives no schema."""
    return StructType([*READ_SCHEMA.fields, *([HEADERS_FIELD] if include_headers else [])])


def check_columns(schema: StructType) -> list[str]:
    """Return the column names of a schema given by the user: any subset, in any order.

    Raises:
        InvalidOptionError: a column does not exist or has another type.
    """
    full = {field.name: field for field in [*READ_SCHEMA.fields, HEADERS_FIELD]}
    for field in schema.fields:
        if field.name not in full:
            close = nearest(field.name, full)
            raise InvalidOptionError(
                f"column {field.name!r} does not exist; "
                + (f"did you mean {close[0]!r}? " if close else "")
                + f"the columns are {', '.join(full)}",
                key="schema",
            )
        if field.dataType.simpleString() != full[field.name].dataType.simpleString():
            raise InvalidOptionError(
                f"column {field.name!r} has type {full[field.name].dataType.simpleString()}, but "
                f"the given schema says {field.dataType.simpleString()}; cast it after reading",
                key="schema",
            )
    return list(schema.names)
