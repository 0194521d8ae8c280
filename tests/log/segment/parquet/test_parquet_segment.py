"""A Parquet segment: rows and headers as in an Arrow file, and a plain table for others."""

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from spark_log.errors import CorruptRecordError, InvalidRecordError
from spark_log.log import SegmentReader
from spark_log.log.segment.parquet import writer as parquet_writer_module
from spark_log.record.batch_header import BatchHeader
from spark_log.record.end_transaction_marker import EndTransactionMarker
from spark_log.storage.memory import MemoryStore
from tests.log.segment.parquet.support import (
    batch_of,
    parquet_name,
    parquet_reader,
    parquet_writer,
    put_parquet,
)
from tests.log.support import DIRECTORY, TOPIC_ID, HookedStore, Part, records_of
from tests.record.samples import START_US, row, rows, rows_of

TRANSACTIONAL = BatchHeader.TRANSACTIONAL_BIT
CONTROL = TRANSACTIONAL | BatchHeader.CONTROL_BIT


@pytest.fixture
def store(memory_store):
    return memory_store


def in_parquet(store, name):
    """Return the file as another program reads it."""
    return parquet.read_table(pa.BufferReader(store.open_buffer(f"{DIRECTORY}/{name.file_name}")))


def data(first, count, **fields):
    made = [row(b"v%d" % n, b"k", timestamp=START_US + n) for n in range(first, first + count)]
    return Part(made, list(range(first, first + count)), **fields)


def marker(offset):
    key = EndTransactionMarker(7, 1, is_committed=True).type.key
    return Part(
        [row(b"m", key, timestamp=START_US)],
        [offset],
        attributes=CONTROL,
        producer_id=7,
        producer_epoch=1,
    )


def aborted(first, last):
    return Part([], [], base_delta=first, last_delta=last, attributes=TRANSACTIONAL, producer_id=7)


class TestOthers:
    def test_read_offsets_and_columns_and_nothing_of_the_log(self, store):
        name = parquet_name(last=109, base=100)
        put_parquet(store, [[data(0, 4), marker(4)], [data(5, 5)]], name)
        table = in_parquet(store, name)
        assert table.schema.names == ["offset", "timestamp", "key", "value", "headers", "partition"]
        assert table["offset"].to_pylist() == [100, 101, 102, 103, 105, 106, 107, 108, 109]
        assert table["value"][4].as_py() == b"v5"

    def test_find_statistics_of_offset_and_timestamp_alone_and_a_page_index(self, store):
        name = parquet_name(last=9)
        put_parquet(store, [[data(0, 4)], [data(4, 6)]], name)
        source = pa.BufferReader(store.open_buffer(f"{DIRECTORY}/{name.file_name}"))
        row_group = parquet.read_metadata(source).row_group(1)
        told = {
            row_group.column(at).path_in_schema: row_group.column(at).statistics
            for at in range(row_group.num_columns)
        }
        assert (told["offset"].min, told["offset"].max) == (4, 9)
        assert told["timestamp"].min_raw == START_US + 4
        assert {name for name, found in told.items() if found} == {"offset", "timestamp"}
        assert all(row_group.column(at).has_offset_index for at in range(2))

    @pytest.mark.parametrize(("different", "has_dictionary"), [(3, True), (90, False), (0, False)])
    def test_find_a_dictionary_of_keys_that_repeat(self, store, different, has_dictionary):
        name = parquet_name(last=99)
        made = [row(b"v%d" % n, b"k%d" % (n % different) if different else None) for n in range(99)]
        parts = [marker(0)], [Part(made, list(range(1, 100)))]
        reader = put_parquet(store, parts, name)
        source = pa.BufferReader(store.open_buffer(f"{DIRECTORY}/{name.file_name}"))
        row_group = parquet.read_metadata(source).row_group(0)
        columns = map(row_group.column, range(row_group.num_columns))
        found = {each.path_in_schema for each in columns if each.has_dictionary_page}
        assert found == ({"key"} if has_dictionary else set())
        assert records_of(reader.read(1)) == list(enumerate(rows_of(batch_of(parts[1])[1]), 1))

    def test_never_get_a_row_group_without_rows(self, store):
        name = parquet_name(last=9)
        reader = put_parquet(store, [[marker(0)], [aborted(1, 4)], [data(5, 5)]], name)
        source = pa.BufferReader(store.open_buffer(f"{DIRECTORY}/{name.file_name}"))
        assert parquet.read_metadata(source).num_row_groups == 1
        assert reader.batch_count == 3
        assert [batch.base_offset for batch in reader.read(0)] == [0, 5]


class TestReader:
    def test_reads_rows_headers_and_control_records_as_they_were_written(self, store):
        arrow_batches = [
            [data(0, 3), marker(3), data(4, 2, producer_id=9, base_sequence=5), marker(6)],
            [marker(7)],
            [data(8, 2)],
        ]
        reader = put_parquet(store, arrow_batches, parquet_name(last=9))
        assert not reader.has_gaps, "no offset is missing, so none is read"
        for ordinal, parts in enumerate(arrow_batches):
            headers, records = batch_of(parts)
            assert reader.read_batch(ordinal) == (headers, records.drop_columns(["offset_delta"]))
        assert (reader.end_offset, reader.compression(0)) == (10, "zstd")
        assert reader.problem_for_others(0) is None

    def test_reads_the_offsets_of_a_file_with_gaps(self, store):
        gapped = Part(data(0, 3).rows, [1, 4, 5], base_delta=0, last_delta=6)
        reader = put_parquet(store, [[gapped, aborted(7, 8), marker(9)]], parquet_name(last=9))
        assert reader.has_gaps
        (control,) = (batch for batch in reader.read(0) if batch.is_control)
        assert control.offsets().tolist() == [9]
        assert [offset for offset, _ in records_of(reader.read(2))] == [4, 5, 9]

    def test_the_end_of_the_range_may_have_no_batch(self, store):
        reader = put_parquet(store, [[data(0, 3)]], parquet_name(last=9))
        assert (reader.end_offset, reader.has_gaps) == (10, True)

    def test_a_file_without_any_row_is_read(self, store):
        name = parquet_name(last=9)
        reader = put_parquet(store, [[aborted(0, 9)]], name)
        assert (list(reader.read(0)), reader.end_offset) == ([], 10)
        assert in_parquet(store, name).num_rows == 0
        assert reader.offset_for_time(0, 0) is None

    @pytest.mark.parametrize("columns", [["value"], ["timestamp"], ["headers", "key"], []])
    def test_reads_single_columns(self, store, columns):
        reader = put_parquet(store, [[data(0, 4), marker(4)], [data(5, 5)]], parquet_name(last=9))
        whole = list(reader.read(1, 8))
        found = list(reader.read(1, 8, columns=columns))
        assert [batch.records for batch in found] == [
            batch.records.select(columns) for batch in whole
        ]
        assert [batch.offsets().tolist() for batch in found] == [
            batch.offsets().tolist() for batch in whole
        ]

    def test_a_lookup_by_time_reads_the_row_group_that_the_footer_names(self, store):
        name = parquet_name(last=39)
        reader = put_parquet(store, [[data(10 * at, 10)] for at in range(4)], name)
        for wanted in range(40):
            assert reader.offset_for_time(START_US + wanted, 0) == (wanted, START_US + wanted)
        assert reader.offset_for_time(START_US + 40, 0) is None
        file = reader._file  # noqa: SLF001 - to see what is decoded
        with patch.object(file, "decoder", wraps=file.decoder) as decoder:
            reader.offset_for_time(START_US + 25, 0)
        decoder.assert_called_once_with(["timestamp"])

    def test_a_range_of_times_leaves_row_groups_out(self, store):
        name = parquet_name(last=49)
        groups = [[data(10 * at, 10)] for at in range(4)]
        reader = put_parquet(store, [*groups, [marker(40)], [data(41, 2)]], name)

        def ranges(first, end):
            return reader.ranges_in_time((START_US + first, START_US + end))

        assert ranges(0, 100) == [(0, 40), (41, 50)]
        assert ranges(12, 20) == [(10, 20)]
        assert ranges(9, 21) == [(0, 30)]
        assert ranges(42, 43) == [(41, 50)]
        assert ranges(40, 41) == []
        assert ranges(50, 60) == []

    def test_many_headers_are_written_between_row_groups(self, store):
        with patch.object(parquet_writer_module, "_HELD_BYTES", 0):
            reader = put_parquet(
                store,
                [[data(10 * at, 10), marker(10 * at + 10)] for at in range(0, 8, 2)],
                parquet_name(last=70),
            )
        assert [len(headers) for _, headers in reader.all_headers()] == [2, 2, 2, 2]
        assert in_parquet(store, parquet_name(last=70)).num_rows == 40


class TestRequests:
    """A file on an object store that is too large to be read whole."""

    NAME = parquet_name(last=7_999)

    @pytest.fixture
    def ranged(self, store):
        rng = random.Random(1)
        for_groups = [
            [
                Part(
                    [row(rng.randbytes(400), b"k", timestamp=START_US + n) for n in some],
                    list(some),
                )
            ]
            for some in (range(at, at + 2_000) for at in range(0, 8_000, 2_000))
        ]
        put_parquet(store, for_groups, self.NAME)
        return HookedStore(store, is_mapped=False)

    def open_ranged(self, store):
        size_bytes = store.head(f"{DIRECTORY}/{self.NAME.file_name}").size_bytes
        store.calls.clear()
        return SegmentReader(
            store, DIRECTORY, self.NAME, topic_id=TOPIC_ID, partition=0, size_bytes=size_bytes
        )

    def test_one_opens_it_and_tells_all_headers(self, ranged):
        reader = self.open_ranged(ranged)
        assert not reader.is_in_memory
        assert [len(headers) for _, headers in reader.all_headers()] == [1] * 4
        assert len(ranged.calls) == 1

    def test_one_for_each_row_group_that_is_read(self, ranged):
        reader = self.open_ranged(ranged)
        ranged.calls.clear()
        assert sum(batch.records.num_rows for batch in reader.read(2_100, 5_900)) == 3_800
        assert len(ranged.calls) == 2
        ranged.calls.clear()
        assert sum(batch.records.num_rows for batch in reader.read(0)) == 8_000
        assert len(ranged.calls) <= 4

    def test_few_bytes_are_read_for_a_small_column(self, ranged):
        reader = self.open_ranged(ranged)
        lengths = []

        def read(path, call):
            data = call()
            lengths.append(data.size)
            return data

        ranged.on("read", read)
        times = list(reader.read(0, 6_000, columns=["timestamp"]))
        assert sum(batch.records.num_rows for batch in times) == 6_000
        assert sum(lengths) < reader.size_bytes / 50

    def test_a_lookup_by_time_costs_one(self, ranged):
        reader = self.open_ranged(ranged)
        ranged.calls.clear()
        assert reader.offset_for_time(START_US + 3_333, 0) == (3_333, START_US + 3_333)
        assert len(ranged.calls) == 1

    def test_a_file_that_became_shorter_is_an_error(self, ranged, store):
        reader = self.open_ranged(ranged)
        store.put(f"{DIRECTORY}/{self.NAME.file_name}", b"PAR1")
        with pytest.raises(CorruptRecordError, match="but its footer speaks of"):
            list(reader.read(0))


class TestAnyBatches:
    @st.composite
    @staticmethod
    def arrow_batches(draw):
        found, following = [], 0
        for _ in range(draw(st.integers(1, 4))):
            parts = []
            for _ in range(draw(st.integers(1, 4))):
                content = draw(st.lists(rows, max_size=4))
                gaps = draw(st.lists(st.integers(0, 2), min_size=9, max_size=9))
                deltas = (
                    following + np.cumsum(np.array(gaps[: len(content)], int) + 1) - 1
                ).tolist()
                last = max([following, *deltas]) + gaps[-1]
                is_control = bool(content) and draw(st.booleans())
                parts.append(
                    Part(
                        content,
                        deltas,
                        base_delta=following,
                        last_delta=last,
                        attributes=CONTROL if is_control else draw(st.sampled_from([0, 8, 16])),
                        producer_id=draw(st.integers(-1, 3)),
                    )
                )
                following = last + 1
            found.append(parts)
        return found, following

    @given(made=arrow_batches(), is_mapped=st.booleans())
    def test_are_read_as_they_were_written(self, made, is_mapped):
        arrow_batches, end = made
        store = HookedStore(MemoryStore("memory://any-batches"), is_mapped=is_mapped)
        name = parquet_name(last=end - 1)
        store.delete(f"{DIRECTORY}/{name.file_name}")
        reader = put_parquet(store, arrow_batches, name)
        expected: list[tuple[int, Any]] = []
        for ordinal, parts in enumerate(arrow_batches):
            headers, records = batch_of(parts)
            found_headers, found = reader.read_batch(ordinal)
            assert found_headers == headers
            assert rows_of(found) == rows_of(records)
            for part in parts:
                offsets = part.deltas or []
                expected += zip(offsets, rows_of(batch_of([part])[1]), strict=True)
            assert reader.problem_for_others(ordinal) is None
        assert records_of(reader.read(0)) == expected
        for start in range(0, end, 3):
            part = [pair for pair in expected if start <= pair[0] < start + 5]
            assert records_of(reader.read(start, start + 5)) == part


class TestWriter:
    def test_refuses_rows_that_do_not_fit(self, store):
        writer = parquet_writer(store, parquet_name(last=9))
        headers, records = batch_of([data(0, 4)])
        with pytest.raises(InvalidRecordError, match="do not fit 3 rows"):
            writer.write_rewritten(records.slice(1), headers)
        with pytest.raises(InvalidRecordError, match="need the columns"):
            writer.write_rewritten(records.drop_columns(["offset_delta"]), headers)
        with pytest.raises(InvalidRecordError, match="at least one batch"):
            writer.finish()
        writer.discard()
        writer.discard()
        assert list(store.list(DIRECTORY)) == []

    def test_a_file_of_another_name_or_partition_is_refused(self, store):
        name = parquet_name(last=9)
        put_parquet(store, [[data(0, 10)]], name)
        content = store.open_buffer(f"{DIRECTORY}/{name.file_name}")
        other = parquet_name(last=9, generation=2)
        store.put(f"{DIRECTORY}/{other.file_name}", content)
        with pytest.raises(CorruptRecordError, match=r"was written as .*9\.1\.parquet"):
            parquet_reader(store, other)
