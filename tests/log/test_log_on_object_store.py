"""Reads of files that are not mapped but read in ranges: they may be deleted during a read."""

import threading

import pytest

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.directory.opener import AHEAD
from spark_log.log.files.file_names import SegmentName
from spark_log.log.segment import file as segment_file
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    failing,
    free,
    merge,
    move_start,
    open_log,
    put_segment,
    values,
    values_of,
)
from tests.record.samples import numbered

BATCHES, ROWS = 6, 50


@pytest.fixture
def store(inner, monkeypatch):
    """A store with ranges so small that each batch is a read of its own."""
    monkeypatch.setattr(segment_file, "TAIL_BYTES", 4_096)
    monkeypatch.setattr(segment_file, "WHOLE_BYTES", 4_096)
    monkeypatch.setattr(segment_file, "RANGE_BYTES", 1)
    monkeypatch.setattr(segment_file, "FIRST_RANGE_BYTES", 1)
    monkeypatch.setattr(segment_file, "PROBE_BYTES", 1)
    return HookedStore(inner, is_mapped=False)


@pytest.fixture
def expected(inner):
    """The content of two segments of several batches."""
    others = open_log(inner)
    for first in (0, BATCHES * ROWS):
        others.append([numbered(first + at * ROWS, ROWS) for at in range(BATCHES)])
    return values(others, 0)


def rewrite(inner):
    """Merge segments, and long after that delete the merged ones."""
    merge(inner, 0, 2 * BATCHES * ROWS)
    free(inner, SegmentName(0), SegmentName(BATCHES * ROWS))


def taking(batches, count):
    return [next(batches) for _ in range(count)]


class TestFreedWhileItIsRead:
    @pytest.mark.parametrize("count", [1, 3, BATCHES, BATCHES + 2])
    def test_a_scan_continues_in_its_replacement(self, inner, log, expected, count):
        batches = log.scan(0)
        begun = taking(batches, count)
        rewrite(inner)
        assert values_of([*begun, *batches]) == expected

    def test_a_fetch_continues_in_its_replacement(self, inner, store, log, expected):
        log.read(0, 1)[0]  # keeps a view
        reads = iter(range(4))

        def rewrite_at_the_last(path, call):
            if next(reads, None) == 3:
                store.hooks.clear()
                rewrite(inner)
            return call()

        store.on("read", rewrite_at_the_last)
        assert values_of(log.read(0)[0]) == expected
        assert not store.hooks, "it was rewritten meanwhile"

    def test_a_time_is_looked_up_in_its_replacement(self, inner, store, log, expected):
        asked = open_log(inner).read(70, 1)[0][0].records.column("timestamp")[0].value

        def rewrite_first(path, call):
            rewrite(inner)
            return call()

        store.once("read", rewrite_first)
        offset, found_us = log.offset_for_time(asked)
        assert (offset, found_us) == (70, asked)
        assert "read" not in store.hooks, "it was rewritten meanwhile"

    def test_by_retention_is_out_of_range(self, inner, log, expected):
        batches = log.scan(0)
        taking(batches, 2)
        move_start(inner, 2 * BATCHES * ROWS, 2 * BATCHES * ROWS)
        free(inner, SegmentName(0), SegmentName(BATCHES * ROWS))
        with pytest.raises(OffsetOutOfRangeError):
            list(batches)


class TestNameTakenAnew:
    """A put delivered after its name was freed is not part of the log, but looks like it."""

    def take_names(self, inner, clock, log):
        rewrite(inner)
        for base in (0, BATCHES * ROWS):
            void = [numbered(at * ROWS, ROWS, mark="x") for at in range(BATCHES)]
            put_segment(inner, void, SegmentName(base))
        clock.advance_ms(log.files.valid_ms)

    @pytest.mark.parametrize("count", [1, 3, BATCHES, BATCHES + 2])
    def test_is_not_read_by_a_scan_that_was_slow(self, inner, clock, log, expected, count):
        batches = log.scan(0)
        begun = taking(batches, count)
        self.take_names(inner, clock, log)
        assert values_of([*begun, *batches]) == expected

    def test_is_not_read_by_a_fetch_that_was_slow(self, inner, store, clock, log, expected):
        log.read(0, 1)

        def take_long(path, call):
            self.take_names(inner, clock, log)
            return call()

        store.once("read", take_long)
        assert values_of(log.read(0)[0]) == expected
        assert "read" not in store.hooks


class TestOpenedAhead:
    COUNT = 40

    @pytest.fixture
    def others(self, inner):
        others = open_log(inner)
        for at in range(self.COUNT):
            others.append(numbered(at, 1))
        return others

    def opened(self, store):
        return [path.rpartition("/")[2] for path in store.called("open_buffer")]

    def test_several_at_once(self, store, log, others):
        """The next segments are requested before the earlier answer has arrived."""
        together = threading.Barrier(AHEAD)
        view = log.observe()
        hooked = {f"{DIRECTORY}/{SegmentName(at).file_name}" for at in range(2, 2 + AHEAD)}

        def wait_for_the_others(path, call):
            if path in hooked:
                together.wait(timeout=60)
            return call()

        store.on("open_buffer", wait_for_the_others)
        walked = [begin for begin, _, _ in log.files.walk(view, 0, self.COUNT)]
        assert walked == list(range(self.COUNT))

    def test_each_once_and_none_beyond_the_end_that_is_wanted(self, store, log, others):
        view = log.observe()
        store.calls.clear()
        assert values_of(log.scan(0, 20)) == values(others, 0, 20)
        assert sorted(self.opened(store)) == [SegmentName(at).file_name for at in range(20)]
        assert view.log_end_offset == self.COUNT

    def test_no_segment_for_a_reader_of_one(self, store, log, others):
        view = log.observe()
        store.calls.clear()
        next(log.files.walk(view, 0, self.COUNT))
        assert self.opened(store) == [SegmentName(0).file_name]

    def test_an_error_ahead_fails_only_readers_that_reach_the_segment(self, store, log, others):
        def fail(path, call):
            if path.endswith(SegmentName(10).file_name):
                return failing(ValueError("damaged"))(path, call)
            return call()

        store.on("open_buffer", fail)
        assert len(values_of(log.scan(0, 10))) == 10
        with pytest.raises(Exception, match="damaged"):
            list(log.scan(0))

    def test_a_deleted_segment_is_looked_up_in_the_log_again(self, store, inner, log, others):
        view = log.observe()
        walk = log.files.walk(view, 0, self.COUNT)
        first = next(walk)[0]
        merge(inner, 0, self.COUNT)
        free(inner, *map(SegmentName, range(self.COUNT)))
        assert [first, *(begin for begin, _, _ in walk)] == [0, 1]
