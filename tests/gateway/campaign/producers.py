"""Producers: of librdkafka, of kafka-python, and of this package; idempotent or transactional."""

from __future__ import annotations

import time
from contextlib import suppress

import confluent_kafka
import kafka
from kafka import KafkaProducer

from spark_log import Producer, SparkLogError, TopicPartition, TransactionAbortableError
from spark_log.testing.history import Outcome, Send
from tests.gateway.campaign.client import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    SETTLE_S,
    Client,
)
from tests.gateway.campaign.topics import DEALS, EVENTS, PARTITIONS

TRANSACTION_TIMEOUT_MS = 15_000

PATIENCE_S = 30.0
"""Time without an answer after which a producer of kafka-python is replaced: it never comes back to
its ``bootstrap_servers``, so it may know only addresses at which no gateway listens any more."""

RDKAFKA = {
    "topic.metadata.refresh.interval.ms": 2000,
    "socket.timeout.ms": REQUEST_TIMEOUT_MS,
    "reconnect.backoff.max.ms": 500,
    "metadata.recovery.rebootstrap.trigger.ms": 5000,
    "log_level": 0,  # what it complains of is expected
}


class EventProducer(Client):
    """Sends numbered values at the campaign's rate until it has to end.

    Attributes:
        topic: the topic.
        begun: the partitions in which a record was acknowledged.
        abandoned: number of records that were given up with a producer that found no gateway.
    """

    topic = EVENTS

    def __post_init__(self):
        super().__post_init__()
        self.begun = set()
        self.abandoned = 0

    @property
    def has_begun(self):
        """Whether the log knows the producer in all partitions.

        As in Kafka, a partition takes any first sequence number of a producer that it does not
        know. If its first batches go to two gateways, the later ones may be appended first.
        """
        return len(self.begun) == PARTITIONS[self.topic]

    def run(self, notes):
        send, finish = self.open(notes)
        number = 0
        burst = 5
        while not self.is_ending.wait(burst / self.place.rate):
            for _ in range(self.chance.randint(1, 2 * burst - 1)):
                partition = self.chance.randrange(PARTITIONS[self.topic])
                send(partition, self.value(number))
                number += 1
        finish()

    def value(self, number):
        """Return the value of a record, which no other record has."""
        return f"{self.name}/{number}"

    def open(self, notes):
        """Return a function that sends a value to a partition, and one that waits for all."""
        raise NotImplementedError


class RdkafkaProducer(EventProducer):
    """An idempotent producer of librdkafka."""

    def open(self, notes):
        producer = confluent_kafka.Producer(
            {
                **RDKAFKA,
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "error_cb": self._on_error,
            }
        )

        def send(partition, value):
            operation = notes.begin(TopicPartition(self.topic, partition), value)

            def on_delivery(error, message):
                if error is None:
                    notes.acknowledge(operation, [message.offset()])
                    self.begun.add(partition)
                else:
                    self.fail(f"not delivered: {error}")

            producer.produce(self.topic, value, partition=partition, on_delivery=on_delivery)
            producer.poll(0)

        def finish():
            if left := producer.flush(SETTLE_S):
                self.fail(f"{left} records had no answer {SETTLE_S} s after the last fault")

        return send, finish

    def _on_error(self, error):
        if error.fatal():
            self.fail(f"fatal: {error}")


class PythonProducer(EventProducer):
    """An idempotent producer of kafka-python."""

    def open(self, notes):
        current = [self._open()]
        asked_s: dict[str, float] = {}  # the values without an answer, with their times

        def send(partition, value):
            if asked_s and time.monotonic() - min(tuple(asked_s.values())) > PATIENCE_S:
                # It does not know an address at which a gateway listens. What it has is given up.
                self.abandoned += len(asked_s)
                asked_s.clear()
                with suppress(kafka.errors.KafkaError):
                    current[0].close(timeout=1)
                current[0] = self._open()
            asked_s[value] = time.monotonic()
            producer = current[0]

            def on_end() -> bool:
                asked_s.pop(value, None)
                return producer is current[0]

            _send(self, notes, producer, partition, value, on_end)

        def finish():
            try:
                current[0].close(timeout=PATIENCE_S)
            except kafka.errors.KafkaTimeoutError:
                self.abandoned += len(asked_s)

        return send, finish

    def _open(self):
        return KafkaProducer(
            bootstrap_timeout_ms=SETTLE_S * 1000,
            bootstrap_servers=list(self.place.addresses),
            client_id=self.name,
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
            metadata_max_age_ms=2000,
            reconnect_backoff_max_ms=500,
        )


class OwnProducer(EventProducer):
    """A producer of this package, which needs no gateway."""

    def open(self, notes):
        producer = Producer(
            self.place.root,
            storage_options=self.place.storage_options,
            linger_ms=2,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=2_000,
        )

        def send(partition, value):
            _send(self, notes, producer, partition, value)

        return send, lambda: producer.close(SETTLE_S)


def _send(client, notes, producer, partition, value, on_end=lambda: True):
    """Send by a producer whose futures are those of kafka-python.

    The order of its records is that of its calls, until ``on_end`` says that it was given up.
    """
    operation = notes.begin(TopicPartition(client.topic, partition), value)

    def on_success(found):
        if on_end():
            notes.acknowledge(operation, [found.offset])
            client.begun.add(partition)

    def on_error(error):
        if on_end():
            client.fail(f"not delivered: {error!r}")

    future = producer.send(client.topic, value.encode(), partition=partition)
    future.add_callback(on_success)
    future.add_errback(on_error)


# --- transactions --------------------------------------------------------------------------------


class OwnTransactions(Client):
    """A transactional producer of this package: each transaction is in all partitions.

    Attributes:
        outcomes: number of transactions that were committed, aborted, or of which that is unknown.
    """

    def run(self, notes):
        self.outcomes = dict.fromkeys(Outcome, 0)
        self._number = 0
        while not self.is_ending.is_set():
            try:
                with self._open() as producer:
                    producer.init_transactions()
                    while not self.is_ending.wait(0.3):
                        self._transact(notes, producer)
            except SparkLogError as error:
                if not error.retriable and not isinstance(error, TransactionAbortableError):
                    self.fail(repr(error))
                self.is_ending.wait(0.2)

    def _open(self):
        return Producer(
            self.place.root,
            storage_options=self.place.storage_options,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=1,
            request_timeout_ms=2_000,
            max_block_ms=60_000,
        )

    def _transact(self, notes, producer):
        sends = _sends(self, self._number)
        self._number += 1
        operation = notes.begin_transaction((), sends)
        outcome = Outcome.UNKNOWN
        try:
            producer.begin_transaction()
            try:
                for send in sends:
                    partition = send.topic_partition
                    producer.send(DEALS, send.value.encode(), partition=partition.partition)
                if self.chance.random() < 0.4:
                    producer.flush()
                if self.chance.random() < 0.3:
                    producer.abort_transaction()
                    outcome = Outcome.ABORTED
                else:
                    operation = notes.end_transaction(operation)
                    producer.commit_transaction()
                    outcome = Outcome.COMMITTED
            except TransactionAbortableError:
                producer.abort_transaction()
                outcome = Outcome.ABORTED
        finally:
            self.outcomes[outcome] += 1
            notes.note_end(operation, outcome)


class RdkafkaTransactions(Client):
    """A transactional producer of librdkafka, whose transactions are those of `OwnTransactions`."""

    def run(self, notes):
        self.outcomes = dict.fromkeys(Outcome, 0)
        self._number = 0
        while not self.is_ending.is_set():
            producer = self._open()
            try:
                _retried(producer.init_transactions)
                while not self.is_ending.wait(0.3):
                    self._transact(notes, producer)
            except confluent_kafka.KafkaException as error:
                if not self._is_expected(error.args[0]):
                    self.fail(f"{error.args[0]!r}")
                self.is_ending.wait(0.2)

    def _open(self):
        return confluent_kafka.Producer(
            {
                **RDKAFKA,
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
            }
        )

    def _is_expected(self, error):
        """Whether the transaction's timeout has passed, or that of a call."""
        names = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "_TIMED_OUT", "_STATE")
        return error.name() in names or error.txn_requires_abort() or error.retriable()

    def _transact(self, notes, producer):
        sends = _sends(self, self._number)
        self._number += 1
        operation = notes.begin_transaction((), sends)
        outcome = Outcome.UNKNOWN
        try:
            producer.begin_transaction()
            try:
                for send in sends:
                    producer.produce(DEALS, send.value, partition=send.topic_partition.partition)
                if self.chance.random() < 0.4:
                    producer.flush(TRANSACTION_TIMEOUT_MS / 1000)
                if self.chance.random() < 0.3:
                    _retried(producer.abort_transaction)
                    outcome = Outcome.ABORTED
                else:
                    operation = notes.end_transaction(operation)
                    _retried(producer.commit_transaction)
                    outcome = Outcome.COMMITTED
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                _retried(producer.abort_transaction)
                outcome = Outcome.ABORTED
        finally:
            self.outcomes[outcome] += 1
            notes.note_end(operation, outcome)


def _retried(call):
    """Call a method of librdkafka again as long as it says that this is safe."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        try:
            return call(30)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise


def _sends(client, number):
    count = client.chance.randint(1, 3)
    return [
        Send(TopicPartition(DEALS, partition), f"{client.name}/{number}/{partition}.{each}")
        for each in range(count)
        for partition in range(PARTITIONS[DEALS])
    ]
