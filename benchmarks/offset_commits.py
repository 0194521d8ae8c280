"""Compares commits of offsets with Kafka's: latency of one, and throughput of several processes.

    python -m benchmarks.offset_commits [--processes 8] [--members 4] [--seconds 10]
    python -m benchmarks.offset_commits --kafka       # also a real Kafka broker
    python -m benchmarks.offset_commits --large       # 10,000 groups of 100 partitions

Afterwards every acknowledged commit is looked up in the offsets table. Ours is synced; Kafka's is
not, which is its default. Kafka's client is confluent-kafka.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable

from benchmarks.kafka_broker import KAFKA_VERSION, KafkaBroker, exit_status
from spark_log import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets.commit_queue import CommitRequest
from spark_log.coordinator.offsets.rows import PartitionKey, Row

_PARTITIONS = 4
_KAFKA = "kafka://"
_COORDINATOR_TIMEOUT_S = 60


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--members", type=int, default=4, help="threads of each process")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--root", help="[default: a temporary directory]")
    options = parser.parse_args()
    sys.exit(exit_status(lambda: _run(options)))


def _run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="offset-commits-") as folder:
        root = options.root or str(Path(folder) / "root")
        Admin(root).create_topics([NewTopic("t", num_partitions=100)])
        if options.large:
            _large(root, options.groups)
        else:
            _one_member(root, options.seconds)
            _many(root, options.processes, options.members, options.seconds)
        if options.kafka:
            with KafkaBroker() as broker:
                broker.create_topic("t", _PARTITIONS)
                address = _KAFKA + broker.bootstrap_servers
                _one_member(address, options.seconds)
                _many(address, options.processes, options.members, options.seconds)


def _one_member(root: str, seconds: float) -> None:
    latencies_ms, _ = _commits(root, "one", seconds)
    print(
        f"{_name(root)}, one member: {len(latencies_ms) / seconds:.0f} commits/s, "
        f"p50 {np.percentile(latencies_ms, 50):.1f} ms, "
        f"p99 {np.percentile(latencies_ms, 99):.1f} ms"
    )


def _commits(root: str, group: str, seconds: float) -> tuple[list[float], int]:
    commit = _committer(root, group)
    commit(0)
    latencies_ms: list[float] = []
    offset = 0
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        offset += 1
        commit(offset)
        latencies_ms.append((time.monotonic() - began) * 1000)
    return latencies_ms, offset


def _committer(root: str, group: str) -> Callable[[int], object]:
    """Return a function that commits an offset for every partition and waits for it."""
    if root.startswith(_KAFKA):
        import confluent_kafka

        consumer = _kafka_consumer(root, group)

        def commit_to_kafka(offset: int) -> object:
            positions = [
                confluent_kafka.TopicPartition("t", at, offset) for at in range(_PARTITIONS)
            ]
            return consumer.commit(offsets=positions, asynchronous=False)

        until = time.monotonic() + _COORDINATOR_TIMEOUT_S
        while True:
            try:
                commit_to_kafka(0)
            except confluent_kafka.KafkaException:  # a new broker has no coordinator yet
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return commit_to_kafka
    table = OffsetsTable(Cluster(root))

    def commit(offset: int) -> None:
        position = OffsetAndMetadata(offset)
        positions = {TopicPartition("t", at): position for at in range(_PARTITIONS)}
        table.commit(group, positions, generation=1, member_id=group)

    return commit


def _kafka_consumer(root: str, group: str) -> Any:
    from confluent_kafka import Consumer

    servers = root.removeprefix(_KAFKA)
    return Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 2})


def _name(root: str) -> str:
    return f"Kafka {KAFKA_VERSION}" if root.startswith(_KAFKA) else "spark-log"


def _process(
    root: str, number: int, members: int, seconds: float, results: Queue[object], begin: Barrier
) -> None:
    found: list[tuple[str, list[float], int]] = []

    def member(at: int) -> None:
        group = f"g{number}-{at}"
        latencies_ms, offset = _commits(root, group, seconds)
        found.append((group, latencies_ms, offset))

    _committer(root, f"warm{number}")(1)
    begin.wait()
    threads = [threading.Thread(target=member, args=(at,)) for at in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(found)


def _many(root: str, processes: int, members: int, seconds: float) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    begin = context.Barrier(processes)  # all start at once, after their imports
    first = _versions(root)
    started = [
        context.Process(target=_process, args=(root, number, members, seconds, results, begin))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    found = [each for _ in started for each in results.get()]
    for process in started:
        process.join()
    latencies_ms = np.concatenate([latencies for _, latencies, _ in found])
    versions = _versions(root) - first
    lost = sum(_lost(root, group, last) for group, _, last in found)
    print(
        f"{_name(root)}, {processes} processes x {members} members: "
        f"{len(latencies_ms) / seconds:.0f} commits/s"
        f"{f' ({versions / seconds:.0f} versions of the table/s)' if versions else ''}, "
        f"p50 {np.percentile(latencies_ms, 50):.1f} ms, "
        f"p99 {np.percentile(latencies_ms, 99):.1f} ms, "
        f"most {latencies_ms.max():.0f} ms, {lost} positions lost"
    )


def _versions(root: str) -> int:
    """Return the version of the offsets table; Kafka has none."""
    if root.startswith(_KAFKA):
        return 0
    return DeltaTable(OffsetsTable(Cluster(root)).url).version()


def _lost(root: str, group: str, last: int) -> int:
    """Return the number of missing acknowledged offsets; Kafka keeps only the last ones."""
    if root.startswith(_KAFKA):
        import confluent_kafka

        named = [confluent_kafka.TopicPartition("t", at) for at in range(_PARTITIONS)]
        kept = _kafka_consumer(root, group).committed(named, timeout=30)
        return sum(each.offset != last for each in kept)
    rows = OffsetsTable(Cluster(root)).history(group)
    seen = set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    wanted = {(at, offset) for at in range(_PARTITIONS) for offset in range(1, last + 1)}
    return len(wanted - seen)


def _large(root: str, groups: int) -> None:
    cluster = Cluster(root)
    table = OffsetsTable(cluster)
    topic_id = cluster.topic("t").topic_id
    rows = tuple(Row(PartitionKey("t", topic_id, at), 0) for at in range(100))
    with Producer(root) as producer:
        for at in range(100):
            producer.send("t", b"first record after a resume", partition=at)
    began = time.monotonic()
    shared = table._shared()
    for first in range(0, groups, 500):
        requests = [
            CommitRequest(f"group-{at:05}", 1, "m", lambda _: rows, float("inf"), rows)
            for at in range(first, min(first + 500, groups))
        ]
        shared.commits.submit_all(requests)
        assert not any(request.error for request in requests)
    table.maintain()
    for at in range(200):  # after a compaction: small files, each with any group
        table.commit(
            f"group-{at * 37 % groups:05}",
            {TopicPartition("t", 0): OffsetAndMetadata(5)},
            generation=1,
        )
    print(f"{groups} groups of 100 partitions, made in {time.monotonic() - began:.0f} s")
    cold, warm = [], []
    for number in range(5):
        ran = subprocess.run(
            [sys.executable, "-c", _RESUME, root, str(groups // 3 + number)],
            check=True,
            capture_output=True,
            text=True,
        )
        cold_ms, warm_ms = map(float, ran.stdout.split())
        cold.append(cold_ms)
        warm.append(warm_ms)
    _print("resume of a consumer, from import to first record", cold)
    _print("resume of a consumer, from Consumer() to first record, all imported", warm)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    for _ in range(5):
        process = context.Process(target=_describe, args=(root, groups, results))
        process.start()
        process.join()
    _print("spark-log groups describe", [results.get() for _ in range(5)])


def _print(name: str, times_ms: list[float]) -> None:
    print(f"{name}: {np.median(times_ms):.0f} ms (most {max(times_ms):.0f} ms)")


_RESUME = """
import sys, time
root, number = sys.argv[1], int(sys.argv[2])

def resume(group):
    from spark_log import Consumer
    consumer = Consumer("t", root=root, group_id=group, enable_auto_commit=False)
    while not consumer.poll(60_000):
        pass
    took_ms = (time.monotonic() - began) * 1000
    consumer.close()
    return took_ms

began = time.monotonic()
first = resume(f"group-{number:05}")
began = time.monotonic()  # the table is opened again
print(first, resume(f"group-{number + 1000:05}"))
"""
"""A program that runs two consumers of two groups, one after the other."""


def _describe(root: str, groups: int, results: Queue[object]) -> None:
    import contextlib
    import io
    import sys

    from spark_log.cli.main import main as spark_log

    began = time.monotonic()
    sys.stdout = io.TextIOWrapper(io.BytesIO())
    with contextlib.suppress(SystemExit):
        spark_log(["groups", "describe", f"group-{groups // 3:05}", "--root", root])
    results.put((time.monotonic() - began) * 1000)


if __name__ == "__main__":
    main()
