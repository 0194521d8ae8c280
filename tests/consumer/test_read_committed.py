"""``isolation.level=read_committed``: what a consumer returns, and where its positions are."""

import asyncio
import time

import pytest

from spark_log import AIOConsumer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.consumer import ConsumerInterceptor
from spark_log.consumer.fetch import Fetcher
from spark_log.errors import CorruptRecordError, StorageError
from spark_log.log import PartitionLog
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from spark_log.util.clock import ManualClock
from tests.consumer.support import PATIENCE_MS, T0, append, damage, log_of, numbered, read_values
from tests.record.samples import START_US
from tests.store_calls import counted_calls
from tests.transactions import TransactionWriter

COMMITTED = {"isolation_level": "read_committed"}


@pytest.fixture
def writer(root):
    return TransactionWriter(log_of(root))


@pytest.fixture
def other(root):
    """Another producer of the same partition."""
    return TransactionWriter(log_of(root), producer_id=8)


@pytest.fixture
def mixed(root, writer, other):
    """Offsets 0-1 and 7 plain, 2-3 committed, 4 and 8 aborted, 5, 6 and 9 their markers."""
    append(root, [b"a", b"b"])
    writer.send(b"c", b"d")
    other.send(b"lost")
    writer.commit()
    other.abort()
    append(root, [b"e"])
    other.send(b"lost")
    other.abort()


def drain(consumer, end, poll):
    """Poll until the position of T0 is ``end``; return the values."""
    found: list[bytes] = []
    while T0 not in consumer.assignment() or consumer.position(T0) < end:
        found += poll(consumer)
    return found


def poll_values(consumer, **options):
    return [record.value for record in consumer.poll(100, **options).get(T0, [])]


WAYS = {
    "poll": poll_values,
    "poll one": lambda consumer: poll_values(consumer, max_records=1),
    "poll_table": lambda consumer: consumer.poll_table(100)["value"].to_pylist(),
    "poll_table one": lambda consumer: consumer.poll_table(100, 1)["value"].to_pylist(),
    "iteration": lambda consumer: [record.value for record in consumer],
}


@pytest.mark.parametrize("way", WAYS)
class TestEveryWayToRead:
    def test_returns_committed_records_and_passes_the_others(self, open_consumer, mixed, way):
        consumer = open_consumer("t", **COMMITTED, consumer_timeout_ms=100)
        assert drain(consumer, 10, WAYS[way]) == [b"a", b"b", b"c", b"d", b"e"]
        assert consumer.lag() == {T0: 0}

    def test_waits_for_the_end_of_a_transaction(self, root, open_consumer, writer, way):
        consumer = open_consumer("t", **COMMITTED, consumer_timeout_ms=100)
        writer.send(b"a", b"b")
        append(root, [b"c"])
        assert WAYS[way](consumer) == []
        assert consumer.position(T0) == 0
        writer.commit()
        assert drain(consumer, 4, WAYS[way]) == [b"a", b"b", b"c"]

    def test_by_default_all_records_are_returned(self, root, open_consumer, writer, way):
        writer.send(b"a")
        writer.abort()
        writer.send(b"b")
        consumer = open_consumer("t", consumer_timeout_ms=100)
        assert drain(consumer, 3, WAYS[way]) == [b"a", b"b"]


def test_asyncio(root, mixed):
    async def read():
        settings = {"root": root, "auto_offset_reset": "earliest", **COMMITTED}
        async with AIOConsumer("t", **settings) as consumer:
            found = [(await anext(consumer)).value for _ in range(5)]
            assert await consumer.end_offsets([T0]) == {T0: 10}
            return found

    found = asyncio.run(asyncio.wait_for(read(), PATIENCE_MS / 1000))
    assert found == [b"a", b"b", b"c", b"d", b"e"]


class TestPollsOfAbortedRecords:
    """A poll that can give no record returns as soon as its position has moved on."""

    @pytest.fixture
    def moved(self, monkeypatch):
        """What the fetches of the present poll have moved on; clear it before each poll."""
        moved: dict[TopicPartition, int] = {}
        collect_fetch = Fetcher.collect_fetch

        def collect_once(self, max_records, timeout_ms):
            assert not moved, "the poll waits, although its position has moved on"
            fetch = collect_fetch(self, max_records, timeout_ms)
            moved.update(fetch.positions)
            return fetch

        monkeypatch.setattr(Fetcher, "collect_fetch", collect_once)
        return moved

    @pytest.mark.parametrize("method", ["poll", "poll_table"])
    def test_return_when_their_position_has_moved_on(self, open_consumer, writer, moved, method):
        writer.send(b"lost")
        writer.abort()
        consumer = open_consumer("t", **COMMITTED)
        position = 0
        while position < 2:
            moved.clear()
            assert not len(getattr(consumer, method)(PATIENCE_MS))
            assert moved[T0] == consumer.position(T0) > position
            position = moved[T0]

    @pytest.mark.partition_logs_only("damages a file of a partition")
    def test_return_before_an_error_behind_them(self, root, open_consumer, writer):
        writer.send(b"lost")
        writer.abort()
        append(root, numbered(0, 4))
        damage(root, 2, b"0123")
        consumer = open_consumer("t", **COMMITTED)
        while T0 not in consumer.assignment() or consumer.position(T0) < 2:
            assert consumer.poll(PATIENCE_MS) == {}
        with pytest.raises(CorruptRecordError):
            consumer.poll(PATIENCE_MS)

    def test_do_not_end_an_iteration(self, root, open_consumer, writer, monkeypatch):
        writer.send(b"lost")
        writer.abort()
        collect_fetch = Fetcher.collect_fetch

        def append_behind(self, max_records, timeout_ms):
            fetch = collect_fetch(self, max_records, timeout_ms)
            if fetch.positions == {T0: 2}:
                append(root, [b"a"])
            return fetch

        monkeypatch.setattr(Fetcher, "collect_fetch", append_behind)
        consumer = open_consumer("t", **COMMITTED, consumer_timeout_ms=PATIENCE_MS)
        assert next(consumer).value == b"a"


def test_interceptors_see_committed_records_alone(open_consumer, mixed):
    seen: list[bytes] = []

    class Seen(ConsumerInterceptor):
        def on_consume(self, records):
            seen.extend(record.value for those in records.values() for record in those)
            return records

        def on_commit(self, offsets):
            return None

    consumer = open_consumer("t", **COMMITTED, interceptors=[Seen()])
    drain(consumer, 10, poll_values)
    assert seen == [b"a", b"b", b"c", b"d", b"e"]


class TestPosition:
    @pytest.mark.parametrize("offset", range(11))
    def test_may_be_sought_anywhere(self, open_consumer, mixed, offset):
        consumer = open_consumer("t", **COMMITTED)
        consumer.poll(0)
        consumer.seek(T0, offset)
        expected = {0: b"a", 1: b"b", 2: b"c", 3: b"d", 7: b"e"}
        found = drain(consumer, 10, poll_values)
        assert found == [value for at, value in expected.items() if at >= offset]

    def test_behind_the_last_stable_offset_nothing_comes_until_it_is_there(
        self, root, open_consumer, writer
    ):
        writer.send(b"a")
        append(root, [b"b", b"c"])
        consumer = open_consumer("t", **COMMITTED)
        consumer.poll(0)
        consumer.seek(T0, 2)
        assert consumer.poll(50) == {}
        assert consumer.position(T0) == 2
        writer.commit()
        assert read_values(consumer, 1) == [b"c"]

    def test_of_a_paused_partition_stays(self, open_consumer, writer):
        consumer = open_consumer("t", **COMMITTED)
        writer.send(b"a")
        consumer.poll(50)
        consumer.pause(T0)
        writer.commit()
        assert consumer.poll(50) == {}
        assert consumer.position(T0) == 0
        consumer.resume(T0)
        assert read_values(consumer, 1) == [b"a"]

    def test_is_committed_behind_markers_and_aborted_records(self, open_consumer, mixed):
        consumer = open_consumer("t", group_id="g", **COMMITTED)
        drain(consumer, 10, poll_values)
        consumer.commit()
        assert consumer.committed(T0) == 10


class TestOffsets:
    @pytest.fixture
    def held(self, root, writer):
        """Offsets 0 plain, 1 of an open transaction, 2 plain."""
        append(root, [b"a"], times_us=[START_US])
        writer.send(b"b", timestamp=START_US + 1_000_000)
        append(root, [b"c"], times_us=[START_US + 2_000_000])

    @pytest.mark.parametrize(("level", "end"), [("read_committed", 1), ("read_uncommitted", 3)])
    def test_the_end_is_the_last_stable_offset(self, open_consumer, held, level, end):
        consumer = open_consumer(isolation_level=level)
        assert consumer.end_offsets([T0]) == {T0: end}
        assert consumer.beginning_offsets([T0]) == {T0: 0}
        consumer.assign([T0])
        assert consumer.lag() == {T0: end}
        consumer.seek_to_end(T0)
        assert consumer.position(T0) == end
        assert consumer.lag() == {T0: 0}

    def test_latest_is_the_last_stable_offset(self, open_consumer, held, writer):
        consumer = open_consumer("t", auto_offset_reset="latest", **COMMITTED)
        consumer.poll(0)
        assert consumer.position(T0) == 1
        writer.commit()
        assert read_values(consumer, 2) == [b"b", b"c"]

    def test_a_time_gives_stable_offsets_alone(self, open_consumer, held, writer):
        times = {T0: START_US // 1000 + 1000}

        def offset(consumer):
            found = consumer.offsets_for_times(times)[T0]
            return found and found.offset

        consumer = open_consumer(**COMMITTED)
        assert (offset(consumer), offset(open_consumer())) == (None, 1)
        writer.commit()
        assert offset(consumer) == 1

    def test_the_lag_in_metrics_and_the_high_watermark(self, open_consumer, held):
        consumer = open_consumer("t", **COMMITTED)
        assert read_values(consumer, 1) == [b"a"]
        while consumer.highwater(T0) is None:
            consumer.poll(50)
        metrics = consumer.metrics()["consumer-fetch-manager-metrics"]
        assert metrics["records-lag-max"] == 0
        assert consumer.highwater(T0) == 3


class TestProducersThatAreGone:
    """Transactions with a state log, whose producer puts no marker."""

    @pytest.fixture
    def clock(self):
        return ManualClock()

    def begin(self, root, clock, timeout_ms=60_000):
        """Begin a transaction with one record; return its coordinator and its owner."""
        cluster = Cluster(root, clock=clock)
        coordinator = TransactionCoordinator(cluster, "transfers")
        owner = coordinator.initialize(timeout_ms)
        topic = cluster.topic("t")
        coordinator.register(owner, [TopicIdPartition(topic.topic_id, 0)])
        log = cluster.partition_log(topic, 0)
        TransactionWriter(log, owner.producer_id).send(b"a")
        return coordinator, owner

    def decide(self, coordinator, owner, end, monkeypatch):
        def dead(self, markers):
            raise StorageError("killed")

        with monkeypatch.context() as dying:
            dying.setattr(PartitionLog, "append_markers", dead)
            getattr(coordinator, end)(owner)

    @pytest.mark.parametrize(("end", "values"), [("commit", [b"a", b"b"]), ("abort", [b"b"])])
    def test_a_decided_transaction_gets_its_marker(
        self, root, open_consumer, clock, monkeypatch, end, values
    ):
        coordinator, owner = self.begin(root, clock)
        append(root, [b"b"])
        self.decide(coordinator, owner, end, monkeypatch)
        consumer = open_consumer("t", **COMMITTED)
        assert read_values(consumer, len(values)) == values

    def test_an_ongoing_transaction_is_aborted_after_its_timeout(self, root, open_consumer, clock):
        self.begin(root, clock, timeout_ms=1000)
        append(root, [b"b"])
        consumer = open_consumer("t", **COMMITTED)
        assert read_values(consumer, 1) == [b"b"]

    def test_a_held_up_consumer_asks_at_most_once_a_second(self, root, open_consumer, clock):
        self.begin(root, clock)
        consumer = open_consumer("t", **COMMITTED)
        began_s = time.monotonic()
        with counted_calls() as calls:
            while not (looks := _looks(calls)):
                assert consumer.poll(100) == {}
            for _ in range(12):
                assert consumer.poll(100) == {}
            assert looks <= _looks(calls) <= 1 + (time.monotonic() - began_s - 0.5)


def _looks(calls):
    """How often a state log was looked for by a producer id."""
    return sum(n for (_, path), n in calls.items() if path == "__transaction_state/producers")
