"""Reading in Spark tasks: each split streams its records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
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

from spark_log.datasource.options import ReadOptions
from spark_log.datasource.splits import LogSplit, plan_splits
from spark_log.errors import InvalidOptionError, nearest
from spark_log.log import LogBatch, PartitionLog
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage import open_store

_MIN_ROWS = 8_192
"""Smaller batches are joined before they are handed to Spark: each costs the JVM about 0.1 ms."""

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
"""The columns of Spark's Kafka connector; `HEADERS_FIELD` follows with ``includeHeaders``."""

_ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}


def read_schema(include_headers: bool) -> StructType:
    """Return the columns that a read has when the user gives no schema."""
    return StructType([*READ_SCHEMA.fields, *([HEADERS_FIELD] if include_headers else [])])


class LogBatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks. Offsets are fixed when the query is planned."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Args: schema: the columns wanted, any subset in any order; options: checked ones.

        Raises:
            InvalidOptionError: a column does not exist or has another type.
        """
        full = {field.name: field for field in [*READ_SCHEMA.fields, HEADERS_FIELD]}
        for field in schema.fields:
            if field.name not in full:
                close = nearest(field.name, full)
                raise InvalidOptionError(
                    f"there is no column {field.name!r}; "
                    + (f"did you mean {close[0]!r}? " if close else "")
                    + f"columns are {', '.join(full)}",
                    key="schema",
                )
            if field.dataType.simpleString() != full[field.name].dataType.simpleString():
                raise InvalidOptionError(
                    f"column {field.name!r} is {full[field.name].dataType.simpleString()}, the "
                    f"schema given says {field.dataType.simpleString()}; cast it after reading",
                    key="schema",
                )
        self._columns = schema.names
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """See `plan_splits`."""
        return plan_splits(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the split's records."""
        if not isinstance(partition, LogSplit):
            return  # Spark calls read(None) when there is no split at all
        log = PartitionLog(
            open_store(self._options.root, self._options.storage_options),
            partition.directory,
            topic_id=partition.topic_id,
            partition=partition.partition,
        )
        stored = [name for name in RECORD_SCHEMA.names if name in self._columns]
        # Checksums cover whole records. Headers are the one column that a full read may leave
        # out, and mostly null: read them too, so that it is checked.
        whole = {*stored, "headers"} == set(RECORD_SCHEMA.names)
        batches = log.scan(
            partition.start_offset,
            partition.end_offset,
            columns=None if whole else stored or ["timestamp"],
            check_crcs=self._options.check_crcs,
        )
        assemble = _Assembler(self._columns, partition.topic, partition.partition)
        yield from _joined(map(assemble, batches))


class _Assembler:
    """Adds the columns that are not stored: constants are made once and sliced."""

    def __init__(self, columns: Sequence[str], topic: str, partition: int) -> None:
        self._schema = pa.schema([(name, _ARROW_TYPES[name]) for name in columns])
        self._topic = _Constant(pa.scalar(topic, pa.string()))
        self._partition = _Constant(pa.scalar(partition, pa.int32()))
        self._timestamp_types = [_Constant(pa.scalar(kind, pa.int32())) for kind in (0, 1)]

    def __call__(self, batch: LogBatch) -> pa.RecordBatch:
        rows = batch.records.num_rows
        made: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._topic(rows),
            "partition": lambda: self._partition(rows),
            "offset": lambda: pa.array(batch.offsets()),
            "timestampType": lambda: self._timestamp_types[batch.timestamp_type](rows),
        }
        arrays = [
            made[name]() if name in made else batch.records.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Constant:
    """One value as an array of any length, without making it again each time."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._array = pa.repeat(value, 0)

    def __call__(self, length: int) -> pa.Array:
        if length > len(self._array):
            self._array = pa.repeat(self._value, length)
        return self._array.slice(0, length)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _MIN_ROWS:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
