"""The fetching thread's loop, run by the test: what each turn reads, and how long it waits."""

import threading
from itertools import pairwise
from random import Random

import pytest

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.fetch_loop import FetchLoop
from spark_log.errors import OffsetOutOfRangeError, StorageUnavailableError
from spark_log.log.files.file_names import SegmentName
from spark_log.log.read.probe_interval import LOCAL_PROBES
from spark_log.log.rewrite.merger import merge
from tests.consumer.support import T0, ClockWatch
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    Part,
    failing,
    free,
    free_plain,
    move_start,
    open_log,
    put_bytes,
    segment_bytes,
)
from tests.record.samples import numbered, row
from tests.transactions import TransactionWriter

HALF_DELAY_MS = 30_000


class Fetching:
    """A loop with one partition, on a clock that advances by the loop's waits."""

    def __init__(self, store, clock, *, offset=0, resolve=None, **settings):
        self.watch = ClockWatch(clock)
        self.cursor = FetchCursor(T0, open_log(store, clock=clock), offset)
        self.loop = FetchLoop(
            store,
            ConsumerConfig.parse(settings),
            threading.Condition(),
            self.watch,
            also_watched="",
            on_hint=lambda: None,
            now_ms=clock.monotonic_ms,
            random=Random(0),
            resolve=resolve,
        )
        self.loop.add(self.cursor)

    def turn(self):
        """Wait until the partition is due, and read one turn of it."""
        fetches = self.loop.metrics()["fetch-total"]
        while self.loop.metrics()["fetch-total"] == fetches:
            self.loop.run_once()

    def take(self, max_records=None):
        """Take what is buffered; return the values."""
        fetch = self.loop.buffer.take(max_records)
        if fetch.failure is not None:
            raise fetch.failure[1]
        values = [rows.column("value").to_pylist() for rows in fetch.rows]
        return [value.decode() for each in values for value in each]

    def fetched(self):
        self.turn()
        return self.take()

    def seek(self, offset):
        self.loop.buffer.discard(self.cursor, offset)
        self.loop.enqueue(self.cursor)


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def others(memory_store):
    """The log, as another process has it."""
    return open_log(memory_store)


@pytest.fixture
def fetching(store, clock):
    return Fetching(store, clock)


def append(log, mark, count=1):
    log.append(numbered(0, count, mark=mark))


class TestTurn:
    def test_continues_where_the_turn_before_it_ended(self, fetching, others):
        assert fetching.fetched() == []
        append(others, "a", 2)
        assert fetching.fetched() == ["a:0", "a:1"]
        assert fetching.fetched() == []
        append(others, "b")
        append(others, "c")
        assert fetching.fetched() == ["b:0", "c:0"]
        assert fetching.cursor.offset == 4

    def test_at_the_tail_costs_one_probe_and_no_listing(self, store, fetching, others):
        append(others, "a")
        fetching.turn()
        store.calls.clear()
        for _ in range(5):
            fetching.turn()
        assert store.calls == [("open_buffer", f"{DIRECTORY}/{SegmentName(1).file_name}")] * 5

    def test_ends_with_the_bytes_that_it_may_fetch_and_goes_on_later(self, store, clock, others):
        for mark in "abc":
            append(others, mark)
        fetching = Fetching(store, clock, max_partition_fetch_bytes=1)
        assert fetching.fetched() == ["a:0"]
        store.calls.clear()
        assert [fetching.fetched(), fetching.fetched()] == [["b:0"], ["c:0"]]
        assert store.called("list") == []

    def test_passes_over_control_batches_without_stopping_at_them(
        self, memory_store, fetching, others
    ):
        parts = [Part([row(b"x")]), Part([row(b"marker")], attributes=1 << 5)]
        put_bytes(memory_store, segment_bytes([parts]))
        assert fetching.fetched() == ["x"]
        assert fetching.cursor.offset == 2
        append(others, "a")
        assert fetching.fetched() == ["a:0"]

    def test_a_read_that_fails_is_retried_after_a_pause_that_doubles_to_its_maximum(
        self, store, clock, others
    ):
        append(others, "a")
        fetching = Fetching(store, clock, retry_backoff_ms=100, retry_backoff_max_ms=250)
        store.hooks["open_buffer"] = failing(StorageUnavailableError("no answer"))
        turns_ms = []
        for _ in range(4):
            fetching.turn()
            turns_ms.append(clock.monotonic_ms())
        pauses_ms = [later - earlier for earlier, later in pairwise(turns_ms)]
        for pause_ms, expected_ms in zip(pauses_ms, (100, 200, 250), strict=True):
            assert 0.8 * expected_ms <= pause_ms <= 1.2 * expected_ms + 1
        store.hooks.clear()
        assert fetching.fetched() == ["a:0"]

    def test_after_a_seek_reads_from_there(self, fetching, others):
        for mark in "abc":
            append(others, mark)
        fetching.turn()
        fetching.seek(1)
        assert fetching.fetched() == ["b:0", "c:0"]

    def test_of_a_position_that_retention_passed_is_an_error_with_the_range(
        self, memory_store, store, clock, others
    ):
        for mark in "abc":
            append(others, mark)
        fetching = Fetching(store, clock, offset=1)
        move_start(memory_store, 2, 2)
        free(memory_store, SegmentName(0), SegmentName(1))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            fetching.fetched()
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 3)
        fetching.seek(2)
        assert fetching.fetched() == ["c:0"]

    def test_beyond_the_end_is_an_error_with_the_range(self, store, clock, others):
        append(others, "a")
        with pytest.raises(OffsetOutOfRangeError) as caught:
            Fetching(store, clock, offset=5).fetched()
        assert caught.value.log_end_offset == 1


class TestLogThatIsRewritten:
    def test_between_two_turns_is_read_on_from_the_rewritten_segment(
        self, memory_store, store, clock, others
    ):
        for mark in "abcd":
            append(others, mark)
        fetching = Fetching(store, clock, max_partition_fetch_bytes=1)
        assert fetching.fetched() == ["a:0"]
        merge(others.files, others.observe(), 0, 3)
        free_plain(memory_store, 4)
        clock.advance_ms(HALF_DELAY_MS)
        assert fetching.fetched() == ["b:0", "c:0", "d:0"]

    def test_is_listed_again_before_names_can_have_been_freed(
        self, memory_store, clock, fetching, others
    ):
        """The next segment was appended and deleted while the loop waited; its name is free."""
        append(others, "a")
        assert fetching.fetched() == ["a:0"]
        for mark in "bc":
            append(others, mark)
        merge(others.files, others.observe(), 0, 2)
        free_plain(memory_store, 3)
        assert fetching.fetched() == [], "within half the delay nobody frees a name"
        clock.advance_ms(HALF_DELAY_MS)
        assert fetching.fetched() == ["b:0", "c:0"]


class TestWaiting:
    def wait_for(self, fetching, clock, duration_ms):
        until_ms = clock.monotonic_ms() + duration_ms
        while clock.monotonic_ms() < until_ms:
            fetching.loop.run_once()
        return fetching.watch.waits_ms

    def test_probes_often_at_first_and_then_seldom(self, fetching, clock):
        waits_ms = self.wait_for(fetching, clock, 1_000)
        assert waits_ms[0] == LOCAL_PROBES.min_ms
        assert max(waits_ms) == pytest.approx(LOCAL_PROBES.max_ms, abs=0.01)
        assert len(waits_ms) < 450, "no hot spin"

    def test_on_an_object_store_probes_ten_times_a_second_at_most(self, memory_store, clock):
        fetching = Fetching(HookedStore(memory_store, is_mapped=False), clock)
        assert len(self.wait_for(fetching, clock, 5_000)) < 100

    def test_is_short_again_after_a_record(self, fetching, clock, others):
        longest_ms = max(self.wait_for(fetching, clock, 1_000))
        append(others, "a")
        assert fetching.fetched() == ["a:0"]
        fetching.watch.waits_ms.clear()
        fetching.turn()
        assert sum(fetching.watch.waits_ms) < longest_ms / 2


class TestTransactions:
    """Turns with ``isolation.level=read_committed``."""

    @pytest.fixture
    def writer(self, others):
        return TransactionWriter(others)

    def open(self, store, clock, **given):
        return Fetching(store, clock, isolation_level="read_committed", **given)

    def test_what_was_read_ahead_is_not_read_again(self, store, clock, others, writer):
        fetching = self.open(store, clock)
        assert fetching.fetched() == []
        writer.send(b"a")
        append(others, "b")
        store.calls.clear()
        assert fetching.fetched() == []
        writer.commit()
        assert fetching.fetched() == ["a", "b:0"]
        opened = [path for path in store.called("open_buffer") if path.endswith(".log")]
        ends = [f"{DIRECTORY}/{SegmentName(offset).file_name}" for offset in (0, 1, 2, 2, 3)]
        assert opened == ends  # 2 while it was missing, and 3 which is

    def test_a_full_take_passes_the_marker_behind_it(self, store, clock, writer):
        writer.send(b"a", b"b")
        writer.commit()
        fetching = self.open(store, clock)
        fetching.turn()
        fetch = fetching.loop.buffer.take(1)
        assert fetch.positions == {T0: 1}
        fetch = fetching.loop.buffer.take(1)
        assert fetch.positions == {T0: 3}

    def test_any_number_of_aborted_batches_takes_the_memory_of_one(self, store, clock, writer):
        for _ in range(5):
            writer.send(b"a")
            writer.abort()
        fetching = self.open(store, clock)
        fetching.turn()
        assert len(fetching.cursor.completed) == 1
        assert fetching.loop.buffer.take(None).positions == {T0: 10}

    def test_a_read_that_is_held_up_asks_for_the_end_of_the_transaction(
        self, store, clock, others, writer
    ):
        asked = []

        def resolve(blocking, log):
            asked.append(blocking.first_offset)
            if len(asked) == 3:
                writer.commit()
                return True
            return False

        fetching = self.open(store, clock, resolve=resolve)
        append(others, "a")
        assert fetching.fetched() == ["a:0"]
        assert asked == []
        writer.send(b"b")
        assert fetching.fetched() == []
        assert fetching.fetched() == []
        waited = len(fetching.watch.waits_ms)
        assert fetching.fetched() == []
        assert fetching.fetched() == ["b"]
        assert len(fetching.watch.waits_ms) == waited + 1  # the last turn follows at once
        assert asked == [1, 1, 1]

    def test_an_error_of_the_question_returns_no_record_twice(self, store, clock, others, writer):
        def resolve(blocking, log):
            raise StorageUnavailableError("down")

        append(others, "a")
        writer.send(b"b")
        fetching = self.open(store, clock, resolve=resolve)
        assert fetching.fetched() == ["a:0"]
        writer.commit()
        assert fetching.fetched() == ["b"]
