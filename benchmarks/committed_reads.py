"""Compares reads of committed records with reads of all records, by `poll_table` and by Spark.

    python -m benchmarks.committed_reads --records 10000000 --repeats 5

A transactional producer sends records of 100 bytes to 4 partitions, each transaction to one of
them, and aborts about one transaction of a hundred. They are read as they were appended, and then
once more after the segments of each partition were merged into one. Both isolation levels take
turns. Rates count the records that a read returns, so the aborted ones cost time only.

``--transaction-records 100`` shows what a transaction costs a reader: the headers of a merged
segment are as many as its transactions and markers.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import Observation, SparkSession, functions
from rich.console import Console
from rich.progress import track

from benchmarks.client_peer import VALUE_BYTES
from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.transactions_kafka import IsolationLevel, open_consumer, read_tables
from benchmarks.workload import noop, session
from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.log.rewrite.merger import merge

_TOPIC, _PARTITIONS = "read", 4
_ABORT_EVERY = 101
"""Interval of aborted transactions. It is odd, so that each partition has aborted transactions."""

_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
_console = Console(stderr=True)

_Read = Callable[[IsolationLevel], tuple[int, float]]
"""A function that reads the topic with an isolation level; returns record count and seconds."""


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("committed_reads", __doc__)
    options.add_argument("--records", type=positive, default=10_000_000, help="to read (10000000)")
    options.add_argument(
        "--transaction-records", type=positive, default=10_000, help="of each transaction (10000)"
    )
    options.add_argument(
        "--repeats", type=positive, default=5, help="measured reads, after a warm-up (5)"
    )
    options.add_argument("--without-spark", action="store_true", help="measure poll_table alone")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Measure reads of the log, first as it was appended, then merged."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)
        root = str(Path(stack.enter_context(temporary)) / "root")
        committed = _write(root, options.records, options.transaction_records)
        reads: dict[str, _Read] = {"poll_table()": lambda level: _poll_tables(root, level)}
        if not options.without_spark:
            spark = session()
            stack.callback(spark.stop)
            reads["Spark"] = lambda level: _read_by_spark(spark, root, level)
        figures += _compare("as appended", reads, committed, options.repeats)
        for log in _logs(root):
            view = log.observe()
            merge(log.files, view, 0, len(view.live.segments) - 1, sync=False)
            log.replica.snapshots.write()
        figures += _compare("merged", reads, committed, options.repeats)
    notes = {
        "records": f"{options.records:,} of {VALUE_BYTES} bytes, {committed:,} committed",
        "transactions of": f"{options.transaction_records:,} records",
        "repeats": options.repeats,
    }
    return Report("committed_reads", figures, notes)


def _write(root: str, records: int, each: int) -> int:
    """Write transactions; return the number of committed records."""
    topic = NewTopic(_TOPIC, _PARTITIONS, topic_configs={"flush.on.append": False})
    Admin(root).create_topics([topic])
    table = pa.table({"value": pa.array([b"x" * VALUE_BYTES] * each, pa.binary())})
    committed = 0
    with Producer(root, transactional_id="bench-read") as producer:
        producer.init_transactions()
        transactions = range(-(-records // each))
        for number in track(transactions, "transactions", console=_console, transient=True):
            producer.begin_transaction()
            producer.send_table(_TOPIC, table, partition=number % _PARTITIONS)
            if number % _ABORT_EVERY == 0:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += each
    return committed


def _compare(
    what: str, reads: Mapping[str, _Read], committed: int, repeats: int
) -> Iterator[Figure]:
    """Yield the rates of both isolation levels for each way to read, and their ratio."""
    for name, read in reads.items():
        rates: dict[IsolationLevel, list[float]] = {level: [] for level in _LEVELS}
        for repeat in range(repeats + 1):
            for level in _LEVELS if repeat % 2 else _LEVELS[::-1]:
                count, took_s = read(level)
                rate = count / took_s / 1e6
                if level == "read_committed" and count != committed:
                    raise SystemExit(f"{name}: {count} records read, {committed} were committed")
                label = f"run {repeat} of {repeats}" if repeat else "warm-up"
                _console.print(
                    f"{name}, {what}: {label}: {level} {rate:.2f} M/s", style="dim", highlight=False
                )
                if repeat:
                    rates[level].append(rate)
        medians = {level: median(found) for level, found in rates.items()}
        for level, rate in medians.items():
            yield Figure(f"{name}, {what}: {level}", rate, "M records/s")
        ratio = medians["read_committed"] / medians["read_uncommitted"]
        yield Figure(f"{name}, {what}: committed / all", ratio, at_least=0.95)


def _poll_tables(root: str, level: IsolationLevel) -> tuple[int, float]:
    with open_consumer(root, _TOPIC, _PARTITIONS, level) as consumer:
        ends = consumer.end_offsets(list(consumer.assignment()))
        start = time.perf_counter()
        return read_tables(consumer, ends), time.perf_counter() - start


def _read_by_spark(spark: SparkSession, root: str, level: IsolationLevel) -> tuple[int, float]:
    """Read all columns of all records, and drop them in the JVM."""
    observation = Observation()
    start = time.perf_counter()
    reader = spark.read.format("spark_log").option("subscribe", _TOPIC)
    df = reader.option("kafka.isolation.level", level).load(root)
    noop(df.observe(observation, functions.count(functions.lit(1)).alias("records")))
    return int(observation.get["records"]), time.perf_counter() - start


def _logs(root: str) -> Iterator[PartitionLog]:
    cluster = Cluster(root)
    image = cluster.topic(_TOPIC)
    for number in image.partitions:
        yield cluster.partition_log(image, number)


if __name__ == "__main__":
    sys.exit(main())
