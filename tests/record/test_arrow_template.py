"""A file made from a template has the bytes that Arrow's writer writes."""

from dataclasses import replace

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
    arrow_ipc,
    batch_crc32c,
    content_crc32c,
    encode_check,
    encode_headers,
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
    @given(st.lists(taken, min_size=1, max_size=4))
    def test_several_batches_are_joined_as_if_their_records_were_one(self, batches):
        joined = SmallBatch.joined([small_of(rows) for rows in batches])
        assert joined == small_of([row for rows in batches for row in rows])

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


def file_of(rows, compression="none", **fields):
    """The file of a small batch, and its header."""
    small, append_id = small_of(rows), new_append_id()
    assert small is not None
    header = header_of(small.records(), **fields)
    header = replace(header, crc32c=small.crc32c(header))
    value = encode_headers([header])
    check = encode_check(append_id, value, None)
    file = file_template(TOPIC_ID, 7).fill(append_id, value, check, small, compression)
    return file, append_id, header, small


class TestRead:
    @settings(deadline=None)
    @given(taken)
    @example([{"key": None, "value": None, "timestamp": 1}] * MOST_SMALL_ROWS)
    def test_what_was_filled_in_is_found(self, rows):
        file, append_id, header, small = file_of(rows)
        found = file_template(TOPIC_ID, 7).read(file)
        assert found is not None
        assert (found.append_id, found.header, found.batch) == (append_id, header, small)
        with ipc.open_file(file) as arrow:
            records = arrow.get_batch(0)
        assert found.batch.records().equals(records.replace_schema_metadata(None))
        block = arrow_ipc.read_blocks(memoryview(file)[-arrow_ipc.footer_bytes(memoryview(file)) :])
        assert (found.position, found.body_bytes) == (block[0].position, block[0].body_bytes)

    @settings(deadline=None)
    @given(taken)
    def test_keys_and_values_are_those_of_the_records(self, rows):
        small = small_of(rows)
        assert small is not None
        assert [small.texts(0), small.texts(1)] == [
            [row[name] for row in rows] for name in ("key", "value")
        ]

    def test_no_bit_that_flips_is_overlooked(self):
        rows = [{"key": None, "value": b"v" * 9, "timestamp": time} for time in (1, 2)]
        file, template = file_of(rows)[0], file_template(TOPIC_ID, 7)
        assert template.read(file) is not None
        for bit in range(8 * len(file)):
            damaged = bytearray(file)
            damaged[bit // 8] ^= 1 << bit % 8
            assert template.read(bytes(damaged)) is None, bit

    def test_a_file_that_ends_early_or_late_is_left_to_arrow(self):
        file = file_of([{"key": b"k", "value": b"v", "timestamp": 1}])[0]
        template = file_template(TOPIC_ID, 7)
        for other in (b"", file[:-1], file[:-8], file[:1_000], file + bytes(8), file * 2):
            assert template.read(other) is None

    def test_that_of_another_partition_or_topic_is_left_to_arrow(self):
        file = file_of([{"key": b"k", "value": b"v", "timestamp": 1}])[0]
        assert file_template(TOPIC_ID, 8).read(file) is None
        assert file_template(TOPIC_ID[::-1], 7).read(file) is None

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_a_compressed_one_is_read(self, compression):
        rows = [{"key": b"k", "value": b"v" * 99, "timestamp": 1}]
        file, append_id, header, small = file_of(rows, compression)
        found = file_template(TOPIC_ID, 7).read(file)
        assert found is not None
        assert (found.append_id, found.header) == (append_id, header)
        assert found.compression == compression
        assert (found.batch.content, found.batch.texts(1)) == (small.content, [b"v" * 99])

    @pytest.mark.parametrize("fields", [{"record_count": 2}, {"last_offset_delta": 1}])
    def test_headers_that_do_not_fit_the_rows_are_left_to_arrow(self, fields):
        file, append_id, header, small = file_of([{"key": b"k", "value": b"v", "timestamp": 1}])
        template = file_template(TOPIC_ID, 7)
        assert template.read(file) is not None
        value = encode_headers([replace(header, **fields)])
        check = encode_check(append_id, value, None)
        assert template.read(template.fill(append_id, value, check, small, "none")) is None


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
