"""Compares Structured Streaming on Spark Log and on Kafka: a copy, and a trivial micro-batch.

    python -m benchmarks.spark_streams_vs_kafka --records 2000000 --repeats 3

Kafka is a real 4.1 broker used through Spark's own connector (see `benchmarks.spark_vs_kafka`). The
copy reads a whole topic and writes it to another one in one `availableNow` run. The trivial
micro-batch reads one record into a sink that drops it, so that its duration (``triggerExecution``
of the query's progress) is the overhead of the source and of Spark.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.kafka_broker import KAFKA_VERSION, KafkaBroker, exit_status
from benchmarks.spark_vs_kafka import CONNECTOR_VERSION, WARMUPS, connector_jars, parser
from benchmarks.workload import PARTITIONS, Case, measure, prepare, session
from spark_log import Admin, NewTopic

_MICRO_BATCHES = 36
_SOURCE, _TRIVIAL = "source", "trivial"

Trigger = Callable[[DataStreamWriter], DataStreamWriter]
_TRIGGERS: Mapping[str, Trigger] = {
    "availableNow": lambda writer: writer.trigger(availableNow=True),
    "processingTime": lambda writer: writer.trigger(processingTime="0 seconds"),
}


@dataclass(frozen=True)
class Peer:
    """One log behind one of Spark's formats.

    Attributes:
        name: for the report.
        source_format: of `readStream` and `writeStream`.
        options: of every read and write.
        create: creates a topic, from its name and number of partitions.
    """

    name: str
    source_format: str
    options: Mapping[str, str]
    create: Callable[[str, int], None]

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
        df = prepare(spark, work, n, value_bytes)
        kafka, spark_log, synced = _kafka(broker), _spark_log(work), _spark_log(work, sync=True)
        for peer in (kafka, spark_log):
            peer.create(_SOURCE, PARTITIONS)
            peer.write(df, _SOURCE)
            peer.create(_TRIVIAL, 1)
            peer.write(df.limit(_MICRO_BATCHES), _TRIVIAL)
        copies = [
            [_copy(spark, kafka, work, ())],
            [_copy(spark, spark_log, work, (kafka.name,))],
            [_copy(spark, synced, work, (kafka.name,))],
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
        result = replace(result, notes=_micro_batches(spark, kafka, spark_log, work, repeats))
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
    return Peer(name, "spark_log", {"path": root}, create)


def _copy(spark: SparkSession, peer: Peer, work: Path, against: tuple[str, ...]) -> Case:
    def checkpoint(topic: str) -> str:
        return str(work / f"checkpoint-{peer.name}-{topic}")

    def copy(topic: str) -> None:
        source = peer.stream(spark, _SOURCE).select("key", "value")
        query = peer.sink(source, topic).option("checkpointLocation", checkpoint(topic))
        query.trigger(availableNow=True).start().awaitTermination()

    return Case(
        peer.name,
        copy,
        before=lambda topic: peer.create(topic, PARTITIONS),
        after=lambda topic: shutil.rmtree(checkpoint(topic)),
        against=against,
    )


def _micro_batches(
    spark: SparkSession, kafka: Peer, spark_log: Peer, work: Path, repeats: int
) -> dict[str, object]:
    """Return the duration of a micro-batch of one record, by trigger; the peers take turns."""
    notes: dict[str, object] = {}
    for name, trigger in _TRIGGERS.items():
        took: dict[str, list[float]] = {kafka.name: [], spark_log.name: []}
        for repeat in range(repeats + 1):
            for peer in (kafka, spark_log) if repeat % 2 else (spark_log, kafka):
                durations = _run_trivial(spark, peer, trigger, work)
                took[peer.name] += durations if repeat else []
        of_kafka, ours = (median(took[peer.name]) for peer in (kafka, spark_log))
        notes[f"micro-batch of one record, {name}, ms"] = (
            f"Spark Log {ours:.0f}, Kafka {of_kafka:.0f}: {ours / of_kafka:.2f}x"
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
    # The first ones warm up.
    return [each["durationMs"]["triggerExecution"] for each in progress if each["batchId"] > 4]


if __name__ == "__main__":
    sys.exit(main())
