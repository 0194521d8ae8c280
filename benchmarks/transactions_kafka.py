"""Compares transactions with librdkafka's transactional producer and a real broker, in one run.

    python -m benchmarks.transactions_kafka --transactions 300 --repeats 3

Each transaction sends 100 records of 100 bytes to each of 1, 10 and 100 partitions, and commits.
Measured: transactions a second, and the time of `commit_transaction`, which sends what still waits.
Then, of Spark Log alone: how much later a reader of committed records has a record than a reader of
all records, counted from the call of `commit_transaction` or of `send`.

Neither side syncs appends to disk, which is Kafka's default; our figures with our default (state
and records are synced) are shown as well. Kafka's broker runs beside its client.

Exit status 2 if Maven, Java or confluent-kafka is missing, 1 if Kafka fails.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Literal, Protocol

from rich.console import Console

from benchmarks.client_peer import VALUE_BYTES
from benchmarks.command_line import positive
from benchmarks.kafka_broker import (
    KAFKA_VERSION,
    BrokerError,
    KafkaBroker,
    confluent_kafka_required,
    exit_status,
)
from benchmarks.log_report import Figure, Report, parser, percentile, run
from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition

_PARTITIONS = (1, 10, 100)
_RECORDS = 100
_VALUE = b"x" * VALUE_BYTES
_WARMUPS = 20
IsolationLevel = Literal["read_uncommitted", "read_committed"]
_console = Console(stderr=True)


class TransactionalPeer(Protocol):
    """A transactional producer, and the log behind it."""

    name: str

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def open(self, topic: str, partitions: int) -> tuple[Callable[[], float], Callable[[], None]]:
        """Return two functions.

        The first one makes one transaction and returns the seconds of its commit, the second one
        closes the producer.
        """

    def record_count(self, topic: str, partitions: int) -> int:
        """Return the number of committed records in the topic."""


class SparkLogTransactions:
    """Spark Log's producer, on a root on disk."""

    def __init__(self, root: str, name: str, *, is_synced: bool = False) -> None:
        """Open an `Admin` on a new root."""
        self.name = name
        self.root = root
        self._configs = {"flush.on.append": is_synced}
        self._admin = Admin(root)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, topic_configs=self._configs)])

    def open(self, topic: str, partitions: int) -> tuple[Callable[[], float], Callable[[], None]]:
        producer = Producer(self.root, transactional_id=f"bench-{topic}")
        producer.init_transactions()
        send = producer.send

        def transaction() -> float:
            producer.begin_transaction()
            for number in range(partitions):
                for _ in range(_RECORDS):
                    send(topic, _VALUE, partition=number)
            start = time.perf_counter()
            producer.commit_transaction(30)
            return time.perf_counter() - start

        return transaction, producer.close

    def record_count(self, topic: str, partitions: int) -> int:
        with open_consumer(self.root, topic, partitions, "read_committed") as consumer:
            return read_tables(consumer, consumer.end_offsets(list(consumer.assignment())))


class KafkaTransactions:
    """librdkafka's transactional producer and a real broker."""

    name = "confluent-kafka"

    def __init__(self, broker: KafkaBroker) -> None:
        """Return the peer of a broker.

        Args:
            broker: a running broker.
        """
        from confluent_kafka.admin import AdminClient

        self._servers: dict[str, str | int] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 2,
        }
        self._admin = AdminClient({**self._servers})

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic as KafkaTopic

        for done in self._admin.create_topics([KafkaTopic(topic, partitions, 1)]).values():
            done.result(30)

    def open(self, topic: str, partitions: int) -> tuple[Callable[[], float], Callable[[], None]]:
        from confluent_kafka import Producer as KafkaProducer

        producer = KafkaProducer({**self._servers, "transactional.id": f"bench-{topic}"})
        producer.init_transactions(30)
        produce = producer.produce

        def transaction() -> float:
            producer.begin_transaction()
            for number in range(partitions):
                for _ in range(_RECORDS):
                    produce(topic, _VALUE, partition=number)
            start = time.perf_counter()
            producer.commit_transaction(30)
            return time.perf_counter() - start

        def close() -> None:
            if producer.flush(30):
                raise BrokerError("records were not acknowledged in 30 s")

        return transaction, close

    def record_count(self, topic: str, partitions: int) -> int:
        from confluent_kafka import OFFSET_BEGINNING, KafkaError
        from confluent_kafka import Consumer as KafkaConsumer
        from confluent_kafka import TopicPartition as KafkaPartition

        consumer = KafkaConsumer(
            {**self._servers, "group.id": "count", "enable.partition.eof": True}
        )
        consumer.assign(
            [KafkaPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        ended = count = 0
        while ended < partitions:
            for message in consumer.consume(10_000, timeout=10):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
                else:
                    raise BrokerError(str(error))
        consumer.close()
        return count


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("transactions_kafka", __doc__)
    options.add_argument(
        "--transactions", type=positive, default=300, help="of each pass, over 1 partition (300)"
    )
    options.add_argument("--repeats", type=positive, default=3, help="passes of each (3)")
    options.add_argument("--delays", type=positive, default=300, help="records one by one (300)")
    options.add_argument("--ours-only", action="store_true", help="leave Kafka out")
    return exit_status(lambda: run(options, measure))


def measure(options: argparse.Namespace) -> Report:
    """Measure one figure after the other."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)
        work = Path(stack.enter_context(temporary))
        ours = SparkLogTransactions(str(work / "root"), "spark-log")
        synced = SparkLogTransactions(str(work / "synced"), "spark-log, synced", is_synced=True)
        peers: list[TransactionalPeer] = [ours, synced]
        if not options.ours_only:
            with confluent_kafka_required():
                import confluent_kafka  # noqa: F401 - asked for
            peers.append(KafkaTransactions(stack.enter_context(KafkaBroker(options.directory))))
        figures = [
            *commits(peers, options),
            *delays(ours, options.delays),
        ]
    notes: dict[str, object] = {
        "transactions": f"{options.transactions} over 1 partition, a tenth of it over 100",
        "repeats": options.repeats,
    }
    if not options.ours_only:
        notes["Kafka"] = f"{KAFKA_VERSION}, confluent-kafka {version('confluent-kafka')}"
    return Report("transactions_kafka", figures, notes)


def commits(peers: Sequence[TransactionalPeer], options: argparse.Namespace) -> list[Figure]:
    """Return transactions a second, and the time of a commit."""
    figures: list[Figure] = []
    for partitions in _PARTITIONS:
        count = options.transactions // (10 if partitions == max(_PARTITIONS) else 1) or 1
        rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        commit_ms: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for repeat in range(options.repeats):
            first = repeat % len(peers)
            for peer in [*peers[first:], *peers[:first]]:
                rate, took_ms = _pass(peer, f"p{partitions}-{repeat}", partitions, count)
                rates[peer.name].append(rate)
                commit_ms[peer.name] += took_ms
        what = (
            f"{partitions} partitions of {_RECORDS} records"
            if partitions > 1
            else (f"1 partition of {_RECORDS} records")
        )
        median_rates = {name: median(each) for name, each in rates.items()}
        for name, rate in median_rates.items():
            figures.append(Figure(f"transactions, {what}: {name}", rate, "/s"))
        own = median_rates[peers[0].name]
        if not options.ours_only:
            goal = 1.0 if partitions < max(_PARTITIONS) else None
            ratio = own / median_rates[peers[-1].name]
            figures.append(Figure(f"transactions, {what}: ours / Kafka", ratio, at_least=goal))
        figures += [
            Figure(f"commit, {what}, p{percent}: {name}", percentile(each, percent), "ms")
            for percent in (50, 99)
            for name, each in commit_ms.items()
        ]
    return figures


def delays(ours: SparkLogTransactions, count: int) -> list[Figure]:
    """Return the time until a reader in this process has a record."""
    took_ms: dict[IsolationLevel, list[float]] = {"read_uncommitted": [], "read_committed": []}
    for level, found in took_ms.items():
        is_transactional = level == "read_committed"
        topic = f"delay-{level}"
        ours.create_topic(topic, 1)
        transactional_id = "bench-delay" if is_transactional else None
        with (
            Producer(ours.root, linger_ms=0, transactional_id=transactional_id) as producer,
            open_consumer(ours.root, topic, 1, level) as consumer,
        ):
            if is_transactional:
                producer.init_transactions()
            for number in range(count + _WARMUPS):
                if is_transactional:
                    producer.begin_transaction()
                    producer.send(topic, _VALUE)
                    producer.flush()
                    start = time.perf_counter()
                    producer.commit_transaction()
                else:
                    start = time.perf_counter()
                    producer.send(topic, _VALUE)
                while not consumer.poll_table(timeout_ms=10_000).num_rows:
                    pass
                if number >= _WARMUPS:
                    found.append((time.perf_counter() - start) * 1000)
    figures = [
        Figure(f"record read after send or commit, p50: {level}", percentile(each, 50), "ms")
        for level, each in took_ms.items()
    ]
    later = figures[1].value - figures[0].value
    return [*figures, Figure("committed later than uncommitted, p50", later, "ms", at_most=5)]


def _pass(
    peer: TransactionalPeer, topic: str, partitions: int, count: int
) -> tuple[float, list[float]]:
    """Return transactions a second, and the milliseconds of each commit."""
    peer.create_topic(topic, partitions)
    os.sync()
    transaction, close = peer.open(topic, partitions)
    for _ in range(_WARMUPS):
        transaction()
    start = time.perf_counter()
    took_ms = [transaction() * 1000 for _ in range(count)]
    rate = count / (time.perf_counter() - start)
    close()
    expected = (count + _WARMUPS) * partitions * _RECORDS
    found = peer.record_count(topic, partitions)
    if found != expected:
        raise BrokerError(f"{peer.name}: {found} committed records in {topic}, not {expected}")
    _console.print(f"{peer.name}: {topic} {rate:.1f}/s", style="dim", highlight=False)
    return rate, took_ms


def open_consumer(
    root: str, topic: str, partitions: int, isolation_level: IsolationLevel
) -> Consumer:
    consumer = Consumer(
        root=root,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation_level,
    )
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    return consumer


def read_tables(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> int:
    """Read up to an offset of each partition; return the number of records."""
    seen = 0
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        seen += consumer.poll_table(timeout_ms=10).num_rows  # it waits at markers
    return seen


if __name__ == "__main__":
    sys.exit(main())
