"""Records as Python values, and as Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_log.record import RECORD_SCHEMA, times_us_of
from tests.gateway.record_batches.kafka_records import Row


def arrow(rows: Sequence[Row], extra_us: int = 0) -> pa.RecordBatch:
    """Return records with the columns of the log; `extra_us` is added to each timestamp."""
    keys, values, headers, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, RECORD_SCHEMA.field("headers").type),
        pa.array([1000 * time + extra_us for time in times], RECORD_SCHEMA.field("timestamp").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def rows_of(records: pa.RecordBatch) -> list[Row]:
    """Return records of the log as Python values; timestamps are exact milliseconds."""
    records.validate(full=True)
    times_us = times_us_of(records).tolist()
    assert all(time % 1000 == 0 for time in times_us)
    headers = [
        None if each is None else [(pair["key"], pair["value"]) for pair in each]
        for each in records.column("headers").to_pylist()
    ]
    keys, values = (records.column(name).to_pylist() for name in ("key", "value"))
    times = [time // 1000 for time in times_us]
    return list(zip(keys, values, headers, times, strict=True))
