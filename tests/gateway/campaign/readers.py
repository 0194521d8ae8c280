"""Readers of all topics from their starts, by assignment: read_committed, without a group."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import kafka
from kafka import KafkaConsumer

from spark_log import Consumer, SparkLogError, TopicPartition
from spark_log.testing.history import Polled
from tests.gateway.campaign.client import REQUEST_TIMEOUT_MS, Client
from tests.gateway.campaign.producers import RDKAFKA
from tests.gateway.campaign.topics import PARTITIONS, partitions_of

PASSING = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"}
"""Errors of librdkafka that only say that it tries again."""


PATIENCE_S = 20.0
"""Time after which a client of kafka-python is opened anew if nothing arrives: it never comes back
to its ``bootstrap_servers``, so it may know only addresses at which no gateway listens any more."""


def text(value: Any) -> str:
    """Return the text of a record's value."""
    return str(value, "utf-8")


def python_polls(client, open_consumer):
    """Yield the records of each poll of consumers of kafka-python, which follow each other."""
    while True:
        try:
            consumer, arrived_s = open_consumer(), time.monotonic()
        except kafka.errors.KafkaError:  # it found no gateway
            if client.is_ending.wait(1):
                return
            continue
        try:
            while time.monotonic() - arrived_s < PATIENCE_S or client.is_ending.is_set():
                try:
                    polled = consumer.poll(timeout_ms=300)
                except kafka.errors.KafkaConnectionError:
                    polled = {}  # it raises what it should try again
                if polled:
                    arrived_s = time.monotonic()
                yield (
                    consumer,
                    [
                        Polled(
                            TopicPartition(record.topic, record.partition),
                            record.offset,
                            record.value.decode(),
                        )
                        for records in polled.values()
                        for record in records
                    ],
                )
        finally:
            consumer.close(autocommit=False, timeout_ms=5000)


class _Reader(Client):
    """Reads until it has to end.

    Attributes:
        positions: the offset after the last record of each partition.
    """

    def __post_init__(self):
        super().__post_init__()
        self.positions = dict.fromkeys(partitions_of(*PARTITIONS), 0)

    def run(self, notes):
        notes.assign(list(self.positions), 0)
        for records in self.polls():
            if records:
                notes.poll(*records)
                self.positions |= {each.topic_partition: each.offset + 1 for each in records}
            if self.is_ending.is_set():
                return

    def polls(self):
        """Yield the records of each poll."""
        raise NotImplementedError


class RdkafkaReader(_Reader):
    """A consumer of librdkafka."""

    def polls(self):
        consumer = confluent_kafka.Consumer(
            {
                **RDKAFKA,
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "group.id": f"unused-{self.name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign(
            [
                confluent_kafka.TopicPartition(each.topic, each.partition, 0)
                for each in self.positions
            ]
        )
        try:
            while True:
                yield list(self._records(consumer.consume(500, timeout=0.3)))
        finally:
            consumer.close()

    def _records(self, messages):
        for each in messages:
            if each.error() is None:
                partition = TopicPartition(each.topic(), each.partition())
                yield Polled(partition, each.offset(), each.value().decode())
            elif each.error().name() not in PASSING:
                self.fail(f"{each.topic()}-{each.partition()}: {each.error()}")


class PythonReader(_Reader):
    """A consumer of kafka-python."""

    def polls(self):
        for _, records in python_polls(self, self._open):
            yield records

    def _open(self):
        consumer = KafkaConsumer(
            bootstrap_servers=list(self.place.addresses),
            client_id=self.name,
            group_id=None,
            auto_offset_reset="none",
            isolation_level="read_committed",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=2000,
            reconnect_backoff_max_ms=500,
        )
        consumer.assign([kafka.TopicPartition(*each) for each in self.positions])
        for each, position in self.positions.items():
            consumer.seek(kafka.TopicPartition(*each), position)
        return consumer


class OwnReader(_Reader):
    """A consumer of this package, which needs no gateway."""

    def polls(self):
        with Consumer(
            root=self.place.root,
            storage_options=self.place.storage_options,
            auto_offset_reset="none",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign(list(self.positions))
            for each in self.positions:
                consumer.seek(each, 0)
            while True:
                try:
                    polled = consumer.poll(timeout_ms=300)
                except SparkLogError as error:
                    if not error.retriable:
                        raise
                    polled = {}
                yield [
                    Polled(each, record.offset, text(record.value))
                    for each, records in polled.items()
                    for record in records
                ]
