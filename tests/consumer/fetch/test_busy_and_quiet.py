"""Busy and quiet partitions of one consumer on an object store, on a clock of the test."""

from collections import Counter
from collections.abc import Callable

import pytest

from spark_log.consumer.fetch import fetch_loop
from tests.consumer.fetch.test_idle_consumer import GET_MS, IdleConsumer
from tests.log.support import HookedStore
from tests.record.samples import numbered
from tests.simulation.same_thread import SameThread

PARTITIONS = 6
BUSY, QUIET = range(3), range(3, PARTITIONS)
SEGMENTS = 20
"""Segments of which a turn reads not more."""


class BusyConsumer(IdleConsumer):
    """A consumer whose busy partitions grow by a segment with each request for one of theirs.

    Records are taken during each request, as by a consumer that polls all the time. The turns
    beside the fetching thread take no time of the clock: `run_beside` runs them, as if each thread
    had got the answers of its requests while the fetching thread waited for its own.
    """

    def __init__(self, inner, clock, *, is_beside=True):
        self.beside: list[Callable[[], None]] = []
        self.left: Counter[int] = Counter()
        self.takes = False
        self.is_parallel = False
        read_beside = self.beside.append if is_beside else None
        super().__init__(
            inner, clock, PARTITIONS, read_beside, max_partition_fetch_bytes=SEGMENTS * 11_000
        )
        self.writers = [self.log(number) for number in range(PARTITIONS)]
        while self.loop.metrics()["fetch-total"] < len(self.cursors):  # each one is at its end
            self.loop.run_once()
            self.run_beside()
        self.takes = True

    def _request(self, path, call):
        number = int(path.split("/")[1].removeprefix("t-"))
        if self.takes:
            self._take()
        if self.left[number]:
            self.left[number] -= 1
            self.append(number)
        if self.is_parallel:
            return call()
        return super()._request(path, call)

    def append(self, number, count=1):
        for _ in range(count):
            self.writers[number].append(numbered(0, 1))

    def run_beside(self):
        self.is_parallel = True
        turns = self.beside[:]
        del self.beside[:]
        for turn in turns:
            turn()
        self.is_parallel = False

    def delay_of_quiet_ms(self, number, *, runs_beside):
        """Append to a quiet partition; return the time until the record is fetched."""
        self.append(number)
        begun_ms = self.clock.monotonic_ms()
        self.taken.clear()
        while number not in [partition for _, partition in self.taken]:
            self.loop.run_once()
            assert self.clock.monotonic_ms() < begun_ms + 10_000
            if runs_beside:
                self.run_beside()
            self._take()
        return next(at_ms for at_ms, partition in self.taken if partition == number) - begun_ms


@pytest.fixture(autouse=True)
def opens_ahead_at_once(monkeypatch):
    monkeypatch.setattr(HookedStore, "executor_class", SameThread)


@pytest.fixture
def consumer(memory_store, clock):
    consumer = BusyConsumer(memory_store, clock)
    consumer.left.update(dict.fromkeys(BUSY, 3 * SEGMENTS))
    return consumer


AT_MOST_MS = (len(QUIET) + len(BUSY) * fetch_loop._BRIEF_SEGMENTS + 2) * GET_MS  # noqa: SLF001
"""A probe of each partition, of which a busy one finds two segments, and one under way."""


def test_a_quiet_partition_does_not_wait_for_reads_of_busy_ones(consumer):
    """A busy partition never comes to its end."""
    for number in QUIET:
        assert consumer.delay_of_quiet_ms(number, runs_beside=True) <= AT_MOST_MS
    assert min(consumer.cursors[number].offset for number in BUSY) >= SEGMENTS


def test_nor_for_reads_that_are_never_answered(consumer, monkeypatch):
    monkeypatch.setattr(fetch_loop, "_READ_BESIDE", len(BUSY))
    for number in [*QUIET, *QUIET]:
        assert consumer.delay_of_quiet_ms(number, runs_beside=False) <= AT_MOST_MS


def test_on_one_thread_a_quiet_partition_would_wait(memory_store, clock):
    """So the partitions of this module are busy enough to show it."""
    consumer = BusyConsumer(memory_store, clock, is_beside=False)
    consumer.left.update(dict.fromkeys(BUSY, 3 * SEGMENTS))
    assert consumer.delay_of_quiet_ms(QUIET[0], runs_beside=False) > 2 * AT_MOST_MS


def test_a_partition_is_read_by_one_thread_at_a_time(memory_store, clock):
    consumer = BusyConsumer(memory_store, clock)
    for number in BUSY:
        consumer.append(number, 5)
    while len(consumer.beside) < len(BUSY):
        consumer.loop.run_once()
    requests = consumer.wait(1_000)
    assert consumer.beside == consumer.beside[: len(BUSY)]
    assert {path.split("/")[1] for _, path in requests} == {f"t-{number}" for number in QUIET}
    consumer.run_beside()
    assert [cursor.offset for cursor in consumer.cursors[: len(BUSY)]] == [5] * len(BUSY)


def test_as_many_as_may_be_read_beside_take_turns(memory_store, clock, monkeypatch):
    monkeypatch.setattr(fetch_loop, "_READ_BESIDE", 2)
    consumer = BusyConsumer(memory_store, clock)
    for number in BUSY:
        consumer.append(number, 5)
    consumer.wait(1_000)
    assert len(consumer.beside) == 2
    for _ in range(3):
        consumer.run_beside()
        consumer.wait(100)
    assert [cursor.offset for cursor in consumer.cursors[: len(BUSY)]] == [5] * len(BUSY)


def test_a_seek_during_a_read_beside_is_followed_when_that_ends(memory_store, clock):
    consumer = BusyConsumer(memory_store, clock)
    consumer.append(0, 5)
    while not consumer.beside:
        consumer.loop.run_once()
    (cursor, *_) = consumer.cursors
    consumer.loop.buffer.discard(cursor, 1)
    consumer.loop.enqueue(cursor)
    consumer.wait(200)
    assert cursor.offset == 1
    consumer.run_beside()
    consumer.wait(200)
    consumer.run_beside()
    consumer.wait(200)
    assert cursor.offset == 5


def test_a_removed_partition_is_read_no_more_when_its_read_beside_ends(memory_store, clock):
    consumer = BusyConsumer(memory_store, clock)
    consumer.append(0, 5)
    while not consumer.beside:
        consumer.loop.run_once()
    (cursor, *_) = consumer.cursors
    consumer.loop.buffer.discard(cursor, -1)
    consumer.loop.remove(cursor)
    consumer.taken.clear()
    consumer.run_beside()
    requests = Counter(path.split("/")[1] for _, path in consumer.wait(1_000))
    assert "t-0" not in requests
    assert not consumer.taken


def test_one_partition_that_gets_a_record_at_a_time_needs_no_other_thread(memory_store, clock):
    consumer = BusyConsumer(memory_store, clock)
    for _ in range(5):
        consumer.delay_of_quiet_ms(QUIET[0], runs_beside=False)
        consumer.wait(300)
    assert consumer.beside == []
