"""Records of simulated logs, and how they are written to Arrow and read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_log.consumer.fetch import BatchSlice
from spark_log.log import LogBatch
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a simulation; its value is unique."""

    value: bytes
    timestamp_us: int


def record_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Return records as an Arrow record batch of `RECORD_SCHEMA`."""
    columns = [
        pa.nulls(len(records), pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.nulls(len(records), HEADERS_TYPE),
        pa.array([record.timestamp_us for record in records], pa.int64()).view(TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def columns_of(rows: LogBatch | BatchSlice, *names: str) -> list[list[Any]]:
    """Return the offsets of consecutive rows, and the values of these columns; times in µs."""
    column = rows.column if isinstance(rows, BatchSlice) else rows.records.column
    columns = [column(name) for name in names]
    return [
        rows.offsets().tolist(),
        *(
            (each.view("int64") if each.type == TIMESTAMP_TYPE else each).to_pylist()
            for each in columns
        ),
    ]


def records_of(batches: Iterable[LogBatch | BatchSlice], offset: int) -> list[Record]:
    """Return the records of consecutive batches that begin at an offset.

    The value of a record at an unexpected offset is marked, so that it matches no written record.
    """
    records: list[Record] = []
    for batch in batches:
        for at, value, timestamp_us in zip(*columns_of(batch, "value", "timestamp"), strict=True):
            is_next = at == offset + len(records)
            records.append(Record(value if is_next else b"at %d: " % at + value, timestamp_us))
    return records
