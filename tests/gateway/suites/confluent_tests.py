"""Tests that call the functions of confluent-kafka's ``integration_test.py``, which is a script.

They are copied to the client's own tests as ``test_integration.py``, so they import nothing of this
checkout; BROKERS in the environment has the gateways. The script knows neither transactions nor the
consumer protocol: those tests are of this file.
"""

from __future__ import annotations

import importlib
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

script: Any = importlib.import_module("tests.integration.integration_test")

BROKERS = os.environ["BROKERS"]
CLUSTER: dict[str, Any] = {"bootstrap.servers": BROKERS}


@pytest.fixture(scope="module", autouse=True)
def topic() -> None:
    """Give the script a topic with its first records, which some of its functions read."""
    script.bootstrap_servers = BROKERS
    script.topic = f"test_{uuid.uuid4()}"
    admin = AdminClient(CLUSTER)
    admin.create_topics([NewTopic(script.topic, 4, 1)])[script.topic].result()
    script.verify_producer()


@pytest.fixture(scope="module")
def million_records() -> None:
    """Let the topic have as many records as the script's measurements read."""
    script.verify_producer_performance(with_dr_cb=False)


def test_producer() -> None:
    script.DrOnlyTestSuccess_gced = 0  # the fixture's call has counted
    script.verify_producer()


def test_producer_performance() -> None:
    script.verify_producer_performance(with_dr_cb=True)


def test_consumer() -> None:
    script.verify_consumer()


def test_batch_consumer() -> None:
    script.verify_batch_consumer()


def test_consumer_performance(million_records: None) -> None:
    script.verify_consumer_performance()


def test_batch_consumer_performance(million_records: None) -> None:
    script.verify_batch_consumer_performance()


def test_stats_cb(million_records: None) -> None:
    script.verify_stats_cb()


def test_throttle_cb() -> None:
    script.verify_throttle_cb()


def test_admin() -> None:
    script.verify_admin()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_of_a_codec_reach_a_group(codec: str, protocol: str) -> None:
    name = f"codec_{uuid.uuid4()}"
    values = [b"value %d" % number * 20 for number in range(1000)]
    producer = Producer({**CLUSTER, "compression.type": codec, "linger.ms": 50})
    _produce(producer, name, values)
    assert not producer.flush(30)
    consumer = _subscribed(name, **{"group.protocol": protocol})
    assert _read(consumer, 1000) == values
    consumer.commit(asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(name, 0)], timeout=30)
    consumer.close()
    assert committed.offset == 1000


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_is_read_when_it_is_committed(is_committed: bool) -> None:
    name = f"transactions_{uuid.uuid4()}"
    producer = Producer({**CLUSTER, "transactional.id": name})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        _produce(producer, name, [b"%d" % number] * 10)
        producer.flush(30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    _produce(producer, name, [b"end"])
    producer.commit_transaction(30)
    expected = [b"0"] * 10 + [b"1"] * 10 + [b"2"] * 10 if is_committed else []
    consumer = _subscribed(name, **{"isolation.level": "read_committed"})
    assert _read(consumer, len(expected) + 1) == [*expected, b"end"]
    consumer.close()


def test_offsets_are_committed_with_a_transaction() -> None:
    name, target = f"source_{uuid.uuid4()}", f"target_{uuid.uuid4()}"
    source = Producer(CLUSTER)
    _produce(source, name, [b"%d" % number for number in range(10)])
    source.flush(30)
    producer = Producer({**CLUSTER, "transactional.id": name})
    producer.init_transactions(30)
    consumer = _subscribed(name)
    values = _read(consumer, 10)
    for is_committed in (False, True):
        producer.begin_transaction()
        _produce(producer, target, values)
        producer.flush(30)  # an abort drops what is still to be sent
        offsets = consumer.position([TopicPartition(name, 0)])
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        (committed,) = consumer.committed([TopicPartition(name, 0)], timeout=30)
        assert committed.offset == (10 if is_committed else OFFSET_INVALID)
    consumer.close()
    reader = _subscribed(target, **{"isolation.level": "read_committed"})
    assert _read(reader, 10) == values
    reader.close()


def _produce(producer: Producer, name: str, values: Sequence[bytes | None]) -> None:
    for value in values:
        producer.produce(name, value, partition=0, on_delivery=_check_delivery)
        producer.poll(0)


def _check_delivery(error: KafkaError | None, message: object) -> None:
    assert error is None, error


def _subscribed(name: str, **config: str) -> Consumer:
    group = {"group.id": f"group_{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**CLUSTER, **group, "enable.auto.commit": False, **config})
    consumer.subscribe([name])
    return consumer


def _read(consumer: Consumer, count: int) -> list[bytes | None]:
    """Return the values of the next records, in the order of their partition."""
    found: list[bytes | None] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
    return found
