"""A consumer whose object store accepts requests and does not answer."""

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import Any

import pytest

from spark_log import (
    Admin,
    AIOConsumer,
    Consumer,
    ConsumerRebalanceListener,
    KafkaTimeoutError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    StorageUnavailableError,
    TopicPartition,
    UnknownOutcomeError,
    WakeupError,
)
from spark_log.testing.servers.s3_server import run_s3_server

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SLACK_S = 5.0
"""Longer than a loaded machine needs to notice a timeout, shorter than any default timeout."""

QUICK = {"default_api_timeout_ms": 300}


@pytest.fixture(scope="module")
def server():
    with run_s3_server() as server:
        yield server


@pytest.fixture
def root(server):
    root = server.new_bucket()
    with Admin(root, storage_options=server.storage_options) as admin:
        admin.create_topics([NewTopic("t", num_partitions=2)])
    with Producer(root, storage_options=server.storage_options) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=number % 2)
    return root


@pytest.fixture
def open_consumer(server, root):
    opened = []

    def open_consumer(*topics, **settings):
        settings = {"auto_offset_reset": "earliest", **QUICK, **settings}
        consumer = Consumer(*topics, root=root, storage_options=server.storage_options, **settings)
        opened.append(consumer)
        return consumer

    yield open_consumer
    for consumer in opened:
        consumer.close(timeout_ms=2000)


@contextmanager
def takes_at_most(limit_ms):
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_ms / 1000 + SLACK_S


def read(consumer, count, within_s=60):
    """Poll until ``count`` records were returned; return their numbers in order."""
    values: list[int] = []
    until = time.monotonic() + within_s
    while len(values) < count and time.monotonic() < until:
        for records in consumer.poll(500).values():
            values += [int(record.value) for record in records]
    return sorted(values)


class TestPoll:
    @pytest.mark.parametrize(
        "settings", [{}, {"metadata_max_age_ms": 1}], ids=["heartbeats wait", "metadata wait"]
    )
    def test_of_a_member_returns_by_its_timeout_and_goes_on_afterwards(
        self, server, root, open_consumer, settings
    ):
        consumer = open_consumer("t", group_id="g", heartbeat_interval_ms=100, **settings)
        assert read(consumer, 10) == list(range(10))
        with server.frozen():
            for _ in range(3):
                with takes_at_most(200):
                    assert consumer.poll(200) == {}
        with Producer(root, storage_options=server.storage_options) as producer:
            producer.send("t", b"10", partition=0)
        assert read(consumer, 1) == [10]
        assert consumer.assignment() == {T0, T1}

    def test_that_joins_returns_and_the_join_goes_on_beside(self, server, open_consumer):
        consumer = open_consumer("t", group_id="g")
        with server.frozen():
            for _ in range(3):
                with takes_at_most(100):
                    assert consumer.poll(100) == {}
            assert consumer.assignment() == set()
        assert read(consumer, 10) == list(range(10))

    def test_a_join_needs_more_polls_than_one_where_they_are_short(self, open_consumer):
        """The next poll waits for what the last one began; to begin anew would never end."""
        consumer = open_consumer("t", group_id="g")
        for _ in range(20_000):
            if consumer.poll(1):
                return
        raise AssertionError("no records in 20,000 polls of 1 ms")

    def test_can_be_woken_up(self, server, open_consumer):
        consumer = open_consumer("t", group_id="g")
        with server.frozen():
            threading.Timer(0.1, consumer.wakeup).start()
            with takes_at_most(100), pytest.raises(WakeupError):
                consumer.poll(60_000)
        assert read(consumer, 10) == list(range(10))

    def test_of_an_asyncio_consumer_returns_too(self, server, root):
        async def run():
            settings: dict[str, Any] = {"auto_offset_reset": "earliest", **QUICK}
            consumer = AIOConsumer(
                "t", root=root, storage_options=server.storage_options, group_id="g", **settings
            )
            await consumer.start()
            with server.frozen():
                with takes_at_most(200):
                    assert await consumer.poll(200) == {}
                with takes_at_most(300), pytest.raises(KafkaTimeoutError):
                    await consumer.end_offsets([T0])
                with takes_at_most(500):
                    await consumer.close(timeout_ms=500)

        asyncio.run(run())

    def test_a_partition_out_of_range_is_reset_beside(self, server, root, open_consumer):
        consumer = open_consumer(auto_offset_reset="earliest")
        consumer.assign([T0])
        consumer.seek(T0, 1000)
        assert read(consumer, 5) == [0, 2, 4, 6, 8]


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer=None):
        self.consumer = consumer
        self.told = []
        self.threads = set()

    def on_partitions_assigned(self, assigned):
        self.threads.add(threading.get_ident())
        self.told.append(("assigned", sorted(assigned)))
        if self.consumer is not None:
            for tp in assigned:
                assert self.consumer.position(tp) == 0
            assert self.consumer.end_offsets([T0]) == {T0: 5}

    def on_partitions_revoked(self, revoked):
        self.threads.add(threading.get_ident())
        self.told.append(("revoked", sorted(revoked)))
        if self.consumer is not None:
            self.consumer.commit({tp: OffsetAndMetadata(3) for tp in revoked})


class TestListeners:
    def test_run_in_the_thread_that_polls_and_may_use_the_consumer(self, open_consumer):
        consumer = open_consumer(group_id="g", default_api_timeout_ms=30_000)
        listener = Listener(consumer)
        consumer.subscribe(["t"], listener=listener)
        assert read(consumer, 10) == list(range(10))
        consumer.unsubscribe()
        assert listener.threads == {threading.get_ident()}
        assert listener.told == [("assigned", [T0, T1]), ("revoked", [T0, T1])]
        assert consumer.committed(T0) == consumer.committed(T1) == 3

    def test_what_they_raise_is_raised_by_poll(self, open_consumer):
        class Broken(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                raise LookupError("of the listener")

        consumer = open_consumer(group_id="g")
        consumer.subscribe(["t"], listener=Broken())
        with pytest.raises(LookupError, match="of the listener"):
            read(consumer, 1)

    def test_one_that_no_poll_came_for_is_called_by_the_next(self, server, open_consumer):
        consumer = open_consumer(group_id="g", default_api_timeout_ms=30_000)
        listener = Listener()
        consumer.subscribe(["t"], listener=listener)
        with server.frozen():
            assert consumer.poll(50) == {}
        assert consumer.end_offsets([T0]) == {T0: 5}, "other calls go on"
        assert listener.told == []
        assert read(consumer, 10) == list(range(10))
        assert listener.told == [("assigned", [T0, T1])]


CALLS = {
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([T0]),
    "end_offsets": lambda consumer: consumer.end_offsets([T0]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({T0: 0}),
    "lag": lambda consumer: consumer.lag(T0),
    "position": lambda consumer: consumer.position(T1),
    "committed": lambda consumer: consumer.committed(T0),
    "topics": lambda consumer: consumer.topics(),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("t"),
    "assign": lambda consumer: consumer.assign([T0]),
}


TIMED_CALLS = {
    "beginning_offsets": lambda consumer, **timeout: consumer.beginning_offsets([T0], **timeout),
    "end_offsets": lambda consumer, **timeout: consumer.end_offsets([T0], **timeout),
    "offsets_for_times": lambda consumer, **timeout: consumer.offsets_for_times({T0: 0}, **timeout),
    "position": lambda consumer, **timeout: consumer.position(T1, **timeout),
    "committed": lambda consumer, **timeout: consumer.committed(T0, **timeout),
    "topics": lambda consumer, **timeout: consumer.topics(**timeout),
    "partitions_for_topic": lambda consumer, **timeout: consumer.partitions_for_topic(
        "t", **timeout
    ),
}


class TestOtherCalls:
    @pytest.mark.parametrize("name", TIMED_CALLS)
    def test_end_by_the_timeout_that_they_are_given(self, server, open_consumer, name):
        consumer = open_consumer(group_id="g", default_api_timeout_ms=60_000)
        consumer.assign([T0])
        read(consumer, 5)
        consumer.assign([T0, T1])
        with server.frozen(), takes_at_most(200), pytest.raises(KafkaTimeoutError, match="200"):
            TIMED_CALLS[name](consumer, timeout_ms=200)

    @pytest.mark.parametrize("name", CALLS)
    def test_end_by_default_api_timeout_ms(self, server, open_consumer, name):
        consumer = open_consumer(group_id="g")
        consumer.assign([T0])
        read(consumer, 5)
        consumer.assign([T0, T1])
        limited = pytest.raises(KafkaTimeoutError, match=r"default\.api\.timeout\.ms")
        with server.frozen(), takes_at_most(300), limited as told:
            CALLS[name](consumer)
        assert told.value.retriable
        assert "127.0.0.1" in str(told.value), "says what was waited for"

    def test_an_explicit_commit_is_unknown_then(self, server, open_consumer):
        consumer = open_consumer("t", group_id="g")
        read(consumer, 10)
        with server.frozen(), takes_at_most(300), pytest.raises(UnknownOutcomeError, match="300"):
            consumer.commit()
        with server.frozen(), takes_at_most(100), pytest.raises(UnknownOutcomeError, match="100"):
            consumer.commit(timeout_ms=100)
        with server.frozen(), takes_at_most(300), pytest.raises(UnknownOutcomeError, match="300"):
            consumer.commit({T0: OffsetAndMetadata(1)})

    def test_a_commit_for_a_partition_that_may_not_exist_is_not_begun(self, server, open_consumer):
        consumer = open_consumer(group_id="g")
        consumer.assign([T0])
        read(consumer, 5)
        with server.frozen(), takes_at_most(300), pytest.raises(KafkaTimeoutError):
            consumer.commit({TopicPartition("t", 1): OffsetAndMetadata(1)})

    def test_the_next_call_finds_the_consumer_in_order(self, server, open_consumer):
        consumer = open_consumer(group_id="g")
        consumer.assign([T0])
        with server.frozen(), pytest.raises(KafkaTimeoutError):
            consumer.end_offsets([T0])
        for _ in range(100):
            try:
                assert consumer.end_offsets([T0]) == {T0: 5}
                break
            except (KafkaTimeoutError, StorageUnavailableError):
                pass
        else:
            raise AssertionError("the store answers, and the consumer does not")
        assert read(consumer, 5) == [0, 2, 4, 6, 8]

    def test_seek_waits_for_what_a_poll_began(self, server, open_consumer):
        consumer = open_consumer()
        consumer.assign([T0])
        with server.frozen():
            assert consumer.poll(50) == {}
            with takes_at_most(300), pytest.raises(KafkaTimeoutError, match="seek"):
                consumer.seek(T0, 3)
            assert consumer.assignment() == {T0}
            assert consumer.paused() == set()
            assert consumer.metrics()["consumer-metrics"]["poll-total"] == 1

    def test_to_open_one(self, server, open_consumer):
        limited = pytest.raises(KafkaTimeoutError, match="opening the root")
        with server.frozen(), takes_at_most(300), limited as told:
            open_consumer("t")
        assert told.value.retriable

    def test_close_ends_in_its_time_and_the_place_is_free_later(self, server, root, open_consumer):
        consumer = open_consumer("t", group_id="g", session_timeout_ms=30_000)
        read(consumer, 10)
        with server.frozen(), takes_at_most(300):
            consumer.close(timeout_ms=300)
        other = open_consumer("t", group_id="g", session_timeout_ms=30_000)
        until = time.monotonic() + 20
        while other.assignment() != {T0, T1} and time.monotonic() < until:
            other.poll(200)
        assert other.assignment() == {T0, T1}

    def test_close_while_a_join_is_under_way(self, server, open_consumer):
        consumer = open_consumer("t", group_id="g")
        with server.frozen():
            consumer.poll(50)
            with takes_at_most(300):
                consumer.close(timeout_ms=300)
