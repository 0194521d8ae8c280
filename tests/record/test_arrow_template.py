"""A file made from a template has the bytes that Arrow's writer writes."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from spark_log.producer.batch.record_arrays import record_batch
from spark_log.record import (
    CHECK_KEY,
    METADATA_KEY,
    MOST_SMALL_ROWS,
    RECORD_SCHEMA,
    SmallBatch,
    batch_crc32c,
    content_crc32c,
    file_template,
    new_append_id,
    segment_schema,
    write_options,
)
from spark_log.record.batch_check import COLUMN_SUMS_BYTES
from spark_log.record.batch_header import BatchHeader

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"

texts = st.binary(max_size=40)
no_headers = st.none()
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | texts}), max_size=3
)
times = st.integers(0, 2**53)


def columns_of(keys, values, of_headers):
    row = st.fixed_dictionaries(
        {"key": keys, "value": values, "headers": of_headers, "timestamp": times}
    )
    return st.lists(row, min_size=1, max_size=20)


taken = st.sampled_from([st.none(), texts]).flatmap(
    lambda keys: st.sampled_from([st.none(), texts]).flatmap(
        lambda values: columns_of(keys, values, no_headers)
    )
)
"""Rows of which each column is null everywhere or nowhere."""

any_rows = columns_of(st.none() | texts, st.none() | texts, headers)


def batch_of(rows):
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def flat_batch_of(rows):
    """Rows without headers as a producer made an Arrow batch of them."""
    flat = [(row["key"], row["value"], None, row["timestamp"] * 1_000) for row in rows]
    return record_batch([field for each in flat for field in each])


def small_of(rows):
    columns = ([row[name] for row in rows] for name in ("key", "value", "timestamp"))
    return SmallBatch.of_records(*columns)


def written_by_arrow(append_id, value, check, records, compression):
    schema = segment_schema(TOPIC_ID, 7, append_id=append_id)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=write_options(compression)) as writer:
        writer.write_batch(
            records.replace_schema_metadata(schema.metadata),
            custom_metadata={METADATA_KEY: value, CHECK_KEY: check},
        )
    return sink.getvalue().to_pybytes()


def header_of(records, **fields):
    count = records.num_rows
    return BatchHeader(0, count - 1, 3, 8, 0, 5, 6, 7, 1, 9, count, **fields)


class TestFill:
    @settings(deadline=None)
    @given(
        rows=taken | any_rows,
        compression=st.sampled_from(["none", "lz4", "zstd"]),
        value=st.binary(min_size=1, max_size=3).map(lambda text: text.hex().encode() * 36),
        check=st.binary(min_size=4, max_size=4).map(lambda text: text.hex().encode()),
    )
    @example(rows=[{"timestamp": 1}] * 9, compression="zstd", value=b"v" * 72, check=b"c" * 8)
    def test_the_bytes_are_those_of_arrows_writer(self, rows, compression, value, check):
        records, append_id = batch_of(rows), new_append_id()
        small = SmallBatch.of(records)
        if small is not None:
            made = file_template(TOPIC_ID, 7).fill(append_id, value, check, small, compression)
            assert made == written_by_arrow(append_id, value, check, records, compression)

    @settings(deadline=None)
    @given(taken)
    def test_batches_whose_columns_are_null_everywhere_or_nowhere_are_taken(self, rows):
        assert SmallBatch.of(batch_of(rows)) is not None

    @settings(deadline=None)
    @given(taken)
    def test_the_content_has_the_checksum_of_the_records(self, rows):
        records = batch_of(rows)
        small = SmallBatch.of(records)
        assert small is not None
        header = header_of(records)
        count = records.num_rows
        fields = (count - 1, 3, 8, 5, 6, 7, 1, 9, count)
        assert content_crc32c(*fields, content=small.content) == batch_crc32c(header, records)


class TestOfRecords:
    @settings(deadline=None)
    @given(rows=taken, compression=st.sampled_from(["none", "lz4", "zstd"]))
    @example(rows=[{"key": None, "value": None, "timestamp": 1}] * 9, compression="none")
    @example(rows=[{"key": b"", "value": b"", "timestamp": 1}] * 9, compression="zstd")
    def test_the_bytes_are_those_of_an_arrow_batch_of_them(self, rows, compression):
        small, records = small_of(rows), flat_batch_of(rows)
        assert small is not None
        assert small == SmallBatch.of(records)
        assert small.records().equals(records)
        append_id, value, check = new_append_id(), b"v" * 72, b"c" * 8
        by_arrow = written_by_arrow(append_id, value, check, records, compression)
        template = file_template(TOPIC_ID, 7)
        assert template.fill(append_id, value, check, small, compression) == by_arrow
        assert written_by_arrow(append_id, value, check, small.records(), compression) == by_arrow

    @settings(deadline=None)
    @given(taken)
    def test_the_timestamps_are_those_of_the_records(self, rows):
        small, times_us = small_of(rows), [row["timestamp"] for row in rows]
        assert small is not None
        assert small.times_us().tolist() == times_us
        assert small.time_range_us() == (times_us[0], min(times_us), max(times_us))

    @pytest.mark.parametrize(
        "rows",
        [
            [{"key": b"k", "value": None, "timestamp": 1}, {"key": None, "value": None}],
            [{"key": None, "value": b"v", "timestamp": 1}, {"key": None, "value": None}],
            [{"key": None, "value": b"v" * COLUMN_SUMS_BYTES}],
            [{"key": b"k" * 8_192, "value": b"v" * 8_192}],
            [{"key": None, "value": None}] * (MOST_SMALL_ROWS + 1),
        ],
        ids=["some keys", "some values", "large", "both large", "many"],
    )
    def test_others_are_left_to_arrow(self, rows):
        assert small_of([{"timestamp": 1, **row} for row in rows]) is None

    @pytest.mark.parametrize("value_bytes", range(200, 400, 20))
    def test_a_batch_that_is_taken_is_small_in_arrow_too(self, value_bytes):
        """Otherwise it would have column sums there, and its file other bytes."""
        for count in (1, 8, 9, 64, 65, MOST_SMALL_ROWS):
            rows = [{"key": b"k", "value": b"v" * value_bytes, "timestamp": 1}] * count
            assert small_of(rows) in (None, SmallBatch.of(flat_batch_of(rows)))


class TestIsNotTaken:
    @pytest.mark.parametrize(
        "rows",
        [
            [{"key": b"k", "timestamp": 1}, {"timestamp": 2}],
            [{"value": b"v", "timestamp": 1}, {"timestamp": 2}],
            [{"headers": [{"key": "h", "value": b"x"}], "timestamp": 1}],
            [{"headers": [], "timestamp": 1}],
            [{"value": b"v" * COLUMN_SUMS_BYTES, "timestamp": 1}],
        ],
        ids=["some keys", "some values", "headers", "empty headers", "large"],
    )
    def test_others_are_left_to_arrow(self, rows):
        assert SmallBatch.of(batch_of(rows)) is None

    @pytest.mark.parametrize(("first", "count"), [(0, 2), (1, 2), (2, 2)])
    def test_a_slice_is_left_to_arrow(self, first, count):
        rows = [{"key": b"k", "value": b"v", "timestamp": each} for each in range(4)]
        assert SmallBatch.of(batch_of(rows).slice(first, count)) is None
