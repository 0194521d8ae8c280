"""Compares topics of three replicas with topics of one, and measures the loss of a root.

    python -m benchmarks.replication --records 2000000 --repeats 5

Four roots lie in directories of one disk: the cluster's and three brokers. Throughput: a producer
with ``acks=all`` sends tables of records of 100 bytes to a topic with one replica and to one with
three, in turns. Plain writes: files of 16 MiB, written and synced without this package, one on one
root or one on each of three roots at once. Latency: single records, each waited for. Loss: the
directory of one broker is renamed while records are sent one by one; the figure is the time from
the loss to the first acknowledged record after it. Election: all partitions of a topic lose their
leader at once. Catching up: a replica that lacks all records is brought back; the figure counts the
processor time, so that other programs do not change it. Reassignment: partitions of 10 MB move to
another broker while a producer sends.

Three replicas cost three writes of the same bytes. The ratio of plain writes is what the machine
can do if nothing else has to be done. On two cores and a disk in memory, where a write is a copy by
a core, it is 0.45 to 0.5, and acks=all reaches 0.55 to 0.6: an append on one replica is encoded
once, too, and leaves one core idle. A ratio of 0.8 needs a core for each replica, or disks that are
slower than a core, each with its own replica.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa
from rich.console import Console

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.reassignment import measure_reassignment
from benchmarks.timing import timed
from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.replication import ClusterRecovery, TopicPartitionReplica

_VALUE = b"x" * 100
_ROWS = 50_000
_FACTORS = (1, 3)
_BROKERS = (1, 2, 3)
_FILE_BYTES = 16 << 20
_FILES = 10
_console = Console(stderr=True)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("replication", __doc__)
    options.add_argument("--records", type=positive, default=2_000_000, help="a turn (2000000)")
    options.add_argument("--single", type=positive, default=500, help="single records (500)")
    options.add_argument("--repeats", type=positive, default=5, help="turns, and losses (5)")
    options.add_argument(
        "--partitions", type=positive, default=1_000, help="that lose their leader (1000)"
    )
    options.add_argument("--moved", type=positive, default=100, help="partitions that move (100)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Measure throughput and latency, the loss of a root, an election, and a reassignment."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        root = _new_cluster(Path(directory))
        figures += _throughput(root, options.records, options.repeats)
        figures += _plain_writes(Path(directory), options.repeats)
        figures += _latency(root, options.single)
        figures += _loss(Path(directory), options.repeats)
        figures += _election(Path(directory), options.partitions)
        figures += _catching_up(Path(directory), options.records)
        moving = _new_cluster(Path(directory), "m")
        figures += measure_reassignment(moving, options.moved, options.repeats)
    notes = {
        "records": f"{options.records:,} of {len(_VALUE)} bytes in tables of {_ROWS:,}",
        "single records": options.single,
        "repeats": options.repeats,
        "roots": "directories of one disk, appends synced (flush.on.append)",
    }
    return Report("replication", figures, notes)


def _new_cluster(directory: Path, name: str = "r") -> str:
    root = str(directory / f"{name}0")
    with Admin(root) as admin:
        admin.create_topics([NewTopic("none", 1)])
        for broker_id in _BROKERS:
            admin.register_broker(broker_id, str(directory / f"{name}{broker_id}"))
    return root


def _assigned(name: str, replicas: tuple[int, ...]) -> NewTopic:
    return NewTopic(name, replica_assignment={0: list(replicas)})


def _throughput(root: str, records: int, repeats: int) -> Iterator[Figure]:
    table = pa.table({"value": pa.array([_VALUE] * _ROWS, pa.binary())})
    rates: dict[int, list[float]] = {factor: [] for factor in _FACTORS}
    with Admin(root) as admin:
        for factor in _FACTORS:
            admin.create_topics([_assigned(f"throughput-{factor}", _BROKERS[:factor])])
    for repeat in range(repeats + 1):
        for factor in _FACTORS if repeat % 2 else _FACTORS[::-1]:
            with Producer(root) as producer:

                def send(producer: Producer = producer, factor: int = factor) -> None:
                    for _ in range(records // _ROWS):
                        producer.send_table(f"throughput-{factor}", table)
                    producer.flush()

                rate = records / timed(send) / 1e6
            _console.print(f"{factor} replicas: {rate:.2f} M/s", style="dim", highlight=False)
            if repeat:
                rates[factor].append(rate)
    for factor, found in rates.items():
        yield Figure(f"throughput, {factor} replicas", median(found), "M records/s")
    yield Figure("throughput, 3 replicas / 1", median(rates[3]) / median(rates[1]), at_least=0.8)


def _plain_writes(directory: Path, repeats: int) -> Iterator[Figure]:
    data = os.urandom(_FILE_BYTES)
    rates: dict[int, list[float]] = {factor: [] for factor in _FACTORS}

    def write(number: int) -> None:
        with open(directory / f"plain-{number}", "wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
        os.unlink(file.name)

    with ThreadPoolExecutor(max(_FACTORS)) as threads:

        def write_files(factor: int) -> None:
            for _ in range(_FILES):
                list(threads.map(write, range(factor)))

        for repeat in range(repeats + 1):
            for factor in _FACTORS:
                took_s = timed(lambda factor=factor: write_files(factor))  # type: ignore[misc]
                if repeat:
                    rates[factor].append(_FILES * _FILE_BYTES / took_s / 1e6)
    for factor, found in rates.items():
        yield Figure(f"plain writes, {factor} roots", median(found), "MB/s")
    yield Figure("plain writes, 3 roots / 1", median(rates[3]) / median(rates[1]))


def _latency(root: str, count: int) -> Iterator[Figure]:
    middle: dict[int, float] = {}
    with Producer(root, linger_ms=0) as producer:
        for factor in _FACTORS:
            topic = f"throughput-{factor}"
            took_ms = []
            for number in range(count + 50):
                began_s = time.perf_counter()
                producer.send(topic, _VALUE).result(30)
                if number >= 50:
                    took_ms.append((time.perf_counter() - began_s) * 1e3)
            middle[factor] = median(took_ms)
            yield Figure(f"latency p50, {factor} replicas", middle[factor], "ms")
            yield Figure(f"latency p99, {factor} replicas", quantiles(took_ms, n=100)[98], "ms")
    yield Figure("latency p50, 3 replicas / 1", middle[3] / middle[1], at_most=3.2)


def _loss(directory: Path, repeats: int) -> Iterator[Figure]:
    for what, lost in (("leader", 1), ("follower", 3)):
        took_ms = []
        for repeat in range(repeats):
            name = f"{what}-{repeat}-"
            root = _new_cluster(directory, name)
            with Admin(root) as admin:
                admin.create_topics([_assigned("t", _BROKERS)])
            with Producer(root, linger_ms=0) as producer:
                for _ in range(20):
                    producer.send("t", _VALUE).result(30)
                os.rename(directory / f"{name}{lost}", directory / f"{name}{lost}-lost")
                began_s = time.perf_counter()
                producer.send("t", _VALUE).result(30)
                took_ms.append((time.perf_counter() - began_s) * 1e3)
        yield Figure(
            f"loss of the {what} to the next acknowledgement", max(took_ms), "ms", at_most=100
        )


def _election(directory: Path, partitions: int) -> Iterator[Figure]:
    root = _new_cluster(directory, "e")
    assignment = {number: list(_BROKERS) for number in range(partitions)}
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", partitions, replica_assignment=assignment)])
        took_s = timed(lambda: admin.fence_broker(1))
        found = admin.describe_topics(["t"])
        leaders = {each.leader for each in found[0].partitions}
        assert leaders == {2}, leaders
    yield Figure(f"election of {partitions:,} leaders", took_s, "s", at_most=5)


def _catching_up(directory: Path, records: int) -> Iterator[Figure]:
    root = _new_cluster(directory, "c")
    table = pa.table({"value": pa.array([_VALUE] * _ROWS, pa.binary())})
    with Admin(root) as admin:
        admin.create_topics([_assigned("t", _BROKERS)])
        admin.fence_broker(3)
        with Producer(root) as producer:
            for _ in range(max(1, records // _ROWS)):
                producer.send_table("t", table)
        admin.unfence_broker(3)
    cluster = Cluster(root)
    began_s = time.process_time()
    (done,) = ClusterRecovery(cluster).run([TopicPartitionReplica("t", 0, 3)])
    took_s = time.process_time() - began_s
    assert done is not None
    assert done.report is not None
    assert done.report.is_in_sync, done
    rate = done.report.copied_bytes / took_s / 1e6
    yield Figure("catching up, a core", rate, "MB/s", at_least=300)


if __name__ == "__main__":
    sys.exit(main())
