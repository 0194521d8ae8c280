"""A segment: its records are read from any offset and found by time."""

import uuid
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    InvalidRecordError,
    NotFoundError,
    SparkLogError,
)
from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment.offset_index import offset_index_bytes
from spark_log.log.segment.time_index import time_index_bytes
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage.memory import MemoryStore
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    Part,
    TemplateStore,
    file_names,
    put_bytes,
    put_segment,
    records_of,
    segment_bytes,
    segment_reader,
    segment_writer,
    values_of,
)
from tests.record.samples import (
    START_US,
    header_of,
    numbered,
    record_batch,
    row,
    row_lists,
)

BASE = 1_000_000


@pytest.fixture(params=["local", "memory", "ranged", "template"])
def store(request, clock):
    """Stores: mapped from disk, in memory, read in ranges as an object store, and by a template."""
    if request.param == "template":
        return TemplateStore(uuid.uuid4().hex, clock)
    if request.param == "ranged":
        return HookedStore(request.getfixturevalue("memory_store"), is_mapped=False)
    return request.getfixturevalue(f"{request.param}_store")


def numbered_batches(counts):
    ends = np.cumsum(counts)
    return [numbered(int(end - count), count) for end, count in zip(ends, counts, strict=True)]


# --- by offset -----------------------------------------------------------------------------------


def no_index(store, name):
    store.delete(f"{DIRECTORY}/{name.index}")


def index_with(change):
    def replace(store, name):
        path = f"{DIRECTORY}/{name.index}"
        store.put(path, change(store.open_buffer(path).to_pybytes()))

    return replace


def of_another(entries):
    """The valid index of another segment that had this name before."""
    return index_with(lambda own: offset_index_bytes(entries, "AAECAwQFBgcICQoLDA0ODw"))


COUNTS = [1, 3, 2, 7, 1, 1, 4, 9, 2, 2, 5, 1, 3]
INDEX_STATES = {
    "as it was written": lambda store, name: None,
    "missing": no_index,
    "empty": index_with(lambda own: b""),
    "cut": index_with(lambda own: own[:-3]),
    "cut by an entry": index_with(lambda own: own[:-12] + own[-4:]),
    "noise": index_with(lambda own: bytes(range(64))),
    "of zeros": index_with(lambda own: bytes(64)),
    "damaged": index_with(lambda own: own[:1] + bytes([own[1] ^ 1]) + own[2:]),
    "of another segment, denser": of_another([(n, 8 * n) for n in range(40)]),
    "of another segment, pointing behind the file": of_another([(1, 2**31), (20, 2**32 - 1)]),
    "of another segment, pointing at the first batch": of_another([(40, 0)]),
    "of another segment, pointing too far": of_another([(0, 10_000)]),
}


class TestReadByOffset:
    @pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
    @pytest.mark.parametrize("state", INDEX_STATES)
    def test_from_every_offset_whatever_became_of_the_index(self, store, state, compression):
        name = SegmentName(BASE)
        put_segment(
            store,
            numbered_batches(COUNTS),
            name,
            compression=compression,
            index_interval_bytes=900,
        )
        index = f"{DIRECTORY}/{name.index}"
        written = store.open_buffer(index).to_pybytes()
        expected = [(BASE + number, b"record:%d" % number) for number in range(sum(COUNTS))]
        for first in range(sum(COUNTS) + 1):
            store.put(index, written)
            INDEX_STATES[state](store, name)
            reader = segment_reader(store, name)
            assert values_of(reader.read(BASE + first)) == expected[first:]

    def test_from_one_offset_to_before_another(self, store):
        reader = put_segment(store, numbered_batches([2, 1, 4]), SegmentName(BASE))
        expected = [(BASE + number, b"record:%d" % number) for number in range(7)]
        for first in range(9):
            for last in range(9):
                batches = reader.read(BASE + first, BASE + last)
                assert values_of(batches) == expected[first:last]

    def test_from_before_the_base_offset_is_from_the_base_offset(self, store):
        reader = put_segment(store, numbered_batches([2, 3]), SegmentName(BASE))
        assert len(values_of(reader.read(0))) == 5
        assert len(values_of(reader.read(0, BASE + 1))) == 1
        assert values_of(reader.read(0, BASE)) == []

    @given(st.lists(row_lists, min_size=1, max_size=5), st.sampled_from(["none", "lz4", "zstd"]))
    def test_every_field_of_every_record_comes_back(self, batches, compression):
        store = MemoryStore("segment-fields")
        store.delete_directory(DIRECTORY)
        reader = put_segment(store, map(record_batch, batches), compression=compression)
        assert records_of(reader.read(0)) == list(enumerate(chain(*batches)))

    def test_batches_keep_their_base_offsets_and_sizes(self, store):
        reader = put_segment(store, numbered_batches([2, 1, 4]), SegmentName(BASE))
        batches = list(reader.read(0))
        assert [batch.base_offset for batch in batches] == [BASE, BASE + 2, BASE + 3]
        assert [batch.records.num_rows for batch in batches] == [2, 1, 4]
        assert sum(batch.stored_bytes for batch in batches) < reader.size_bytes
        assert all(batch.stored_bytes >= batch.records.nbytes for batch in batches)
        cut = next(reader.read(BASE + 4))
        assert (cut.base_offset, cut.records.num_rows) == (BASE + 4, 3)

    @pytest.mark.parametrize("columns", [None, ["value"], ["key", "timestamp"]])
    def test_reading_does_not_copy_what_is_not_compressed(self, local_store, columns):
        put_segment(local_store, [numbered(0, 1_000, value_bytes=10_000)])
        before = pa.total_allocated_bytes()
        batch = next(segment_reader(local_store).read(0, columns=columns))
        assert batch.records.num_rows == 1_000
        assert pa.total_allocated_bytes() - before < 1_000_000

    def test_the_segment_knows_where_it_begins_and_ends(self, store):
        reader = put_segment(store, numbered_batches([2, 3]), SegmentName(BASE))
        assert (reader.base_offset, reader.end_offset) == (BASE, BASE + 5)
        assert reader.batch_count == 2
        assert (
            reader.size_bytes == store.head(f"{DIRECTORY}/{SegmentName(BASE).file_name}").size_bytes
        )

    def test_a_rewritten_segment_ends_where_its_name_says(self, store):
        reader = put_segment(store, numbered_batches([2, 3]), SegmentName(BASE, BASE + 9, 1))
        assert reader.end_offset == BASE + 10

    def test_a_segment_that_is_gone_is_not_found(self, store):
        with pytest.raises(NotFoundError):
            segment_reader(store, SegmentName(5))


ROWS = [
    row(b"v%d" % number, b"k%d" % number, [("h", b"%d" % number)], START_US + number)
    for number in range(6)
]


class TestColumns:
    @pytest.mark.parametrize(
        "columns",
        [["value"], ["timestamp"], ["timestamp", "key"], ["headers", "value"], RECORD_SCHEMA.names],
    )
    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_those_asked_for_come_in_the_order_asked_for(self, store, columns, compression):
        batches = [record_batch(ROWS[:4]), record_batch(ROWS[4:])]
        reader = put_segment(store, batches, compression=compression)
        found = list(reader.read(3, columns=columns))
        assert [batch.records.schema.names for batch in found] == [columns] * 2
        whole = pa.Table.from_batches([batch.records for batch in found])
        expected = pa.Table.from_batches([record_batch(ROWS[3:])]).select(columns)
        assert whole.equals(expected)
        assert [batch.offsets().tolist() for batch in found] == [[3], [4, 5]]

    def test_no_column_at_all_still_tells_the_offsets(self, store):
        reader = put_segment(store, [record_batch(ROWS)])
        (batch,) = reader.read(2, 5, columns=[])
        assert batch.records.num_columns == 0
        assert batch.offsets().tolist() == [2, 3, 4]

    def damaged(self, store, count):
        """A byte of the last value is damaged."""
        put_segment(store, [numbered(0, count)])
        path = f"{DIRECTORY}/{SegmentName(0).file_name}"
        content, last = store.open_buffer(path).to_pybytes(), b"record:%d" % (count - 1)
        assert content.count(last) == 1
        store.put(path, content.replace(last, last[:-1] + b"x"))
        return segment_reader(store)

    def test_the_others_are_not_decoded(self, memory_store):
        """Only a read of the damaged column raises an error."""
        reader = self.damaged(memory_store, 10_000)
        (batch,) = reader.read(0, columns=["key", "timestamp", "headers"])
        assert batch.records.num_rows == 10_000
        for columns in (None, ["value"], ["timestamp", "value"]):
            with pytest.raises(CorruptRecordError):
                list(reader.read(0, columns=columns))

    def test_small_batches_are_checked_whole(self, memory_store):
        """Checking some columns by checksums of their own would take as long."""
        with pytest.raises(CorruptRecordError):
            list(self.damaged(memory_store, 5).read(0, columns=["key"]))

    def test_nothing_is_found_out_where_the_reader_says_so(self, memory_store):
        (batch,) = self.damaged(memory_store, 5).read(0, columns=["value"], check_crcs=False)
        assert batch.records.column("value")[4].as_py() == b"record:x"

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_the_others_are_not_decompressed(self, local_store, compression):
        batch = numbered(0, 1_000, value_bytes=10_000)
        put_segment(local_store, [batch], compression=compression)
        before = pa.total_allocated_bytes()
        (read,) = segment_reader(local_store).read(0, columns=["key", "timestamp"])
        assert read.records.num_rows == 1_000
        assert pa.total_allocated_bytes() - before < 1_000_000

    def test_gaps_are_told_whatever_columns_are_asked_for(self, store):
        parts = [[Part([row(b"one"), row(b"two")], deltas=[3, 9])]]
        reader = put_bytes(store, segment_bytes(parts), SegmentName(BASE, BASE + 9, 1))
        (batch,) = reader.read(BASE + 4, columns=["key"])
        assert batch.offsets().tolist() == [BASE + 9]


# --- gaps and several headers --------------------------------------------------------------------

GAPPED = [
    [
        Part([row(b"a")], deltas=[2]),
        Part([row(b"b"), row(b"c")], deltas=[5, 6], last_delta=8),
    ],
    [Part([row(b"d"), row(b"e"), row(b"f")], deltas=[11, 14, 15], last_delta=19)],
]
GAPPED_NAME = SegmentName(BASE, BASE + 19, 1)
GAPPED_VALUES = [
    (BASE + delta, value)
    for delta, value in zip(
        [2, 5, 6, 11, 14, 15], [b"a", b"b", b"c", b"d", b"e", b"f"], strict=True
    )
]


class TestGaps:
    @pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
    def test_what_is_left_is_read_at_its_own_offsets_from_any_offset(self, store, compression):
        data = segment_bytes(GAPPED, compression=compression)
        reader = put_bytes(store, data, GAPPED_NAME)
        for first in range(-1, 21):
            for last in (None, *range(first, 21)):
                end = None if last is None else BASE + last
                expected = [
                    pair
                    for pair in GAPPED_VALUES
                    if pair[0] >= BASE + first and (end is None or pair[0] < end)
                ]
                assert values_of(reader.read(BASE + first, end)) == expected, (first, last)

    def test_the_offsets_are_checked_with_the_records(self, store):
        data = segment_bytes(GAPPED).to_pybytes()
        deltas = np.array([11, 14, 15], "<i4").tobytes()
        assert data.count(deltas) == 1
        wrong = np.array([11, 13, 15], "<i4").tobytes()
        reader = put_bytes(store, data.replace(deltas, wrong), GAPPED_NAME)
        batches = reader.read(BASE)
        assert len(values_of([next(batches)])) == 3
        with pytest.raises(CorruptRecordError, match="checksum"):
            next(batches)

    @pytest.mark.parametrize("delta", range(20))
    def test_time_is_found_at_the_offset_that_the_record_has(self, store, delta):
        rows = [row(timestamp=START_US + number) for number in range(6)]
        parts = [
            [Part(rows[:1], deltas=[2]), Part(rows[1:3], deltas=[5, 6], last_delta=8)],
            [Part(rows[3:], deltas=[11, 14, 15], last_delta=19)],
        ]
        reader = put_bytes(store, segment_bytes(parts), GAPPED_NAME)
        offsets = [2, 5, 6, 11, 14, 15]
        expected = next((at for at in range(3, 6) if offsets[at] >= delta), None)
        found = reader.offset_for_time(START_US + 3, BASE + delta)
        if expected is None:
            assert found is None
        else:
            assert found == (BASE + offsets[expected], START_US + expected)


JOINED = [
    [
        Part([row(b"a"), row(b"b")], leader_epoch=1, producer_id=7),
        Part([row(b"c")], leader_epoch=1, producer_id=8),
        Part([row(b"marker", b"\0\0\0\1")], leader_epoch=1, attributes=1 << 5),
        Part([row(b"d"), row(b"e"), row(b"f")], leader_epoch=2),
    ],
    [
        Part([row(b"g")], leader_epoch=2, attributes=1 << 3),
        Part([row(b"h")], leader_epoch=2, attributes=1 << 3),
    ],
]


class TestSeveralHeaders:
    """A merge joins small Arrow batches into large ones, and keeps their headers."""

    @pytest.fixture(params=[None, "lz4"])
    def reader(self, request, store):
        return put_bytes(store, segment_bytes(JOINED, compression=request.param))

    def test_rows_come_in_pieces_of_one_kind(self, reader):
        kinds = [
            (
                batch.offsets().tolist(),
                batch.leader_epoch,
                batch.is_control,
                batch.timestamp_type,
            )
            for batch in reader.read(0)
        ]
        assert kinds == [
            ([0, 1, 2], 1, False, 0),
            ([3], 1, True, 0),
            ([4, 5, 6], 2, False, 0),
            ([7, 8], 2, False, 1),
        ]

    def test_any_range_is_cut_out_of_them(self, reader):
        values = [b"a", b"b", b"c", b"marker", b"d", b"e", b"f", b"g", b"h"]
        for first in range(10):
            for last in range(first, 11):
                expected = list(enumerate(values))[first:last]
                assert values_of(reader.read(first, last)) == expected

    def test_the_last_header_tells_the_end(self, reader):
        assert reader.end_offset == 9
        assert [len(reader.headers(ordinal)) for ordinal in range(2)] == [4, 2]

    @pytest.mark.parametrize("value", [b"ab", b"c", b"d", b"h"])
    def test_each_has_a_checksum_of_its_own_and_all_are_checked(self, memory_store, value):
        data = segment_bytes(JOINED).to_pybytes()
        body = b"abcmarkerdef"
        assert data.count(body) == 1
        assert data.count(b"gh") >= 1
        whole = b"gh" if value == b"h" else body
        at = data.rindex(whole) + whole.index(value)
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        reader = put_bytes(memory_store, damaged)
        with pytest.raises(CorruptRecordError, match="checksum") as caught:
            list(reader.read(0))
        assert caught.value.position == reader.position(1 if value == b"h" else 0)

    def test_time_passes_over_control_records(self, memory_store):
        parts = [
            [
                Part([row(b"before", timestamp=START_US)]),
                Part([row(b"marker", timestamp=START_US + 10)], attributes=1 << 5),
                Part([row(b"behind", timestamp=START_US + 5)]),
            ]
        ]
        reader = put_bytes(memory_store, segment_bytes(parts))
        assert reader.offset_for_time(START_US + 1, 0) == (2, START_US + 5)
        assert reader.offset_for_time(START_US + 6, 0) is None


# --- by time -------------------------------------------------------------------------------------

times = st.integers(-40, 40).map(lambda second: START_US + second * 1_000_000)


def segment_of_times(store, times_us, cuts, interval):
    """One record per timestamp, cut into batches at the given indexes."""
    edges = sorted({0, len(times_us), *(cut % len(times_us) for cut in cuts)})
    batches = [
        record_batch([row(timestamp=time_us) for time_us in times_us[first:last]])
        for first, last in pairwise(edges)
    ]
    return put_segment(store, batches, SegmentName(BASE), index_interval_bytes=interval)


def first_at_or_after(times_us, asked_us, start=0):
    hits = [at for at in range(start, len(times_us)) if times_us[at] >= asked_us]
    return (BASE + hits[0], times_us[hits[0]]) if hits else None


class TestOffsetForTime:
    @given(
        st.lists(times, min_size=1, max_size=40),
        st.lists(st.integers(0, 1_000), max_size=12),
        st.sampled_from([0, 1_000, 10**9]),
        st.data(),
    )
    def test_is_the_first_record_that_is_not_earlier_also_where_time_goes_back(
        self, times_us, cuts, interval, data
    ):
        store = MemoryStore("segment-times")
        store.delete_directory(DIRECTORY)
        segment_of_times(store, times_us, cuts, interval)
        for asked_us in {*times_us, *(time_us + 1 for time_us in times_us), START_US - 10**9}:
            start = data.draw(st.integers(0, len(times_us)))
            found = segment_reader(store, SegmentName(BASE)).offset_for_time(asked_us, BASE + start)
            assert found == first_at_or_after(times_us, asked_us, start)
            found = segment_reader(store, SegmentName(BASE)).offset_for_time(asked_us, 0)
            assert found == first_at_or_after(times_us, asked_us)

    @pytest.mark.parametrize(
        "change",
        [
            lambda own: b"",
            lambda own: b"x",
            lambda own: bytes(16),
            lambda own: own[:-1],
            lambda own: own[:8] + bytes([own[8] ^ 1]) + own[9:],
            lambda own: time_index_bytes([(START_US, 1), (START_US + 5, 7)], bytes(4)),
            lambda own: None,
        ],
        ids=["empty", "short", "zeros", "cut", "damaged", "another's", "missing"],
    )
    @pytest.mark.parametrize("is_time_index", [True, False])
    def test_no_index_however_wrong_changes_an_answer(self, store, change, is_time_index):
        name = SegmentName(BASE)
        times_us = [START_US + second for second in (5, 3, 9, 1, 12, 2, 30, 4, 2, 31)]
        reader = segment_of_times(store, times_us, range(10), 0)
        assert reader.position(9) > 4096, "large enough for indexes to count"
        path = f"{DIRECTORY}/{name.time_index if is_time_index else name.index}"
        content = change(store.open_buffer(path).to_pybytes())
        for asked_us in range(START_US, START_US + 33):
            if content is None:
                store.delete(path)
            else:
                store.put(path, content)
            found = segment_reader(store, name).offset_for_time(asked_us, 0)
            assert found == first_at_or_after(times_us, asked_us)

    def test_the_largest_timestamp_is_that_of_all_batches(self, store):
        times_us = [START_US + second for second in (5, 30, 9, 1, 12)]
        reader = segment_of_times(store, times_us, [1, 3], 0)
        assert reader.max_timestamp_us == START_US + 30
        assert reader.min_timestamp_us == START_US + 1


# --- writing -------------------------------------------------------------------------------------


class TestIndexFiles:
    """The content of the index files that a writer writes."""

    SECONDS = ((5, 3), (9,), (9, 8), (4, 12, 12), (12,), (2, 1), (30, 31, 7), (31,), (1,), (40,))
    TIMES = tuple(START_US + second for batch in SECONDS for second in batch)
    STARTS = (0, 2, 3, 5, 8, 9, 11, 14, 15, 16)

    def written(self, store, interval):
        """Write batches of these timestamps; return the reader and the entries of both indexes."""
        writer = segment_writer(store, index_interval_bytes=interval)
        for batch in self.SECONDS:
            writer.write(record_batch([row(timestamp=START_US + second) for second in batch]))
        segment = writer.finish()
        store.put_if_absent(f"{DIRECTORY}/{SegmentName(0).file_name}", segment.staged)
        files = dict(segment.derived_files(SegmentName(0)))
        index = np.frombuffer(files.get(SegmentName(0).index, b"")[:-4], "<u4").reshape(-1, 2)
        layout = np.dtype([("time", "<i8"), ("offset", "<u4")])
        times = np.frombuffer(files.get(SegmentName(0).time_index, b"")[:-4], layout)
        return segment_reader(store), index.tolist(), times.tolist()

    @pytest.mark.parametrize("interval", [0, 500, 700, 1_500, 3_000])
    def test_offsets_have_an_entry_for_every_interval_at_the_batch_that_comes_after_it(
        self, store, interval
    ):
        reader, entries, _ = self.written(store, interval)
        expected, indexed_up_to = [], 0
        for ordinal in range(1, reader.batch_count):
            if reader.position(ordinal) - indexed_up_to > interval:
                indexed_up_to = reader.position(ordinal)
                expected.append([sum(map(len, self.SECONDS[:ordinal])), indexed_up_to])
        assert entries == expected
        assert entries, "the case tests something"

    def test_times_have_the_largest_so_far_and_where_the_batch_that_reached_it_begins(self, store):
        _, _, entries = self.written(store, 0)
        reached = [(5, 0), (9, 2), (12, 5), (31, 11)]
        assert entries == [(START_US + second, offset) for second, offset in reached]

    @pytest.mark.parametrize("interval", [0, 500, 700, 1_500, 3_000])
    def test_times_have_an_entry_where_offsets_do_unless_time_stood_still(self, store, interval):
        _, offsets, entries = self.written(store, interval)
        expected: list[tuple[int, int]] = []
        for first, _ in offsets:
            largest = max(self.TIMES[:first])
            if not expected or largest > expected[-1][0]:
                reached = self.TIMES.index(largest)
                expected.append((largest, max(start for start in self.STARTS if start <= reached)))
        assert entries == expected

    def test_a_segment_smaller_than_the_interval_has_none(self, store):
        _, offsets, times = self.written(store, 1_000_000)
        assert (offsets, times) == ([], [])

    def test_they_are_named_like_the_segment_that_they_belong_to(self, store):
        writer = segment_writer(store, index_interval_bytes=0)
        for number in range(3):
            writer.write(numbered(number, 1))
        segment = writer.finish()
        for name in (SegmentName(7), SegmentName(7, 9, 2)):
            assert [path for path, _ in segment.derived_files(name)] == [
                name.index,
                name.time_index,
            ]


class TestWriter:
    def test_each_header_describes_its_batch(self, store):
        times_us = [START_US + second for second in (7, 9, 3)]
        writer = segment_writer(store, leader_epoch=5)
        first = writer.write(record_batch([row(timestamp=time_us) for time_us in times_us]))
        second = writer.write(numbered(0, 2), attributes=1 << 4)
        assert (first.base_offset_delta, first.last_offset_delta, first.record_count) == (0, 2, 3)
        assert (first.base_timestamp_us, first.max_timestamp_us) == (times_us[0], times_us[1])
        assert (first.producer_id, first.producer_epoch, first.base_sequence) == (-1, -1, -1)
        assert (second.base_offset_delta, second.last_offset_delta) == (3, 4)
        assert second.attributes == 1 << 4
        assert {first.leader_epoch, second.leader_epoch} == {5}
        segment = writer.finish()
        assert (segment.record_count, segment.last_header) == (5, second)
        store.put_if_absent(f"{DIRECTORY}/{SegmentName(0).file_name}", segment.staged)
        reader = segment_reader(store)
        assert [reader.headers(0), reader.headers(1)] == [(first,), (second,)]
        assert reader.append_id == segment.append_id
        assert len(values_of(reader.read(0))) == 5

    def test_it_counts_what_it_has_written(self, store):
        writer = segment_writer(store)
        assert writer.record_count == 0
        writer.write(numbered(0, 3))
        assert writer.record_count == 3
        size = writer.size_bytes
        assert size > 0
        writer.write(numbered(3, 4))
        assert writer.record_count == 7
        assert writer.size_bytes > size

    @pytest.mark.parametrize("compression", ["lz4", "zstd"])
    def test_compression_is_arrows_and_makes_it_smaller(self, store, compression):
        batches = [numbered(0, 100, value_bytes=1_000)]
        plain = put_segment(store, batches, SegmentName(0))
        small = put_segment(store, batches, SegmentName(100), compression=compression)
        assert small.size_bytes < plain.size_bytes / 2
        path = f"{DIRECTORY}/{SegmentName(100).file_name}"
        assert ipc.open_file(store.open_buffer(path)).get_batch(0).num_rows == 100

    @pytest.mark.parametrize(
        "records",
        [
            record_batch([]),
            pa.record_batch({"value": pa.array([b"x"])}),
            numbered(0, 1).select(["value", "key", "headers", "timestamp"]),
            numbered(0, 1).append_column("offset_delta", pa.array([0], pa.int32())),
            pa.RecordBatch.from_arrays(numbered(0, 1).columns, names=RECORD_SCHEMA.names),
            pa.record_batch(
                {
                    "key": pa.array(["a string"]),
                    "value": pa.array([b""]),
                    "headers": pa.nulls(1, HEADERS_TYPE),
                    "timestamp": pa.array([0], TIMESTAMP_TYPE),
                }
            ),
            pa.RecordBatch.from_arrays(
                [*numbered(0, 2).columns[:3], pa.array([0, None], TIMESTAMP_TYPE)],
                schema=RECORD_SCHEMA,
            ),
        ],
        ids=["empty", "few", "order", "more", "nullable", "types", "no timestamp"],
    )
    def test_records_of_another_form_are_refused(self, store, records):
        writer = segment_writer(store)
        with pytest.raises(InvalidRecordError):
            writer.write(records)
        writer.discard()
        assert file_names(store) == []

    @pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]])
    def test_a_header_without_a_name_is_refused(self, store, headers):
        columns = [*numbered(0, 1).columns]
        columns[2] = pa.array([headers], HEADERS_TYPE)
        writer = segment_writer(store)
        with pytest.raises(InvalidRecordError):
            writer.write(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))
        writer.discard()

    def test_a_segment_without_records_is_refused(self, store):
        writer = segment_writer(store)
        with pytest.raises(InvalidRecordError, match="at least one record"):
            writer.finish()
        writer.discard()
        assert file_names(store) == []

    def test_an_unknown_compression_is_refused_before_anything_is_staged(self, memory_store):
        store = HookedStore(memory_store)
        with pytest.raises(InvalidConfigurationError, match="gzip"):
            segment_writer(store, compression="gzip")
        assert store.called("stage") == []

    def test_offsets_that_outgrow_the_header_are_refused(self, store):
        writer = segment_writer(store)
        writer._next_delta = 2**31 - 3  # noqa: SLF001 - 2 GiB of records would take long
        writer.write(numbered(0, 2))
        with pytest.raises(SparkLogError):
            writer.write(numbered(0, 1))
        writer.discard()

    def test_positions_that_outgrow_the_index_are_refused(self, memory_store, monkeypatch):
        writer = segment_writer(memory_store)
        writer.write(numbered(0, 1))
        staged = type(memory_store.stage(DIRECTORY))
        written = staged.size_bytes.fget
        monkeypatch.setattr(
            staged, "size_bytes", property(lambda self: written(self) + 2**32 - 1_000)
        )

        def write_on():
            writer.write(numbered(1, 1))
            writer.write(numbered(2, 1))
            writer.finish()

        with pytest.raises(SparkLogError):
            write_on()

    def test_the_file_belongs_to_its_partition_and_no_other(self, store):
        put_segment(store, [numbered(0, 1)])
        for topic_id, partition in (("another", 0), (TOPIC_ID, 1)):
            with pytest.raises(CorruptRecordError, match="belongs to topic id and partition"):
                SegmentReader(
                    store, DIRECTORY, SegmentName(0), topic_id=topic_id, partition=partition
                )


def test_header_of_describes_rows_as_the_writer_does(memory_store):
    """The headers of the samples, used for files made by hand, are those of the writer."""
    rows = [row(timestamp=START_US + second) for second in (7, 9, 3)]
    written = segment_writer(memory_store).write(record_batch(rows))
    assert header_of(rows, crc32c=written.crc32c) == written
