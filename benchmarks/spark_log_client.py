"""Spark Log's clients, on a root on disk, as a `ClientPeer`."""

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from benchmarks.client_peer import (
    FIRST_RECORD_TOPIC,
    MAX_RECORDS,
    PARTITIONS,
    Poll,
    ReadStamps,
    Send,
    values,
)
from benchmarks.timing import report_ages
from spark_log import (
    Admin,
    Consumer,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
)

_FIRST_RECORD = """
from spark_log import Producer
p = Producer("{root}", linger_ms=0)
p.send("{topic}", b"x" * 100).result(30)
print("acknowledged", flush=True)
p.close()
"""
_WAIT_MS = 10_000


class SparkLogPeer:
    """Spark Log as a `ClientPeer`."""

    name = "spark-log"

    def __init__(self, root: str, *, is_synced: bool = False) -> None:
        """Open an `Admin` on a root.

        Args:
            root: the URL of a new root.
            is_synced: whether appends are synced to disk, which is our default but not Kafka's.
        """
        self.address = root
        self._configs = {"flush.on.append": is_synced}
        self._admin = Admin(root)

    @property
    def read_stamps(self) -> ReadStamps:
        return read_stamps

    @property
    def first_record(self) -> str:
        return _FIRST_RECORD.format(root=self.address, topic=FIRST_RECORD_TOPIC)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, topic_configs=self._configs)])

    def record_count(self, topic: str) -> int:
        (described,) = self._admin.describe_topics([topic])
        partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
        ends = self._admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return sum(end.offset for end in ends.values())

    def send_all(self, topic: str, count: int) -> float:
        with Producer(self.address, acks="all") as producer:
            send = producer.send
            start = time.perf_counter()
            for value in values(count):
                send(topic, value)
            producer.flush()
            return time.perf_counter() - start

    def send_table(self, topic: str, count: int) -> float:
        """Send a table, one slice per partition; return the seconds until all are acknowledged."""
        table = pa.table({"value": pa.array(list(values(count)), pa.binary())})
        each = -(-count // PARTITIONS)
        with Producer(self.address, acks="all") as producer:
            start = time.perf_counter()
            for number in range(PARTITIONS):
                producer.send_table(topic, table.slice(number * each, each), partition=number)
            producer.flush()
            return time.perf_counter() - start

    def pollers(self) -> dict[str, Poll]:
        return {self.name: self.poll_all}

    def poll_all(self, topic: str, count: int) -> float:
        """Read a topic from its start; return the seconds until every value was accessed."""
        with _consumer(self.address) as consumer:
            start = time.perf_counter()
            _assign(consumer, topic, PARTITIONS)
            seen = size_bytes = 0
            while seen < count:
                polled = consumer.poll(timeout_ms=_WAIT_MS, max_records=MAX_RECORDS)
                record: Any  # checking a value's type would cost time
                for records in polled.values():
                    for record in records:
                        size_bytes += len(record.value)
                        seen += 1
            return time.perf_counter() - start

    def poll_table(self, topic: str, count: int) -> float:
        """Read a topic from its start as tables; return the duration in seconds."""
        with _consumer(self.address) as consumer:
            start = time.perf_counter()
            _assign(consumer, topic, PARTITIONS)
            seen = 0
            while seen < count:
                seen += consumer.poll_table(timeout_ms=_WAIT_MS).num_rows
            return time.perf_counter() - start

    def open_sender(self, topic: str) -> tuple[Send, Callable[[], object]]:
        producer = Producer(self.address, acks="all", linger_ms=0)

        def send(value: bytes) -> None:
            producer.send(topic, value).result(30)

        return send, producer.close


def read_stamps(address: str, topic: str, count: int, pipe: Connection) -> None:
    """Read stamps as `ClientPeer.read_stamps` describes."""
    with _consumer(address) as consumer:
        _assign(consumer, topic, 1)
        consumer.poll(timeout_ms=100)

        def next_values() -> list[object]:
            polled = consumer.poll(timeout_ms=_WAIT_MS).values()
            return [record.value for records in polled for record in records]

        report_ages(pipe, next_values, count)


def _consumer(root: str) -> Consumer:
    return Consumer(root=root, auto_offset_reset="earliest", enable_auto_commit=False)


def _assign(consumer: Consumer, topic: str, partitions: int) -> None:
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
