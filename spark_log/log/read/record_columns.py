"""Batches of a log as record batches with the columns that reads have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa

from spark_log.log.segment import LogBatch
from spark_log.record import RECORD_SCHEMA, int_array, int_scalar, text_scalar

_MIN_ROWS: Final = 8_192
"""Smaller batches are joined: each batch costs the JVM about 0.1 ms."""


class RecordColumns:
    """Adds the columns that are not stored: topic, partition, offset and timestamp type."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        """Return batches with some columns.

        Args:
            topic: name of the topic.
            partition: number of the partition.
            schema: columns of `record.READ_SCHEMA`, in any order. The batches need the stored ones.
        """
        self._schema = schema
        self._topic = RepeatedValue(text_scalar(topic))
        self._partition = RepeatedValue(int_scalar(partition, pa.int32()))
        self._timestamp_types = [RepeatedValue(int_scalar(kind, pa.int32())) for kind in (0, 1)]

    def of(self, batch: LogBatch) -> pa.RecordBatch:
        """Return the rows of a batch."""
        rows = batch.records.num_rows
        made: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._topic.repeated(rows),
            "partition": lambda: self._partition.repeated(rows),
            "offset": lambda: int_array(batch.offsets(), pa.int64()),
            "timestampType": lambda: self._timestamp_types[batch.timestamp_type].repeated(rows),
        }
        arrays = [
            made[name]() if name in made else batch.records.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class RepeatedValue:
    """A column with one value, sliced from the longest array so far."""

    def __init__(self, value: pa.Scalar) -> None:
        """Build no array yet.

        Args:
            value: the value.
        """
        self._value = value
        self._array = pa.repeat(value, 0)

    def repeated(self, length: int) -> pa.Array:
        """Return an array of this length; a longer one than before is built."""
        if length > len(self._array):
            self._array = pa.repeat(self._value, length)
        return self._array.slice(0, length)


def stored_columns(columns: Collection[str]) -> list[str] | None:
    """Return the stored columns to read for some columns of a read; None for whole records.

    At least one is returned, since rows are counted by it. Checksums cover whole records. If only
    headers are missing, they are read as well (they are mostly null), so that the checksum can be
    verified.

    Args:
        columns: names of columns of `record.READ_SCHEMA`.
    """
    stored = [name for name in RECORD_SCHEMA.names if name in columns]
    if {*stored, "headers"} == set(RECORD_SCHEMA.names):
        return None
    return stored or ["timestamp"]


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield small batches joined into larger ones, and none without rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _MIN_ROWS:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
