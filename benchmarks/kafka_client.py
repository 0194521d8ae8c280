"""confluent-kafka and a real broker as a `ClientPeer`."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.client_peer import (
    FIRST_RECORD_TOPIC,
    MAX_RECORDS,
    PARTITIONS,
    Poll,
    ReadStamps,
    Send,
    values,
)
from benchmarks.kafka_broker import BrokerError, KafkaBroker
from benchmarks.timing import report_ages

_FIRST_RECORD = """
from confluent_kafka import Producer
p = Producer({{"bootstrap.servers": "{servers}", "acks": "all", "linger.ms": 0}})
p.produce("{topic}", b"x" * 100)
assert not p.flush(30)
print("acknowledged", flush=True)
"""
_QUEUED = 1_000_000
"""Size of the send queue in messages: ten times the default, so that `produce` blocks less."""
_MORE_AHEAD: dict[str, str | int] = {"queued.min.messages": 1_000_000}
"""A larger queue of fetched messages. With the default of 100,000, the client pauses its fetches
for a second when the queue is full."""
_QUIET: dict[str, str | int] = {"log_level": 2}
"""Settings without log messages about the broker, which stops at the end."""


class KafkaPeer:
    """confluent-kafka as a `ClientPeer`, without callbacks, which would slow it down."""

    name = "confluent-kafka"

    def __init__(self, broker: KafkaBroker) -> None:
        """Return the peer of a broker.

        Args:
            broker: a running broker.
        """
        self._broker = broker
        self._admin = AdminClient({**_QUIET, "bootstrap.servers": self.address})

    @property
    def address(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def read_stamps(self) -> ReadStamps:
        return read_stamps

    @property
    def first_record(self) -> str:
        return _FIRST_RECORD.format(servers=self.address, topic=FIRST_RECORD_TOPIC)

    def create_topic(self, topic: str, partitions: int) -> None:
        for done in self._admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            done.result(30)

    def record_count(self, topic: str) -> int:
        consumer = _consumer(self.address)
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ]
        consumer.close()
        return sum(ends)

    def send_all(self, topic: str, count: int) -> float:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "acks": "all",
                "enable.idempotence": True,
                **_QUIET,
                "queue.buffering.max.messages": _QUEUED,
            }
        )
        produce = producer.produce
        start = time.perf_counter()
        for value in values(count):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush(60)
        took_s = time.perf_counter() - start
        if left:
            raise BrokerError(f"{left} of {count} records were not acknowledged in 60 s")
        return took_s

    def pollers(self) -> dict[str, Poll]:
        return {
            self.name: partial(self._poll_all, _MORE_AHEAD),
            f"{self.name}, defaults": partial(self._poll_all, {}),
        }

    def _poll_all(self, settings: Mapping[str, str | int], topic: str, count: int) -> float:
        consumer = _consumer(self.address, settings)
        start = time.perf_counter()
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        seen = size_bytes = 0
        message: Any  # checking a value's type would cost time
        while seen < count:
            for message in consumer.consume(min(MAX_RECORDS, count - seen), timeout=10):
                size_bytes += len(message.value())
                seen += 1
        took_s = time.perf_counter() - start
        consumer.close()
        return took_s

    def open_sender(self, topic: str) -> tuple[Send, Callable[[], object]]:
        producer = Producer(
            {"bootstrap.servers": self.address, "acks": "all", "linger.ms": 0, **_QUIET}
        )

        def send(value: bytes) -> None:
            producer.produce(topic, value)
            producer.flush()

        return send, producer.flush


def read_stamps(address: str, topic: str, count: int, pipe: Connection) -> None:
    """Read stamps as `ClientPeer.read_stamps` describes."""
    consumer = _consumer(address)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    consumer.poll(1)

    def next_values() -> list[object]:
        message = consumer.poll(1)
        return [] if message is None or message.error() else [message.value()]

    report_ages(pipe, next_values, count)
    consumer.close()


def _consumer(address: str, settings: Mapping[str, str | int] | None = None) -> Consumer:
    return Consumer(
        {
            **(settings or {}),
            **_QUIET,
            "bootstrap.servers": address,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
