"""Measures the bridge to Kafka, each direction beside what Kafka's client does alone, in one run.

    python -m benchmarks.mirror --records 2000000 --repeats 3

Kafka to the log is compared with a consumer that reads the same records and makes the same Arrow
tables of nothing: it takes messages in batches, and keys, values, headers, timestamps and offsets
out of them. The log to Kafka is compared with the same transactional producer, fed with the same
rows from memory. Root to root is measured in MB/s beside a plain copy of the files with `shutil`.

Records have a key of 8 bytes and a value of 100 bytes. Exit status 2 if Maven, Java or
confluent-kafka is missing, 1 if Kafka fails.
"""

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.kafka_broker import KafkaBroker, confluent_kafka_required, exit_status
from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster

if TYPE_CHECKING:
    from spark_log.mirror import KafkaCluster, LogAddress, MirrorSettings

_PARTITIONS = 4
_VALUE = b"x" * 100
_KEY = b"12345678"
_TIME_MS = 1_764_000_000_000
_ROWS = 100_000
_BATCH = 50_000
_MB = 1_000_000
_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Sides:
    """Kafka and a log, with one topic.

    Attributes:
        topic: the topic's name.
        records: the number of records that the topic gets.
    """

    kafka: "KafkaCluster"
    log: "LogAddress"
    topic: str
    records: int

    def settings(self) -> "MirrorSettings":
        """Return the settings of a mirror of only this topic."""
        from spark_log.mirror import MirrorSettings, TopicFilter

        return MirrorSettings(kafka_alias=self.topic, topics=TopicFilter.parse([self.topic]))


def produce(sides: Sides) -> float:
    """Fill the topic in Kafka like the mirror does; return the seconds."""
    producer = sides.kafka.producer(f"fill-{sides.topic}")
    rows = [(_KEY, _VALUE)] * _BATCH
    start = time.perf_counter()
    for first in range(0, sides.records, 20 * _BATCH):
        producer.begin_transaction()
        for batch in range(first, min(first + 20 * _BATCH, sides.records), _BATCH):
            partition = batch // _BATCH % _PARTITIONS
            for key, value in rows:
                while True:
                    try:
                        producer.produce(sides.topic, value, key, partition, timestamp=_TIME_MS)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        producer.flush()
        producer.commit_transaction()
    return time.perf_counter() - start


def consume(sides: Sides) -> float:
    """Read the topic in Kafka without writing it; return the seconds."""
    from spark_log.mirror.kafka.confluent import OFFSET_BEGINNING, KafkaPartition, Message

    consumer = sides.kafka.consumer(
        queued_min_messages=500_000, queued_max_messages_kbytes=262_144, enable_partition_eof=False
    )
    start = time.perf_counter()
    consumer.assign(
        [KafkaPartition(sides.topic, each, OFFSET_BEGINNING) for each in range(_PARTITIONS)]
    )
    seen = 0
    fields: list[Any] = [
        *(Message.error, Message.topic, Message.partition, Message.offset),
        *(Message.timestamp, Message.key, Message.value, Message.headers),
    ]
    while seen < sides.records:
        messages = consumer.consume(_BATCH, 0.1)
        for field in fields:
            list(map(field, messages))
        seen += len(messages)
    took_s = time.perf_counter() - start
    consumer.close()
    return took_s


def fill_log(sides: Sides) -> None:
    """Fill the topic in the log."""
    keys, values = pa.array([_KEY] * _ROWS), pa.array([_VALUE] * _ROWS)
    times = pa.array(np.full(_ROWS, _TIME_MS * 1000), pa.timestamp("us", tz="UTC"))
    table = pa.table({"key": keys, "value": values, "timestamp": times})
    with Producer(sides.log.root, buffer_memory=268_435_456) as producer:
        for first in range(0, sides.records, _ROWS):
            rows = table.slice(0, min(_ROWS, sides.records - first))
            producer.send_table(sides.topic, rows, partition=first // _ROWS % _PARTITIONS)


def mirror(kind: str, sides: Sides) -> float:
    """Mirror the topic; return the seconds after the mirror was opened."""
    from spark_log import mirror as bridge

    made = getattr(bridge, kind)(sides.kafka, sides.log, sides.settings())
    with made as opened:
        start = time.perf_counter()
        while opened.metrics()["record-count"] < sides.records:
            opened.transfer()
        return time.perf_counter() - start


def copy_root(source: Path, target: Path) -> tuple[float, float]:
    """Copy a root by a mirror, and its files by `shutil`; return the MB/s of both."""
    from spark_log.mirror import RootMirror, TopicFilter

    Admin(target).create_topics([NewTopic("other")])
    copies = RootMirror(Cluster(source), Cluster(target), TopicFilter.parse())
    start = time.perf_counter()
    copies.copy()
    took_s = time.perf_counter() - start
    size_mb = copies.metrics()["byte-count"] / _MB
    start = time.perf_counter()
    shutil.copytree(source, target.with_name(f"{target.name}-plain"))
    return size_mb / took_s, size_mb / (time.perf_counter() - start)


def run(options: argparse.Namespace) -> None:
    """Run all measurements, and print a table."""
    with confluent_kafka_required():
        from spark_log.mirror import KafkaCluster, LogAddress
    rates: dict[str, list[float]] = {}

    def note(name: str, measured: Callable[[Sides], float], sides: Sides) -> None:
        _console.print(f"{name} …")
        rates.setdefault(name, []).append(options.records / measured(sides) / 1e6)

    temporary = tempfile.TemporaryDirectory(dir=options.directory)
    with temporary as folder, KafkaBroker(options.directory, start_timeout_s=300) as broker:
        kafka = KafkaCluster({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(options.repeats):
            root = Path(folder, uuid.uuid4().hex)
            forth = Sides(kafka, LogAddress(root), f"t-{uuid.uuid4().hex[:8]}", options.records)
            kafka.create_topic(forth.topic, _PARTITIONS, {"retention.ms": "-1"})
            note("produce to Kafka", produce, forth)
            note("consume from Kafka", consume, forth)
            note("Kafka to the log", partial(mirror, "KafkaToLog"), forth)
            back = Sides(kafka, LogAddress(root), f"u-{uuid.uuid4().hex[:8]}", options.records)
            Admin(root).create_topics([NewTopic(back.topic, _PARTITIONS)])
            fill_log(back)
            note("the log to Kafka", partial(mirror, "LogToKafka"), back)
            copied = copy_root(root, Path(folder, uuid.uuid4().hex))
            rates.setdefault("root to root, MB/s", []).append(copied[0])
            rates.setdefault("plain copy of files, MB/s", []).append(copied[1])
    for name, found in rates.items():
        print(f"{name:28} {median(found):8.2f}  {[round(each, 2) for each in found]}")
    for name, alone in (
        ("Kafka to the log", "consume from Kafka"),
        ("the log to Kafka", "produce to Kafka"),
    ):
        ratios = [one / other for one, other in zip(rates[name], rates[alone], strict=True)]
        print(f"{name} / {alone}: {median(ratios):.2f}")


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = argparse.ArgumentParser("benchmarks.mirror", description=__doc__)
    options.add_argument("--records", type=positive, default=2_000_000, help="of a pass (2000000)")
    options.add_argument("--repeats", type=positive, default=3, help="passes (3)")
    options.add_argument("--directory", type=Path, help="where Kafka and the roots are made")
    given = options.parse_args()
    return exit_status(lambda: run(given))


if __name__ == "__main__":
    sys.exit(main())
