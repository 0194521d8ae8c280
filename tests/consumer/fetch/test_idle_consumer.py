"""What a consumer without new records asks of an object store, counted on a clock of the test."""

import threading
from collections import Counter
from random import Random

import pytest

from spark_log.config import ConsumerConfig, TopicConfig
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.fetch_loop import FetchLoop
from spark_log.log import LocalLog
from spark_log.log.read.probe_interval import REST_MS
from spark_log.types import TopicPartition
from tests.consumer.support import ClockWatch
from tests.log.support import ANY_TIME, TOPIC_ID, HookedStore
from tests.record.samples import numbered

GET_MS = 20
"""Time of a request."""


class IdleConsumer:
    """A loop of some partitions on a store whose requests take time on the clock of the test."""

    def __init__(self, inner, clock, partitions, read_beside=None, **settings):
        self.clock = clock
        self.inner = inner
        self.store = HookedStore(inner, is_mapped=False)
        for operation in ("read", "read_tail", "open_buffer", "list", "head"):
            self.store.on(operation, self._request)
        self.requests = []
        self.taken = []
        self.loop = FetchLoop(
            self.store,
            ConsumerConfig.parse(settings),
            threading.Condition(),
            ClockWatch(clock),
            also_watched="",
            on_hint=lambda: None,
            now_ms=clock.monotonic_ms,
            random=Random(0),
            read_beside=read_beside,
        )
        self.cursors = []
        for number in range(partitions):
            log = self.log(number, self.store)
            cursor = FetchCursor(TopicPartition("t", number), log, log.observe().log_end_offset)
            self.loop.add(cursor)
            self.cursors.append(cursor)

    def log(self, number, store=None):
        return LocalLog(
            store or self.inner,
            f"t.{TOPIC_ID}/t-{number}",
            topic_id=TOPIC_ID,
            partition=number,
            config=TopicConfig.parse({"flush_on_append": False, **ANY_TIME}),
            clock=self.clock,
        )

    def _request(self, path, call):
        self.requests.append((self.clock.monotonic_ms(), path))
        self.clock.advance_ms(GET_MS)
        return call()

    def wait(self, duration_ms):
        """Let the loop run for a while; return the requests of this time."""
        self.requests.clear()
        until_ms = self.clock.monotonic_ms() + duration_ms
        while self.clock.monotonic_ms() < until_ms:
            self.loop.run_once()
            self._take()
        return list(self.requests)

    def _take(self):
        fetch = self.loop.buffer.take(None)
        assert fetch.failure is None
        for rows in fetch.rows:
            self.taken.append((self.clock.monotonic_ms(), rows.partition.partition))

    def delay_ms(self, number):
        """Append a record, and return how long the loop takes to fetch it."""
        self.log(number).append(numbered(0, 1))
        begun_ms = self.clock.monotonic_ms()
        self.taken.clear()
        while not self.taken:
            self.loop.run_once()
            self._take()
        taken_ms, partition = self.taken[0]
        assert partition == number
        return taken_ms - begun_ms


@pytest.fixture
def open_consumer(memory_store, clock):
    def open_consumer(partitions, *, is_empty=False, **settings):
        consumer = IdleConsumer(memory_store, clock, 0)
        if not is_empty:
            for number in range(partitions):
                consumer.log(number).append(numbered(0, 1))
        return IdleConsumer(memory_store, clock, partitions, **settings)

    return open_consumer


@pytest.mark.parametrize("partitions", [1, 4, 10])
def test_a_partition_at_rest_costs_one_request_a_second(open_consumer, partitions):
    consumer = open_consumer(partitions)
    consumer.wait(2 * REST_MS)
    by_path = Counter(path.rpartition("/")[0] for _, path in consumer.wait(20_000))
    assert len(by_path) == partitions
    assert max(by_path.values()) <= 21


@pytest.mark.parametrize("partitions", [4, 30, 200])
def test_any_number_of_partitions_at_rest_cost_ten_requests_a_second(open_consumer, partitions):
    consumer = open_consumer(partitions)
    consumer.wait(3 * REST_MS)
    assert len(consumer.wait(10_000)) <= 10 * min(partitions, 10) + 1


def test_partitions_at_rest_take_turns(open_consumer):
    consumer = open_consumer(30)
    consumer.wait(3 * REST_MS)
    paths = [path for _, path in consumer.wait(9_000)]
    assert set(Counter(paths).values()) == {3}
    assert paths[:30] == paths[30:60]


@pytest.mark.parametrize(("partitions", "at_most_ms"), [(1, 1_000), (10, 1_000), (30, 3_000)])
def test_the_first_record_after_a_rest_is_late_by_one_round_at_most(
    open_consumer, partitions, at_most_ms
):
    consumer = open_consumer(partitions)
    consumer.wait(3 * REST_MS)
    for number in range(0, partitions, 3):
        assert consumer.delay_ms(number) <= at_most_ms + GET_MS
        consumer.wait(2 * REST_MS + 333)


def test_after_the_first_record_the_next_ones_come_at_full_speed(open_consumer):
    consumer = open_consumer(1)
    consumer.wait(3 * REST_MS)
    consumer.delay_ms(0)
    for _ in range(20):
        assert consumer.delay_ms(0) <= 2 * GET_MS + 10


def test_a_busy_partition_does_not_speed_up_those_at_rest_nor_wait_for_them(open_consumer):
    consumer = open_consumer(30)
    consumer.wait(3 * REST_MS)
    consumer.delay_ms(7)
    consumer.requests.clear()
    begun_ms = consumer.clock.monotonic_ms()
    for _ in range(100):
        assert consumer.delay_ms(7) <= 3 * GET_MS + 10
    seconds = (consumer.clock.monotonic_ms() - begun_ms) / 1000
    others = [path for _, path in consumer.requests if "/t-7/" not in path]
    assert len(others) <= 10 * seconds + 1


def test_a_shorter_interval_finds_the_first_record_sooner(open_consumer):
    consumer = open_consumer(1, fetch_idle_interval_ms=100)
    consumer.wait(3 * REST_MS)
    assert consumer.delay_ms(0) <= 100 + GET_MS
    assert len(consumer.wait(10_000)) >= 80


def test_fewer_partitions_after_a_rebalance_are_not_held_up_by_those_of_before(open_consumer):
    consumer = open_consumer(200)
    consumer.wait(6 * REST_MS)
    for cursor in consumer.cursors[1:]:
        consumer.loop.remove(cursor)
    consumer.wait(1_000)
    assert consumer.delay_ms(0) <= 1_000 + GET_MS


def test_a_seek_is_followed_at_once(open_consumer):
    consumer = open_consumer(1)
    consumer.wait(3 * REST_MS)
    (cursor,) = consumer.cursors
    consumer.loop.buffer.discard(cursor, 0)
    consumer.loop.enqueue(cursor)
    consumer.taken.clear()
    begun_ms = consumer.clock.monotonic_ms()
    consumer.loop.run_once()
    consumer._take()  # noqa: SLF001
    assert consumer.taken
    assert consumer.clock.monotonic_ms() - begun_ms <= 5 * GET_MS
