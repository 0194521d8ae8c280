"""Records for tests: written by hand, numbered, or drawn by Hypothesis."""

import pyarrow as pa
from hypothesis import strategies as st

from spark_log.record.batch_header import BatchHeader
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

START_US = 1_700_000_000_000_000

timestamps_us = st.integers(-(2**62), 2**62)
keys = st.none() | st.binary(max_size=12)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=4), "value": st.none() | st.binary(max_size=6)}),
    max_size=3,
)
rows = st.fixed_dictionaries(
    {
        "key": keys,
        "value": st.none() | st.binary(max_size=40),
        "headers": headers,
        "timestamp": timestamps_us,
    }
)
row_lists = st.lists(rows, min_size=1, max_size=12)


def row(value=b"value", key=None, headers=None, timestamp=START_US):
    """One record; headers as ``[(name, value), …]``, the timestamp in microseconds."""
    if headers is not None:
        headers = [{"key": name, "value": content} for name, content in headers]
    return {"key": key, "value": value, "headers": headers, "timestamp": timestamp}


def record_batch(rows):
    """Return rows of `row` or the strategy as a record batch."""
    columns = [
        pa.array([row["key"] for row in rows], pa.binary()),
        pa.array([row["value"] for row in rows], pa.binary()),
        pa.array([row["headers"] for row in rows], HEADERS_TYPE),
        pa.array([row["timestamp"] for row in rows], TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def rows_of(records):
    """Return the rows of a record batch in the form of `row`."""
    columns = [
        records.column("key").to_pylist(),
        records.column("value").to_pylist(),
        records.column("headers").to_pylist(),
        records.column("timestamp").cast(pa.int64()).to_pylist(),
    ]
    names = ("key", "value", "headers", "timestamp")
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def numbered(first, count, *, mark="record", value_bytes=0):
    """Return a batch of distinct records: value ``mark:number``, timestamps one ms apart."""
    return record_batch(
        [
            row(f"{mark}:{number}".encode().ljust(value_bytes), timestamp=START_US + number * 1_000)
            for number in range(first, first + count)
        ]
    )


def header_of(rows, **fields):
    """Return the header of a batch with exactly these rows."""
    times_us = [row["timestamp"] for row in rows]
    described = {
        "base_offset_delta": 0,
        "last_offset_delta": len(rows) - 1,
        "leader_epoch": 0,
        "attributes": 0,
        "crc32c": 0,
        "base_timestamp_us": times_us[0],
        "max_timestamp_us": max(times_us),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": len(rows),
    }
    return BatchHeader(**{**described, **fields})
