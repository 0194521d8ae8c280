"""Following a log: no record is missed or read twice."""

import pytest

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merger import merge
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    Part,
    free,
    free_plain,
    move_start,
    open_log,
    put_bytes,
    segment_bytes,
    values_of,
)
from tests.record.samples import numbered, row

HALF_DELAY_MS = 30_000


class Follower:
    """Fetches from where the fetch before it ended."""

    def __init__(self, log, position=0):
        self.log = log
        self.position = position

    def fetch(self, **options):
        batches, self.position = self.log.read(self.position, **options)
        return batches


@pytest.fixture
def others(inner):
    return open_log(inner)


@pytest.fixture
def reader(store, clock):
    return Follower(open_log(store, clock=clock))


def append(log, mark, count=1):
    log.append(numbered(0, count, mark=mark))


def fetched(reader, **options):
    return [value.decode() for _, value in values_of(reader.fetch(**options))]


class TestFetch:
    def test_continues_where_it_stopped(self, reader, others):
        assert fetched(reader) == []
        append(others, "a", 2)
        assert fetched(reader) == ["a:0", "a:1"]
        assert fetched(reader) == []
        append(others, "b")
        append(others, "c")
        assert fetched(reader) == ["b:0", "c:0"]
        assert reader.position == 4

    def test_at_the_tail_costs_one_probe_and_no_listing(self, store, reader, others):
        append(others, "a")
        reader.fetch()
        store.calls.clear()
        for _ in range(5):
            assert fetched(reader) == []
        assert set(store.calls) == {("open_buffer", f"{DIRECTORY}/{SegmentName(1).file_name}")}
        assert len(store.calls) == 5

    def test_returns_the_batches_that_fit_and_the_rest_later(self, reader, others):
        for mark in "abcd":
            append(others, mark)
        size = reader.fetch(max_bytes=1)[0].stored_bytes
        assert reader.position == 1
        assert fetched(reader, max_bytes=2 * size) == ["b:0", "c:0"]
        assert fetched(reader) == ["d:0"]

    def test_seeks_to_any_offset(self, reader, others):
        for mark in "abc":
            append(others, mark)
        reader.fetch()
        reader.position = 1
        assert fetched(reader) == ["b:0", "c:0"]

    def test_passes_over_control_batches_without_stopping_at_them(self, inner, store, clock):
        parts = [Part([row(b"x")]), Part([row(b"marker")], attributes=1 << 5)]
        put_bytes(inner, segment_bytes([parts]))
        reader = Follower(open_log(store, clock=clock))
        assert fetched(reader) == ["x"]
        assert reader.position == 2
        append(open_log(inner), "a")
        assert fetched(reader) == ["a:0"]

    def test_of_a_position_that_retention_passed_is_an_error_with_the_range(
        self, inner, clock, reader, others
    ):
        for mark in "abc":
            append(others, mark)
        reader.fetch(max_bytes=1)
        move_start(inner, 2, 2)
        free(inner, SegmentName(0), SegmentName(1))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            reader.fetch()
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 3)
        reader.position = 2
        assert fetched(reader) == ["c:0"]

    def test_beyond_the_end_is_an_error_with_the_range(self, store, others):
        append(others, "a")
        with pytest.raises(OffsetOutOfRangeError) as caught:
            Follower(open_log(store), 5).fetch()
        assert caught.value.log_end_offset == 1


class TestWhetherItStillEnds:
    """`LocalLog.ends_at`, at the offset where a read ended."""

    def test_is_one_lookup_of_the_next_segment(self, reader, others, store):
        append(others, "a")
        assert not reader.log.tail_ends_at(0), "nothing is known before the first read"
        reader.fetch()
        store.calls.clear()
        assert reader.log.tail_ends_at(1)
        assert store.calls == [("open_buffer", f"{DIRECTORY}/{SegmentName(1).file_name}")]

    def test_is_false_after_an_append_until_it_is_read(self, reader, others):
        reader.fetch()
        append(others, "a")
        assert not reader.log.tail_ends_at(0)
        assert fetched(reader) == ["a:0"]
        assert reader.log.tail_ends_at(1)
        assert not reader.log.tail_ends_at(0)

    def test_is_false_when_names_can_have_been_freed(self, inner, clock, reader, others):
        append(others, "a")
        reader.fetch()
        append(others, "b")
        merge(others.files, others.observe(), 0, 2)
        clock.advance_ms(HALF_DELAY_MS)
        free_plain(inner, 2)
        assert not reader.log.tail_ends_at(1)


class TestLogThatIsRewritten:
    def test_is_read_on_from_the_rewritten_segment(self, inner, reader, others):
        for mark in "abc":
            append(others, mark)
        reader.fetch(max_bytes=1)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)
        assert fetched(reader) == ["b:0", "c:0"]
        append(others, "d")
        assert fetched(reader) == ["d:0"]

    def test_is_listed_again_before_names_can_have_been_freed(self, inner, clock, reader, others):
        """The next segment was appended and deleted while the reader slept; its name is free."""
        append(others, "a")
        assert fetched(reader) == ["a:0"]
        for mark in "bc":
            append(others, mark)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)
        assert fetched(reader) == [], "within half the delay nobody frees a name"
        clock.advance_ms(HALF_DELAY_MS)
        assert fetched(reader) == ["b:0", "c:0"]

    def test_never_hands_out_a_void_file(self, inner, store, clock, reader, others):
        append(others, "a")
        assert fetched(reader) == ["a:0"]
        for mark in "bc":
            append(others, mark)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)

        def come_late(path, call):
            inner.put_if_absent(path, void)
            clock.advance_ms(HALF_DELAY_MS)
            return call()

        void = segment_bytes([[Part([row(b"void")])]]).to_pybytes()
        store.once("open_buffer", come_late)
        assert fetched(reader) == ["b:0", "c:0"]

    def test_a_delay_of_nothing_lists_every_time(self, store, others):
        reader = Follower(open_log(store, file_delete_delay_ms=0))
        for mark in "abc":
            append(others, mark)
            assert fetched(reader) == [f"{mark}:0"]
        assert fetched(reader) == []


def test_a_limit_of_the_leader_epoch_costs_no_request(inner):
    log = open_log(inner)
    for first in range(0, 4_000, 1_000):
        log.append(numbered(first, 1_000, value_bytes=1_500))
    merge(log.files, log.observe(), 0, 3)
    calls = []
    for limit in (None, 0):
        store = HookedStore(inner, is_mapped=False)
        reading = open_log(store)
        if limit is not None:
            reading.begin_epoch(limit)
        assert sum(batch.records.num_rows for batch in reading.scan(10, 20)) == 10
        calls.append([name for name, _ in store.calls])
    assert calls[0] == calls[1]
