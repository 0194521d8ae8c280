"""A producer whose object store accepts requests and does not answer."""

import asyncio
import time
from contextlib import contextmanager

import pytest

from spark_log import (
    Admin,
    AIOProducer,
    IllegalStateError,
    KafkaTimeoutError,
    NewTopic,
    Producer,
    UnknownOutcomeError,
)
from spark_log.testing.servers.s3_server import run_s3_server

SLACK_S = 5.0


@pytest.fixture(scope="module")
def server():
    with run_s3_server() as server:
        yield server


@pytest.fixture
def root(server):
    root = server.new_bucket()
    with Admin(root, storage_options=server.storage_options) as admin:
        admin.create_topics([NewTopic("t"), NewTopic("u")])
    return root


@pytest.fixture
def settings(server, root):
    return {"root": root, "storage_options": server.storage_options}


@contextmanager
def takes_at_most(limit_ms):
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_ms / 1000 + SLACK_S


def test_to_open_one_ends_by_the_longer_of_its_two_time_limits(server, settings):
    limited = pytest.raises(KafkaTimeoutError, match=r"request\.timeout\.ms \(300 ms\)")
    with server.frozen(), takes_at_most(300), limited as told:
        Producer(**settings, request_timeout_ms=300, max_block_ms=0)
    assert told.value.retriable


def test_send_ends_by_max_block_ms(server, settings):
    with Producer(**settings, max_block_ms=300) as producer:
        limited = pytest.raises(KafkaTimeoutError, match=r"max\.block\.ms")
        with server.frozen(), takes_at_most(300), limited:
            producer.send("t", b"x")
        with server.frozen(), takes_at_most(300), limited:
            producer.partitions_for("t")
        assert producer.send("t", b"y").get(timeout=30).offset == 0


def test_futures_fail_by_delivery_timeout_ms_and_calls_return(server, settings):
    producer = Producer(**settings, delivery_timeout_ms=300, linger_ms=0)
    assert producer.send("t", b"0").get(timeout=30).offset == 0
    with server.frozen():
        future = producer.send("t", b"1")
        with takes_at_most(100), pytest.raises(KafkaTimeoutError, match="flush"):
            producer.flush(timeout=0.1)
        with takes_at_most(300), pytest.raises(UnknownOutcomeError, match="is not known"):
            future.get(timeout=30)
        other = producer.send("t", b"2")
        with takes_at_most(300):
            producer.close(timeout=0.1)
        assert isinstance(other.exception(), IllegalStateError | UnknownOutcomeError)


def test_records_are_acknowledged_when_the_store_answers_again(server, settings):
    with Producer(**settings) as producer:
        producer.send("t", b"0").get(timeout=30)
        with server.frozen():
            futures = [producer.send("t", b"%d" % number) for number in range(1, 5)]
            with pytest.raises(KafkaTimeoutError):
                producer.flush(timeout=0.2)
        assert [future.get(timeout=60).offset for future in futures] == [1, 2, 3, 4]


def test_of_an_asyncio_producer(server, settings):
    async def run():
        producer = AIOProducer(**settings, max_block_ms=300)
        await producer.start()
        with server.frozen(), takes_at_most(300), pytest.raises(KafkaTimeoutError):
            await producer.send("t", b"x")
        await producer.close()

    asyncio.run(run())
