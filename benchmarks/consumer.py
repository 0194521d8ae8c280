"""Measures a `Consumer`: throughput, latency of an append, and its processor time while idle.

    python -m benchmarks.consumer --records 2000000 --appends 2000

No peer; each figure has a goal (`clients_kafka` compares with Kafka). Throughput: records with
values of 100 bytes and keys of 8, in batches of 1,024 and of 16,384 records, uncompressed, from the
page cache. Latency: one process appends 2 KB every few milliseconds, unsynced, and another one
polls. Idle: processor time of a process whose consumer polls and receives nothing.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import SMALL_BATCH, records, stamped_batch
from benchmarks.timing import ages_in_another_process, report_ages
from spark_log import Admin, Consumer, NewTopic
from spark_log.cluster import Cluster
from spark_log.consumer.fetch import fetcher
from spark_log.log import PartitionLog
from spark_log.storage.directory_watch import SilentWatch

_PROCESSES = multiprocessing.get_context("spawn")
_TOPIC = "flights"
_LARGE_BATCH = 16_384
_MEDIUM_BATCH = 1_024


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("consumer", __doc__)
    options.add_argument("--records", type=int, default=2_000_000, help="to read (2000000)")
    options.add_argument("--appends", type=int, default=2_000, help="measured appends (2000)")
    options.add_argument("--every-ms", type=float, default=5, help="mean time between them (5)")
    options.add_argument("--idle-s", type=float, default=10, help="idle time measured (10)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure everything."""
    with TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        root = Path(directory)
        figures = [*_reading(root / "reading", options.records)]
        seen_ms = _seen_ms(str(root / "latency"), options)
        for percent, goal in ((50, 2), (99, 6)):
            figures.append(
                Figure(
                    f"append to polled in another process, p{percent}",
                    percentile(seen_ms, percent),
                    "ms",
                    at_most=goal,
                )
            )
        figures += _waiting(root, options.idle_s)
    return Report("consumer", figures, {"records": options.records, "appends": options.appends})


# --- reading -------------------------------------------------------------------------------------


def _reading(root: Path, count: int) -> list[Figure]:
    Admin(root).create_topics(
        [NewTopic(name, 2, topic_configs={"flush.on.append": "false"}) for name in ("m", "l")]
    )
    for name, rows in (("m", _MEDIUM_BATCH), ("l", _LARGE_BATCH)):
        batch = records(rows)
        for log in _logs(root, name):
            for _ in range(count // rows // 2):
                if name == "l":
                    log.append([batch])
                else:
                    log.append(batch)
    figures = []
    for name, what in (("m", f"batches of {_MEDIUM_BATCH:,}"), ("l", f"of {_LARGE_BATCH:,}")):
        polled = max(_rate(root, name, _poll) for _ in range(3))
        tables = max(_rate(root, name, _poll_table) for _ in range(3))
        figures += [
            Figure(f"poll, {what}", polled / 1e6, "M records/s", at_least=1),
            Figure(f"poll_table, {what}", tables / 1e6, "M records/s", at_least=10),
        ]
    return figures


def _rate(root: Path, topic: str, poll: Callable[[Consumer], int]) -> float:
    with Consumer(topic, root=root, auto_offset_reset="earliest") as consumer:
        count = poll(consumer)
        began, ended = time.perf_counter(), None
        while got := poll(consumer):
            count += got
            ended = time.perf_counter()
    if ended is None:
        raise SystemExit(f"--records: one poll returned all {count:,} records, take more")
    return count / (ended - began)


def _poll(consumer: Consumer) -> int:
    return sum(len(found) for found in consumer.poll(timeout_ms=500).values())


def _poll_table(consumer: Consumer) -> int:
    rows: int = consumer.poll_table(timeout_ms=500).num_rows
    return rows


def _logs(root: Path, topic: str) -> list[PartitionLog]:
    cluster = Cluster(root)
    image = cluster.topic(topic)
    return [cluster.partition_log(image, number) for number in image.partitions]


# --- latency -------------------------------------------------------------------------------------


def _seen_ms(root: str, options: argparse.Namespace) -> list[float]:
    """Append stamped batches at random intervals; return the age of each when it was polled."""
    Admin(root).create_topics([NewTopic(_TOPIC, topic_configs={"flush.on.append": "false"})])
    (log,) = _logs(Path(root), _TOPIC)
    return ages_in_another_process(
        _read,
        (root,),
        lambda stamp: log.append(stamped_batch(stamp)),
        count=options.appends,
        every_ms=options.every_ms,
    )


def _read(root: str, count: int, pipe: Connection) -> None:
    with Consumer(_TOPIC, root=root, auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout_ms=10)

        def next_values() -> list[object]:
            polled = consumer.poll(timeout_ms=1000).values()
            every = (record for records in polled for record in records)
            return [record.value for record in every if record.offset % SMALL_BATCH == 0]

        report_ages(pipe, next_values, count)


# --- waiting -------------------------------------------------------------------------------------


def _waiting(root: Path, idle_s: float) -> list[Figure]:
    figures = []
    for partitions, has_hints in ((1, True), (300, True), (1, False)):
        path = root / f"idle-{partitions}"
        if not path.exists():
            Admin(path).create_topics([NewTopic(_TOPIC, partitions)])
            for log in _logs(path, _TOPIC):
                log.append(records(1))
        theirs, ours = _PROCESSES.Pipe()
        waiter = _PROCESSES.Process(target=_wait, args=(str(path), idle_s, has_hints, ours))
        waiter.start()
        share = theirs.recv()
        waiter.join()
        hints = "" if has_hints else ", no hints"
        goal = 2 if has_hints else None
        what = f"waiting, {partitions} partition{'s' if partitions > 1 else ''}{hints}"
        figures.append(Figure(what, share * 100, "% of a core", at_most=goal))
    return figures


def _wait(root: str, idle_s: float, has_hints: bool, pipe: Connection) -> None:
    if not has_hints:
        patch.object(fetcher, "watch_directories", lambda store: SilentWatch()).start()
    with Consumer(_TOPIC, root=root) as consumer:
        for _ in range(20):
            consumer.poll(timeout_ms=100)
        began, used = time.monotonic(), time.process_time()
        while time.monotonic() - began < idle_s:
            consumer.poll(timeout_ms=1000)
        pipe.send((time.process_time() - used) / (time.monotonic() - began))


if __name__ == "__main__":
    main()
