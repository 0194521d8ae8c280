"""Measures a `Producer`: throughput of records and of tables, and latency of one record.

    python -m benchmarks.producer --records 2000000

No peer; each figure has a goal (`clients_kafka` compares with Kafka). One process, values of 100
bytes, acks=all, idempotent. Throughput is the best of three rounds, from the first send to the end
of flush.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import VALUE_BYTES, binary_array, local_stores
from benchmarks.timing import timed
from spark_log import Admin, NewTopic, Producer

_ROUNDS = 3
_FIRST_RECORD = """
import sys, time
began = time.perf_counter()
from spark_log import Producer
imported = time.perf_counter()
producer = Producer(sys.argv[1], linger_ms=0)
producer.send("one", b"x" * 100).result()
print(imported - began, time.perf_counter() - began)
"""


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("producer", __doc__)
    options.add_argument("--records", type=int, default=2_000_000, help="of a round (2000000)")
    options.add_argument("--acks", type=int, default=2_000, help="one by one, of each (2000)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure rates, latencies and a new process."""
    with local_stores(options.directory) as new_store:
        root = new_store().url
        unsynced = {"flush.on.append": False}
        Admin(root).create_topics(
            [
                NewTopic("one", 1, topic_configs=unsynced),
                NewTopic("six", 6, topic_configs=unsynced),
                NewTopic("synced", 1),
            ]
        )
        figures = [
            *send_rates(root, options.records),
            *table_rates(root, options.records),
            *ack_latencies(root, options.acks),
            *first_record(root),
        ]
    return Report("producer", figures, {"records": options.records, "acks": options.acks})


def send_rates(root: str, count: int) -> list[Figure]:
    """Measure ``send`` in a loop."""
    value, figures = b"x" * VALUE_BYTES, []
    for topic, key, goal in (("one", None, 0.8e6), ("six", None, 0.8e6), ("six", b"", None)):
        keys = None if key is None else [b"%08d" % number for number in range(10_000)]

        def send_all(
            producer: Producer, topic: str = topic, keys: list[bytes] | None = keys
        ) -> None:
            send = producer.send
            if keys is None:
                for _ in range(count):
                    send(topic, value)
            else:
                for number in range(count):
                    send(topic, value, keys[number % 10_000])
            producer.flush()

        name = f"send, {topic} partition(s), {'10,000 keys' if keys else 'no key'}"
        figures.append(Figure(name, best_rate(root, send_all, count), "records/s", at_least=goal))
    return figures


def table_rates(root: str, count: int) -> list[Figure]:
    """Measure ``send_table`` with tables of a million rows."""
    rows = min(count, 1_000_000)
    times = count // rows
    table = pa.table({"value": _values(rows)})
    figures = []
    for topic in ("one", "six"):

        def send_all(producer: Producer, topic: str = topic) -> None:
            for _ in range(times):
                producer.send_table(topic, table)
            producer.flush()

        name = f"send_table, {topic} partition(s)"
        rate = best_rate(root, send_all, rows * times)
        figures.append(Figure(name, rate, "records/s", at_least=5e6))
    return figures


def best_rate(root: str, action: Callable[[Producer], None], count: int) -> float:
    """Return the best rate of the rounds, each with a warm producer."""
    took = []
    for _ in range(_ROUNDS):
        with Producer(root) as producer:
            producer.send("one", b"warm").result()
            took.append(timed(lambda: action(producer)))
    return count / min(took)


def ack_latencies(root: str, count: int) -> list[Figure]:
    """Measure the latency from send to acknowledgement, one record at a time."""
    figures = []
    for topic, label, goals in (
        ("one", "not synced", (0.5, 3.0)),
        ("synced", "synced", (None, None)),
    ):
        with Producer(root, linger_ms=0) as producer:
            value = b"x" * VALUE_BYTES
            for _ in range(100):
                producer.send(topic, value).result()
            took_ms = [
                timed(lambda: producer.send(topic, value).result()) * 1000  # noqa: B023
                for _ in range(count)
            ]
        for percent, goal in zip((50, 99), goals, strict=True):
            name = f"send to acknowledged, linger 0, {label}, p{percent}"
            figures.append(Figure(name, percentile(took_ms, percent), "ms", at_most=goal))
    return figures


def first_record(root: str) -> list[Figure]:
    """Measure a new process: its import, and the time until its first record is acknowledged."""
    project = str(Path(__file__).parents[1])
    took = []
    for _ in range(5):
        command = [sys.executable, "-c", _FIRST_RECORD, root]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
        took.append([float(part) for part in done.stdout.split()])
    best = min(took, key=lambda pair: pair[1])
    return [
        Figure("import spark_log, new process", best[0], "s"),
        Figure("import and first record acknowledged", best[1], "s", at_most=0.5),
    ]


def _values(count: int) -> pa.Array:
    return binary_array(np.random.default_rng(0).bytes(count * VALUE_BYTES), count)


if __name__ == "__main__":
    main()
