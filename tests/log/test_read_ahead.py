"""Requests of a reader of many small segments on an object store: one for each, many at once."""

from collections import Counter

import pytest

from spark_log.log.directory import opener as segment_opener
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment import file as segment_file
from tests.log.support import DIRECTORY, HookedStore, merge, open_log, values, values_of
from tests.record.samples import numbered
from tests.simulation.same_thread import SameThread

COUNT = 59


@pytest.fixture
def store(inner):
    return HookedStore(inner, is_mapped=False)


@pytest.fixture
def others(inner):
    """The log as another process has it, with many small segments."""
    others = open_log(inner)
    append(others, 0, COUNT)
    return others


def append(log, first, count):
    for at in range(first, first + count):
        log.append(numbered(at, 1))


def requests(store):
    """Return the requests for segments by their base offset, and the number of listings."""
    opened = Counter(
        int(path.rpartition("/")[2].removesuffix(".log"))
        for operation, path in store.calls
        if operation != "list" and path.endswith(".log")
    )
    return opened, len(store.called("list"))


def once_each(count):
    """Each segment once, and the missing one that would follow."""
    return Counter(range(count + 1))


class TestEachSegmentCostsOneRequest:
    def test_of_one_fetch(self, store, log, others):
        assert len(values_of(log.read(0)[0])) == COUNT
        assert requests(store) == (once_each(COUNT), 1)

    def test_of_many_small_fetches(self, store, log, others):
        offset = 0
        while batches := log.read(offset, 1)[0]:
            offset = batches[-1].end_offset
        assert offset == COUNT
        assert requests(store) == (once_each(COUNT), 1)

    def test_of_a_scan(self, store, log, others):
        assert values_of(log.scan(0)) == values(others, 0)
        assert requests(store) == (Counter(range(COUNT)), 1)

    def test_of_a_reader_of_committed_records(self, store, log, others):
        batches = log.read(0, isolation_level="read_committed")[0]
        assert len(values_of(batches)) == COUNT
        opened, listings = requests(store)
        assert listings == 1
        assert opened - once_each(COUNT) == Counter()

    def test_of_a_lookup_of_a_time_in_the_last_one(self, store, others):
        log = open_log(store)
        view = log.observe(keeps_for_next_read=True)
        latest_us = others.segments(others.observe())[0][-1].max_timestamp_us
        assert log.offset_for_time(latest_us, view) is not None
        opened, listings = requests(store)
        assert listings == 1
        assert opened == Counter(range(COUNT))

    def test_of_a_cleaner(self, store, others):
        log = open_log(store)
        segments, _ = log.snapshots.segments(*log.files.observe_and_open())
        assert len(segments) == COUNT
        assert requests(store) == (Counter(range(COUNT)), 1)

    def test_that_is_larger_than_a_footer(self, inner, store, log, monkeypatch):
        others = open_log(inner)
        for at in range(3):
            others.append([numbered(at * 3_000, 3_000)])
        assert (
            inner.head(f"{DIRECTORY}/{SegmentName(0).file_name}").size_bytes
            > segment_file.TAIL_BYTES
        )
        assert sum(batch.records.num_rows for batch in log.read(0)[0]) == 9_000
        assert requests(store)[0] == Counter([0, 3_000, 6_000, 9_000])


class TestSegmentsThatWereNotListed:
    def test_are_listed_when_many_are_found_one_by_one(self, store, log, inner, others):
        log.read(0)
        append(others, COUNT, 40)
        store.calls.clear()
        assert len(values_of(log.read(COUNT)[0])) == 40
        opened, listings = requests(store)
        assert listings == 1
        assert set(opened) == set(range(COUNT, COUNT + 41))
        assert max(opened.values()) == 1

    def test_are_not_while_each_read_finds_some(self, store, log, others):
        log.read(0)
        store.calls.clear()
        for at in range(COUNT, COUNT + 30, 3):
            append(others, at, 3)
            assert len(values_of(log.read(at)[0])) == 3
        assert store.called("list") == []


class TestListingOfAReaderThatWaits:
    def test_costs_one_request(self, store, clock, inner, others):
        log = open_log(store, clock=clock)
        log.read(0)
        for _ in range(3):
            clock.advance_ms(log.files.valid_ms)
            store.calls.clear()
            assert log.read(COUNT)[0] == []
            assert store.calls == [("list", DIRECTORY)]

    def test_opens_a_last_segment_that_is_another_one(self, store, clock, inner, others):
        log = open_log(store, clock=clock)
        log.read(0)
        clock.advance_ms(log.files.valid_ms)
        append(others, COUNT, 1)
        assert len(values_of(log.read(COUNT)[0])) == 1
        merge(inner, 0, COUNT + 1)
        clock.advance_ms(log.files.valid_ms)
        append(others, COUNT + 1, 2)
        assert len(values_of(log.read(COUNT + 1)[0])) == 2


class TestWindow:
    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch):
        """What is opened ahead is open when the call returns."""
        monkeypatch.setattr(HookedStore, "executor_class", SameThread)

    def ahead(self, store, log):
        """Return the segments that are opened when the second one is."""
        view = log.observe()
        store.calls.clear()
        walk = log.files.walk(view, 0, COUNT)
        next(walk)
        next(walk)
        return sorted(requests(store)[0])

    def test_is_bounded_in_bytes(self, inner, store, log, others, monkeypatch):
        size_bytes = inner.head(f"{DIRECTORY}/{SegmentName(0).file_name}").size_bytes
        monkeypatch.setattr(segment_opener, "AHEAD_BYTES", 3 * size_bytes + size_bytes // 2)
        assert self.ahead(store, log) == [0, 1, 2, 3, 4]

    def test_counts_of_large_segments_what_opening_them_reads(
        self, inner, store, log, others, monkeypatch
    ):
        for module in (segment_opener, segment_file):
            monkeypatch.setattr(module, "WHOLE_BYTES", 0)
            monkeypatch.setattr(module, "TAIL_BYTES", 1_000)
        monkeypatch.setattr(segment_opener, "AHEAD_BYTES", 5_500)
        assert self.ahead(store, log) == list(range(7))

    def test_follows_a_reader_that_jumps(self, store, log, others):
        log.read(0, 1)
        log.read(40, 1)
        log.read(20, 1)
        assert sorted(requests(store)[0]) == [0, 20, 40, COUNT - 1]
