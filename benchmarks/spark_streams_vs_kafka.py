"""Compares Structured Streaming on Spark Log and on Kafka: a copy, and a trivial micro-batch.

    python -m benchmarks.spark_streams_vs_kafka --records 2000000 --repeats 3

Kafka is a real 4.1 broker used through Spark's own connector (see `benchmarks.spark_vs_kafka`). The
copy reads a whole topic and writes it to another one in one `availableNow` run. The trivial
micro-batch reads one record into a sink that drops it, so that its duration (``triggerExecution``
of the query's progress) is the overhead of the source and of Spark.

Both are also measured with a source of ready-made batches, the copy into a sink that drops them
(`benchmarks.ready_made`): the upper bound of Spark's Python data source API. The notes tell how
long a copy waits for its first micro-batch, for which Spark starts a Python process, and how long
its tasks and the rest of it take.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from time import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.kafka_broker import KAFKA_VERSION, KafkaBroker, exit_status
from benchmarks.ready_made import ReadyMadeSource
from benchmarks.spark_vs_kafka import CONNECTOR_VERSION, WARMUPS, connector_jars, parser
from benchmarks.workload import PARTITIONS, Case, measure, prepare, session
from spark_log import Admin, NewTopic

_MICRO_BATCHES = 36
_SOURCE, _TRIVIAL = "source", "trivial"
_CEILING = "ready-made, dropped"

Trigger = Callable[[DataStreamWriter], DataStreamWriter]
_TRIGGERS: Mapping[str, Trigger] = {
    "availableNow": lambda writer: writer.trigger(availableNow=True),
    "processingTime": lambda writer: writer.trigger(processingTime="0 seconds"),
}


@dataclass(frozen=True)
class Peer:
    """One log behind one of Spark's formats.

    Attributes:
        name: the name in the report.
        source_format: the format of `readStream` and `writeStream`.
        options: the options of every read and write.
        create: creates a topic, from its name and number of partitions.
        against: the names of the peers that it is compared with.
    """

    name: str
    source_format: str
    options: Mapping[str, str]
    create: Callable[[str, int], None]
    against: tuple[str, ...] = ()

    def write(self, df: DataFrame, topic: str) -> None:
        """Append ``df`` to a topic."""
        writer = df.write.format(self.source_format).mode("append").options(**self.options)
        writer.option("topic", topic).save()

    def stream(self, spark: SparkSession, topic: str, **more: str) -> DataFrame:
        """Return a stream of a topic from its start."""
        reader = spark.readStream.format(self.source_format).options(**self.options, **more)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def sink(self, df: DataFrame, topic: str) -> DataStreamWriter:
        """Return a stream into a topic."""
        writer = df.writeStream.format(self.source_format).options(**self.options)
        return writer.option("topic", topic)


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("spark_streams_vs_kafka", __doc__).parse_args()
    return exit_status(
        lambda: run(options.records, options.repeats, options.value_bytes, options.directory)
    )


def run(n: int, repeats: int, value_bytes: int, directory: Path | None) -> None:
    """Measure, print the table, and write JSON."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=directory)
        work = Path(stack.enter_context(temporary))
        spark = session(jars=connector_jars())
        stack.callback(spark.stop)
        broker = stack.enter_context(KafkaBroker(work))
        spark.dataSource.register(ReadyMadeSource)
        df = prepare(spark, work, n, value_bytes)
        kafka, spark_log, synced = _kafka(broker), _spark_log(work), _spark_log(work, sync=True)
        ceiling = _ready_made(n, PARTITIONS)
        for peer in (kafka, spark_log):
            peer.create(_SOURCE, PARTITIONS)
            peer.write(df, _SOURCE)
            peer.create(_TRIVIAL, 1)
            peer.write(df.limit(_MICRO_BATCHES), _TRIVIAL)
        phases = {peer.name: _Phases() for peer in (ceiling, kafka, spark_log, synced)}
        copies = [
            [_copy(spark, peer, work, phases[peer.name])]
            for peer in (ceiling, kafka, spark_log, synced)
        ]
        result = measure(
            "spark_streams_vs_kafka",
            n,
            copies,
            repeats,
            warmups=WARMUPS,
            versions={"kafka": KAFKA_VERSION, "kafka_connector": CONNECTOR_VERSION},
            value_bytes=value_bytes,
        )
        notes: dict[str, object] = {
            f"{name}, ms": spent.summary(repeats) for name, spent in phases.items()
        }
        trivial = _ready_made(_MICRO_BATCHES, 1)
        notes |= _micro_batches(spark, kafka, spark_log, trivial, work, repeats)
        result = replace(result, notes=notes)
    result.report()


def _kafka(broker: KafkaBroker) -> Peer:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.acks": "all"}
    return Peer("Kafka copy", "kafka", options, broker.create_topic)


def _spark_log(work: Path, *, sync: bool = False) -> Peer:
    root = str(work / "spark_log")

    def create(topic: str, partitions: int) -> None:
        configs = {"flush.on.append": str(sync).lower()}
        Admin(root).create_topics([NewTopic(topic, partitions, topic_configs=configs)])

    name = f"Spark Log copy{', sync' if sync else ''}"
    return Peer(name, "spark_log", {"path": root}, create, ("Kafka copy", _CEILING))


def _ready_made(records: int, partitions: int) -> Peer:
    options = {"records": str(records), "partitions": str(partitions)}
    return Peer(_CEILING, "ready_made", options, lambda topic, partitions: None)


class _Phases:
    """The durations of the parts of each copy."""

    def __init__(self) -> None:
        self._first_ms: list[float] = []
        self._tasks_ms: list[float] = []
        self._rest_ms: list[float] = []

    def add(self, query: StreamingQuery, started_s: float, ended_s: float) -> None:
        """Add a query that has ended.

        Args:
            query: the query.
            started_s: the time before its start, seconds since the epoch.
            ended_s: the time after its end, seconds since the epoch.
        """
        batches = query.recentProgress
        first_s = datetime.fromisoformat(batches[0]["timestamp"]).timestamp()
        self._first_ms.append(1000 * (first_s - started_s))
        self._tasks_ms.append(sum(each["durationMs"].get("addBatch", 0) for each in batches))
        self._rest_ms.append(1000 * (ended_s - first_s) - self._tasks_ms[-1])

    def summary(self, repeats: int) -> str:
        """Return the medians of the last ``repeats`` copies."""
        first, tasks, rest = (
            median(each[-repeats:]) for each in (self._first_ms, self._tasks_ms, self._rest_ms)
        )
        return f"to the first micro-batch {first:.0f}, its tasks {tasks:.0f}, the rest {rest:.0f}"


def _copy(spark: SparkSession, peer: Peer, work: Path, phases: _Phases) -> Case:
    def checkpoint(topic: str) -> str:
        return str(work / f"checkpoint-{peer.name}-{topic}")

    def copy(topic: str) -> None:
        source = peer.stream(spark, _SOURCE).select("key", "value")
        writer = peer.sink(source, topic).option("checkpointLocation", checkpoint(topic))
        started_s = time()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        phases.add(query, started_s, time())

    return Case(
        peer.name,
        copy,
        before=lambda topic: peer.create(topic, PARTITIONS),
        after=lambda topic: shutil.rmtree(checkpoint(topic)),
        against=peer.against,
    )


def _micro_batches(
    spark: SparkSession,
    kafka: Peer,
    spark_log: Peer,
    ready_made: Peer,
    work: Path,
    repeats: int,
) -> dict[str, object]:
    """Return the duration of a micro-batch of one record, by trigger; the peers take turns."""
    notes: dict[str, object] = {}
    peers = [kafka, spark_log, ready_made]
    for name, trigger in _TRIGGERS.items():
        took: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for repeat in range(repeats + 1):
            for peer in peers if repeat % 2 else reversed(peers):
                durations = _run_trivial(spark, peer, trigger, work)
                took[peer.name] += durations if repeat else []
        of_kafka, ours, ceiling = (median(took[peer.name]) for peer in peers)
        notes[f"micro-batch of one record, {name}, ms"] = (
            f"Spark Log {ours:.0f}, Kafka {of_kafka:.0f}: {ours / of_kafka:.2f}x, "
            f"ready-made {ceiling:.0f}"
        )
    return notes


def _run_trivial(spark: SparkSession, peer: Peer, trigger: Trigger, work: Path) -> list[float]:
    """Return the durations of some micro-batches of one record each, milliseconds."""
    with tempfile.TemporaryDirectory(dir=work) as checkpoint:
        stream = peer.stream(spark, _TRIVIAL, maxOffsetsPerTrigger="1")
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = trigger(writer).start()
        try:
            while (query.lastProgress or {"batchId": -1})["batchId"] < _MICRO_BATCHES - 1:
                if query.awaitTermination(1):
                    break
            progress = query.recentProgress
        finally:
            query.stop()
    # The first micro-batches warm up.
    return [each["durationMs"]["triggerExecution"] for each in progress if each["batchId"] > 4]


if __name__ == "__main__":
    sys.exit(main())
