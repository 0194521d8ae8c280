"""Commits of positions: how long one takes, and how many a second several processes make.

    python -m benchmarks.offset_commits [--processes 8] [--members 4] [--seconds 10]
    python -m benchmarks.offset_commits --large       # 10,000 groups of 100 partitions

Every commit that was acknowledged is looked for in the table afterwards.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
from deltalake import DeltaTable

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offset_commits import Request
from spark_log.coordinator.offset_rows import PartitionKey, Row
from spark_log.metadata import Cluster

_PARTITIONS = 4


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--members", type=int, default=4, help="threads of each process")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--root", help="[default: a temporary directory]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offset-commits-") as folder:
        root = options.root or str(Path(folder) / "root")
        Admin(root).create_topics([NewTopic("t", num_partitions=100)])
        if options.large:
            _large(root, options.groups)
        else:
            _one_member(root, options.seconds)
            _many(root, options.processes, options.members, options.seconds)


def _one_member(root: str, seconds: float) -> None:
    latencies_ms, _ = _commits(root, "one", seconds)
    print(
        f"one member: {len(latencies_ms) / seconds:.0f} commits/s, "
        f"p50 {np.percentile(latencies_ms, 50):.1f} ms, "
        f"p99 {np.percentile(latencies_ms, 99):.1f} ms"
    )


def _commits(root: str, group: str, seconds: float) -> tuple[list[float], int]:
    table = OffsetsTable(Cluster(root))
    latencies_ms: list[float] = []
    offset = 0
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        offset += 1
        position = OffsetAndMetadata(offset)
        positions = {TopicPartition("t", at): position for at in range(_PARTITIONS)}
        table.commit(group, positions, generation=1, member_id=group)
        latencies_ms.append((time.monotonic() - began) * 1000)
    return latencies_ms, offset


def _process(
    root: str, number: int, members: int, seconds: float, results: Queue[object], begin: Barrier
) -> None:
    found: list[tuple[str, list[float], int]] = []

    def member(at: int) -> None:
        group = f"g{number}-{at}"
        latencies_ms, offset = _commits(root, group, seconds)
        found.append((group, latencies_ms, offset))

    warm = OffsetsTable(Cluster(root))
    warm.commit(f"warm{number}", {TopicPartition("t", 0): OffsetAndMetadata(1)})
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
    begin = context.Barrier(processes)  # when all have imported what they need
    before = OffsetsTable(Cluster(root))
    before.fetch("one")
    first = DeltaTable(before.url).version()
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
    table = OffsetsTable(Cluster(root))
    versions = DeltaTable(table.url).version() - first
    lost = 0
    for group, _, last in found:
        kept = table.history(group)
        seen = set(zip(kept["partition"].to_pylist(), kept["offset"].to_pylist(), strict=True))
        wanted = {(at, offset) for at in range(_PARTITIONS) for offset in range(1, last + 1)}
        lost += len(wanted - seen)
    print(
        f"{processes} processes x {members} members: {len(latencies_ms) / seconds:.0f} commits/s "
        f"({versions / seconds:.0f} versions of the table/s), "
        f"p50 {np.percentile(latencies_ms, 50):.1f} ms, "
        f"p99 {np.percentile(latencies_ms, 99):.1f} ms, "
        f"most {latencies_ms.max():.0f} ms, {lost} positions lost"
    )


def _large(root: str, groups: int) -> None:
    cluster = Cluster(root)
    table = OffsetsTable(cluster)
    topic_id = cluster.topic("t").topic_id
    rows = [Row(PartitionKey("t", topic_id, at), 1000 + at) for at in range(100)]
    began = time.monotonic()
    shared = table._shared()
    for first in range(0, groups, 500):
        requests = [
            Request(f"group-{at:05}", 1, "m", lambda _: rows, float("inf"))
            for at in range(first, min(first + 500, groups))
        ]
        shared.commits.submit_all(requests)
        assert not any(request.error for request in requests)
    table.maintain()
    for at in range(200):  # what comes after a compaction: small files with any group in them
        table.commit(f"group-{at * 37 % groups:05}", {TopicPartition("t", 0): OffsetAndMetadata(5)},
                     generation=1)  # fmt: skip
    print(f"{groups} groups of 100 partitions, made in {time.monotonic() - began:.0f} s")
    context = multiprocessing.get_context("spawn")
    for name, target in (("resume of a consumer (fetch in a new process)", _resume),
                         ("spark-log groups describe", _describe)):  # fmt: skip
        results = context.Queue()
        for _ in range(5):
            process = context.Process(target=target, args=(root, groups, results))
            process.start()
            process.join()
        times = [results.get() for _ in range(5)]
        print(f"{name}: {np.median(times):.0f} ms (most {max(times):.0f} ms)")


def _resume(root: str, groups: int, results: Queue[object]) -> None:
    began = time.monotonic()
    found = OffsetsTable(Cluster(root)).fetch(f"group-{groups // 3:05}")
    results.put((time.monotonic() - began) * 1000)
    assert len(found) == 100


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
