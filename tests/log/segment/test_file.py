"""A segment on an object store: the same records, and no unneeded reads."""

import threading

import pytest

from spark_log.errors import CorruptRecordError, NotFoundError
from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment import file as segment_file
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    Part,
    put_bytes,
    put_segment,
    segment_bytes,
    segment_reader,
    values_of,
)
from tests.record.samples import START_US, numbered, record_batch, row

PATH = f"{DIRECTORY}/{SegmentName(0).file_name}"
MIB = 2**20


class CountingStore(HookedStore):
    """A store that is not mapped, and records which bytes of the segment were read."""

    def __init__(self, inner):
        super().__init__(inner, is_mapped=False)
        self.ranges = []

    def read(self, path, start, length):
        if path == PATH:
            self.ranges.append((start, length))
        return super().read(path, start, length)

    def forget(self):
        self.calls.clear()
        self.ranges.clear()

    @property
    def reads(self):
        names = ("read", "read_tail", "open_buffer", "head", "list")
        return [(name, path.rpartition("/")[2]) for name, path in self.calls if name in names]


@pytest.fixture
def store(memory_store):
    return CountingStore(memory_store)


def large(store, count, batch_bytes, **settings):
    """A segment of some batches, each of ten records and about the given size."""
    batches = (numbered(10 * at, 10, value_bytes=batch_bytes // 10) for at in range(count))
    put_segment(store, batches, **settings)
    store.forget()


class TestOpening:
    def test_a_small_segment_is_read_whole_by_one_read(self, store):
        put_segment(store, [numbered(0, 20), numbered(20, 20)])
        store.forget()
        reader = segment_reader(store)
        assert reader.end_offset == 40
        assert len(values_of(reader.read(25))) == 15
        assert store.reads == [("read_tail", SegmentName(0).file_name)]

    @pytest.mark.parametrize("batch_bytes", [2_000, 50_000, 3 * MIB])
    def test_the_end_offset_takes_two_reads_at_most_and_no_batch(self, store, batch_bytes):
        large(store, 5, batch_bytes)
        assert segment_reader(store).end_offset == 50
        assert len(store.reads) <= 2
        assert sum(length for _, length in store.ranges) <= 64 * 1024

    def test_a_footer_larger_than_the_tail_is_read_by_another_read(self, store, monkeypatch):
        """24 bytes per batch."""
        monkeypatch.setattr(segment_file, "WHOLE_BYTES", segment_file.TAIL_BYTES)
        put_segment(store, (numbered(at, 1) for at in range(3_000)), indexes=False)
        store.forget()
        assert segment_reader(store).batch_count == 3_000
        assert [name for name, _ in store.reads] == ["read_tail", "read_tail"]

    def test_the_size_is_known_without_asking(self, store, memory_store):
        for batch_bytes in (100, MIB):
            large(store, 2, batch_bytes)
            assert segment_reader(store).size_bytes == memory_store.head(PATH).size_bytes
            memory_store.delete(PATH)

    def test_it_may_be_gone(self, store):
        with pytest.raises(NotFoundError):
            segment_reader(store)

    def test_a_footer_that_leaves_out_the_last_batch_is_seen_by_the_size_that_a_listing_showed(
        self, store, memory_store
    ):
        large(store, 4, 60_000)
        file = memory_store.head(PATH)
        content = memory_store.open_buffer(PATH).to_pybytes()
        first = segment_reader(store).position(0)
        vector = (4).to_bytes(4, "little") + first.to_bytes(8, "little")
        assert content.count(vector) == 1
        memory_store.put(PATH, content.replace(vector, b"\x03" + vector[1:]))
        with pytest.raises(CorruptRecordError, match="do not cover the file"):
            SegmentReader(
                store,
                DIRECTORY,
                SegmentName(0),
                topic_id=TOPIC_ID,
                partition=0,
                size_bytes=file.size_bytes,
            )


class TestReading:
    def test_from_an_offset_reads_the_index_and_what_lies_behind_it(self, store):
        large(store, 100, 50_000)
        reader = segment_reader(store)
        batch = next(reader.read(505))
        assert batch.base_offset == 505
        assert [name for name, _ in store.reads] == ["read_tail", "open_buffer", "read"]
        ((start, length),) = store.ranges
        assert start == reader.position(50)
        assert length <= MIB

    def test_a_range_of_offsets_takes_the_bytes_of_its_batches_and_no_more(self, store):
        large(store, 400, 100_000)
        reader = segment_reader(store)
        assert len(values_of(reader.read(1_000, 1_250))) == 250
        first, last = reader.position(100), reader.position(125)
        probes = 2 * 16_384  # read to learn how long a batch is
        assert min(start for start, _ in store.ranges) == first
        assert max(start + length for start, length in store.ranges) <= last + probes
        assert sum(length for _, length in store.ranges) <= last - first + probes

    @pytest.mark.parametrize("compression", ["none", "zstd"])
    def test_every_byte_is_read_once_in_large_ranges(self, store, compression):
        large(store, 300, 100_000, compression=compression)
        reader = segment_reader(store)
        expected = [(at, b"record:%d" % at) for at in range(3_000)]
        found = [(at, value.rstrip()) for at, value in values_of(reader.read(0))]
        assert found == expected
        ranges = sorted(store.ranges)
        ends = [start + length for start, length in ranges]
        assert all(end <= start for end, (start, _) in zip(ends, ranges[1:], strict=False))
        assert all(length <= segment_file.RANGE_BYTES for _, length in ranges)
        assert len(ranges) <= 2 + reader.size_bytes // (segment_file.RANGE_BYTES - 200_000)

    def test_a_batch_larger_than_a_range_is_read_by_one_read(self, store):
        large(store, 3, 20 * MIB)
        reader = segment_reader(store)
        assert len(values_of(reader.read(0))) == 30
        assert len(store.ranges) == 3

    def test_while_one_range_is_decoded_the_next_one_is_fetched(self, store):
        large(store, 300, 100_000)
        batches = segment_reader(store).read(0)
        asked, go_on = threading.Event(), threading.Event()

        def held(path, call):
            if threading.current_thread() is not threading.main_thread():
                asked.set()
                assert go_on.wait(30)
            return call()

        store.on("read", held)
        second_range = next(batch for batch in batches if batch.base_offset > MIB // 10_000)
        assert asked.wait(30), "the range behind this one is being fetched"
        assert next(batches).base_offset == second_range.base_offset + 10, "without waiting for it"
        go_on.set()
        assert sum(batch.records.num_rows for batch in batches) > 1_000

    def test_who_stops_early_has_fetched_little(self, store):
        large(store, 300, 100_000)
        batches = segment_reader(store).read(0)
        next(batches)
        batches.close()
        assert sum(length for _, length in store.ranges) <= MIB

    def test_a_failure_of_the_storage_is_its_own_error_and_not_damage(self, store):
        large(store, 300, 100_000)
        batches = segment_reader(store).read(0)
        next(batches)
        store.inner.delete(PATH)
        with pytest.raises(NotFoundError):
            list(batches)

    def test_a_file_shorter_than_its_footer_says_is_damage(self, store):
        large(store, 30, 100_000)
        reader = segment_reader(store)
        content = store.inner.open_buffer(PATH)
        store.inner.put(PATH, content.slice(0, 500_000))
        with pytest.raises(CorruptRecordError, match="its footer speaks of"):
            list(reader.read(0))

    def test_a_batch_that_became_zeroes_after_its_headers_were_read_is_damage(self, store):
        large(store, 2, MIB)
        reader = segment_reader(store)
        reader.headers(0)
        store.put(PATH, bytes(reader.size_bytes))
        with pytest.raises(CorruptRecordError, match="there is no message"):
            reader.read_batch(0)


class TestTimes:
    SECOND_US = 1_000_000

    def segment(self, store, count, interval=4096):
        """Batches of three records each; every tenth batch has the first timestamp again."""
        rows = (
            [
                row(b"v" * 300, timestamp=START_US + (0 if at % 10 == 9 else at) * self.SECOND_US)
                for _ in range(3)
            ]
            for at in range(count)
        )
        put_segment(store, map(record_batch, rows), index_interval_bytes=interval)
        store.forget()

    @pytest.mark.parametrize("count", [40, 400, 2_000])
    def test_a_lookup_reads_the_indexes_and_a_constant_number_of_batches(self, store, count):
        self.segment(store, count)
        for asked in (0, 3, count // 2, count - 2):
            reader = segment_reader(store)
            store.forget()
            first = next(at for at in range(count) if at % 10 != 9 and at >= asked)
            found = reader.offset_for_time(START_US + asked * self.SECOND_US, 0)
            assert found == (3 * first, START_US + first * self.SECOND_US)
            names = [name for _, name in store.reads]
            assert names.count(SegmentName(0).index) == names.count(SegmentName(0).time_index) == 1
            assert len(store.ranges) <= 2

    @pytest.mark.parametrize("count", [400, 4_000])
    def test_also_where_time_stands_still_for_long_and_where_nothing_is_found(self, store, count):
        times = [START_US, *[START_US - 5] * (count - 2), START_US + 9]
        put_segment(store, (record_batch([row(b"v" * 300, timestamp=t)]) for t in times))
        for asked_us, expected in (
            (START_US + 1, (count - 1, START_US + 9)),
            (START_US - 9, (0, START_US)),
            (START_US + 10, None),
        ):
            reader = segment_reader(HookedStore(store, is_mapped=True))
            looked_at: list[int] = []
            headers = reader.headers
            reader.headers = lambda at, headers=headers, to=looked_at: to.append(at) or headers(at)
            assert reader.offset_for_time(asked_us, 0) == expected
            assert len(set(looked_at)) <= 12

    def test_headers_of_small_batches_are_read_together(self, store):
        put_segment(store, (numbered(at, 1) for at in range(2_000)), indexes=False)
        store.forget()
        assert len(list(segment_reader(store).all_headers())) == 2_000
        assert len(store.ranges) <= 3

    def test_headers_of_large_batches_are_read_without_these(self, store):
        large(store, 10, MIB)
        assert len(list(segment_reader(store).all_headers())) == 10
        assert sum(length for _, length in store.ranges) < 100_000


def test_gaps_and_several_headers_are_read_in_ranges_too(store, monkeypatch):
    for name in ("WHOLE_BYTES", "TAIL_BYTES", "PROBE_BYTES", "FIRST_RANGE_BYTES", "RANGE_BYTES"):
        monkeypatch.setattr(segment_file, name, 700)
    parts = [
        [Part([row(b"a")], deltas=[2]), Part([row(b"b"), row(b"c")], deltas=[5, 6], last_delta=8)],
        [Part([row(b"d"), row(b"e")], deltas=[11, 14], last_delta=19)],
    ]
    reader = put_bytes(store, segment_bytes(parts), SegmentName(0, 19, 1))
    for first, expected in ((0, b"abcde"), (6, b"cde"), (7, b"de"), (12, b"e"), (15, b"")):
        assert b"".join(value for _, value in values_of(reader.read(first))) == expected
