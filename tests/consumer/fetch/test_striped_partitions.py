"""Counts the requests of a consumer of striped partitions, on a clock of the test."""

import gc
import threading
from random import Random

import pytest

from benchmarks.request_operations import OPERATIONS
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.fetch_loop import FetchLoop
from spark_log.errors import StorageTimeoutError
from spark_log.log import BatchAppend, PartitionDirectory
from spark_log.log.read.probe_interval import REST_MS
from spark_log.log.stripe import Stripe, StripedLog, StripeEntry, StripeObject
from spark_log.log.stripe.reader import MAX_OPEN_OBJECTS
from spark_log.types import TopicPartition
from tests.consumer.support import ClockWatch
from tests.log.stripe.support import TOPIC, open_stripe, settings
from tests.log.support import TOPIC_ID, HookedStore
from tests.record.samples import numbered

GET_MS = 20
(IDLE_BUDGET,) = (
    each.most
    for each in OPERATIONS
    if each.name == "an idle consumer of 1000 partitions of a stripe, a second"
)


def no_home(partition) -> PartitionDirectory:
    raise AssertionError(f"partition {partition} is not taken home")


class StripedConsumer:
    """A loop of the partitions of some stripes, whose requests take time on the test's clock."""

    def __init__(self, inner, clock, partitions, stripes=4, **config):
        self.clock, self.requests, self.taken = clock, [], []
        self.writers = [self._stripe(inner, number) for number in range(stripes)]
        self.writer_logs = {}
        self.store = HookedStore(inner, is_mapped=False)
        for operation in ("read", "read_tail", "open_buffer", "list", "head"):
            self.store.on(operation, self._request)
        self.stripes = [self._stripe(self.store, number) for number in range(stripes)]
        self.loop = FetchLoop(
            self.store,
            ConsumerConfig.parse(config),
            threading.Condition(),
            ClockWatch(clock),
            also_watched="",
            on_hint=lambda: None,
            now_ms=clock.monotonic_ms,
            random=Random(0),
        )
        self.cursors = []
        for number in range(partitions):
            log = self.log(self.store, self.stripes, number)
            cursor = FetchCursor(TopicPartition("flights", number), log, 0)
            self.loop.add(cursor)
            self.cursors.append(cursor)

    def _stripe(self, store, number):
        return Stripe(open_stripe(store, self.clock, number), no_home)

    def log(self, store, stripes, number):
        return StripedLog(
            stripes[number % len(stripes)],
            store,
            f"{TOPIC}/flights-{number}",
            topic_id=TOPIC_ID,
            partition=number,
            config=settings(),
            clock=self.clock,
        )

    def _request(self, path, call):
        self.requests.append(path)
        self.clock.advance_ms(GET_MS)
        return call()

    def append(self, number):
        """Append a record by another process."""
        log = self.writer_logs.get(number)
        if log is None:
            store = self.writers[0].directory.store
            log = self.writer_logs[number] = self.log(store, self.writers, number)
        log.append(numbered(0, 1))

    def append_objects(self, count, partitions, size):
        """Append objects of another process, each with a record of the next ``size`` partitions."""
        for number in range(count):
            batch = BatchAppend(numbered(number, 1), None)
            numbers = [(number * size + each) % partitions for each in range(size)]
            self.writers[0].appends.append([StripeEntry(each, batch) for each in numbers])

    def wait(self, duration_ms):
        """Let the loop run for a while; return the requests of this time."""
        self.requests.clear()
        until_ms = self.clock.monotonic_ms() + duration_ms
        while self.clock.monotonic_ms() < until_ms:
            self.run_once()
        return list(self.requests)

    def run_once(self):
        self.loop.run_once()
        fetch = self.loop.buffer.take(None)
        assert fetch.failure is None
        self.taken += [rows.partition.partition for rows in fetch.rows]

    def delay_ms(self, number):
        """Append a record, and return how long the loop takes to fetch it."""
        self.append(number)
        begun_ms = self.clock.monotonic_ms()
        self.taken.clear()
        while not self.taken:
            self.run_once()
        assert self.taken == [number]
        return self.clock.monotonic_ms() - begun_ms


@pytest.fixture
def open_consumer(memory_store, clock):
    return lambda *numbers, **config: StripedConsumer(memory_store, clock, *numbers, **config)


def open_objects():
    """Return all objects of stripes in the memory of this process."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, StripeObject)]


@pytest.mark.parametrize("size", [40, 17])
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_consumer_that_lags_opens_each_object_once_for_all_partitions(open_consumer, level, size):
    """Or again, if it was closed since it was found. Few are kept."""
    objects, partitions = 2 * MAX_OPEN_OBJECTS, 40
    consumer = open_consumer(partitions, stripes=1, isolation_level=level)
    others = open_objects()
    consumer.append_objects(objects, partitions, size)
    while len(consumer.taken) < objects * size:
        consumer.run_once()
    opened = [path for path in consumer.requests if path.endswith(".stripe")]
    assert len(opened) <= 3 * objects
    kept = [each for each in open_objects() if all(each is not other for other in others)]
    assert len(kept) <= MAX_OPEN_OBJECTS + 2  # and those that could not be opened at the end


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_directories_of_partitions_are_not_listed_while_nothing_is_at_home(
    open_consumer, level
):
    consumer = open_consumer(40, stripes=1, isolation_level=level)
    consumer.append_objects(1, 40, 40)
    while len(consumer.taken) < 40:
        consumer.run_once()
    assert [path for path in consumer.requests if "flights-" in path] == []


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("partitions", "stripes"), [(200, 4), (1_000, 1)])
def test_all_partitions_of_stripes_cost_two_requests_a_second_at_rest(
    open_consumer, partitions, stripes, level
):
    consumer = open_consumer(partitions, stripes, isolation_level=level)
    consumer.append(5)
    consumer.wait(40_000 + partitions * 2 * GET_MS)  # at first it lists each partition
    assert consumer.taken == [5]
    assert len(consumer.wait(60_000)) <= IDLE_BUDGET * 60


def test_the_first_record_after_a_rest_comes_in_time(open_consumer):
    consumer = open_consumer(40)
    consumer.wait(10 * REST_MS)
    for number in (3, 7, 20):
        assert consumer.delay_ms(number) <= 2_400 + 8 * GET_MS
        consumer.wait(2 * REST_MS + 333)


def test_the_next_records_of_any_partition_of_the_stripe_come_at_full_speed(open_consumer):
    consumer = open_consumer(40)
    consumer.wait(10 * REST_MS)
    consumer.delay_ms(0)
    for number in (4, 8, 4, 12, 0):
        assert consumer.delay_ms(number) <= 200


def test_a_paused_partition_gets_its_records_when_it_is_resumed(open_consumer):
    consumer = open_consumer(8)
    consumer.wait(1_000)
    consumer.loop.buffer.pause(consumer.cursors[4])
    consumer.append(4)
    consumer.wait(5_000)
    assert consumer.taken == []
    consumer.loop.buffer.resume(consumer.cursors[4])
    consumer.loop.enqueue(consumer.cursors[4])
    consumer.wait(1_000)
    assert consumer.taken == [4]


def test_a_paused_partition_that_is_behind_keeps_the_stripe_from_nobody(open_consumer):
    """The stripe is polled for the others, though what is known of it is not read."""
    consumer = open_consumer(2, stripes=1)
    consumer.append_objects(1, 2, 2)
    consumer.append_objects(4 * MAX_OPEN_OBJECTS, 1, 1)
    behind, other = consumer.cursors
    while not other.is_at_end:
        consumer.run_once()
    assert behind.is_queued
    consumer.loop.buffer.pause(behind)
    consumer.taken.clear()
    assert consumer.delay_ms(1) <= 1_000


def test_a_stripe_without_readers_is_not_probed(open_consumer):
    consumer = open_consumer(8)
    consumer.wait(1_000)
    for cursor in consumer.cursors[:4] + consumer.cursors[5:]:
        consumer.loop.remove(cursor)
    other = consumer.stripes[1].directory.path
    assert not [path for path in consumer.wait(10_000) if path.startswith(other)]
    assert consumer.delay_ms(4) <= 1_000 + 8 * GET_MS


def test_a_failed_probe_is_repeated(open_consumer):
    consumer = open_consumer(8)
    consumer.wait(1_000)
    failures = iter([True] * 3)

    def fail(path, call):
        if next(failures, False):
            raise StorageTimeoutError("no answer", path=path)
        return call()

    for operation in ("read", "read_tail", "open_buffer", "list"):
        consumer.store.on(operation, fail)
    consumer.wait(1_000)
    consumer.append(6)
    consumer.wait(10_000)
    assert consumer.taken == [6]


def read_all_ends(open_consumer, partitions):
    """A consumer of one stripe that waits at the ends of all partitions."""
    consumer = open_consumer(partitions, stripes=1)
    consumer.append_objects(1, partitions, partitions)
    while not all(each.waits_for_stripe() for each in consumer.cursors):
        consumer.run_once()
    return consumer


def test_who_waits_is_woken_a_few_times_for_the_partitions_of_an_object(open_consumer, monkeypatch):
    consumer = read_all_ends(open_consumer, 100)
    buffer, waiting = consumer.loop.buffer, []
    changed = consumer.loop._changed  # noqa: SLF001
    monkeypatch.setattr(
        changed, "notify_all", lambda: waiting.append(sum(c.rows_left for c in consumer.cursors))
    )
    consumer.append_objects(1, 100, 100)
    while not all(each.waits_for_stripe() and each.offset == 2 for each in consumer.cursors):
        consumer.loop.run_once()
    assert buffer.waiting_bytes
    assert waiting[0] == 1, "who waits gets the first record at once"
    assert waiting[-1] == 100, "nobody waits for records that are there"
    assert len(waiting) <= 3


def test_entries_are_opened_once_and_none_is_looked_for_at_the_known_end(
    open_consumer, monkeypatch
):
    consumer = read_all_ends(open_consumer, 100)
    (stripe,) = consumer.stripes
    opened, shipped = [], stripe.reader.open

    def count_opened(partition, base_offset, **how):
        opened.append((partition, base_offset))
        return shipped(partition, base_offset, **how)

    monkeypatch.setattr(stripe.reader, "open", count_opened)
    consumer.append_objects(1, 100, 100)
    while not all(each.waits_for_stripe() and each.offset == 2 for each in consumer.cursors):
        consumer.run_once()
    assert sorted(opened) == [(number, 1) for number in range(100)]
