"""Compares Spark's transactional sink with the idempotent one: rates, and the least micro-batch.

    python -m benchmarks.spark_transactions --records 2000000 --repeats 3

A copy reads a whole topic and writes it to another one in one `availableNow` run. The least
micro-batch copies one record to one partition, by one task; its duration is ``triggerExecution`` of
the query's progress.
"""

import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_vs_kafka import parser
from benchmarks.workload import PARTITIONS, Case, measure, prepare, session
from spark_log import Admin, NewTopic

_MICRO_BATCHES: Final = 24
_WARMUPS: Final = 4
"""Number of micro-batches of each query that are not counted."""

_SOURCE, _TRIVIAL = "source", "trivial"
_SINKS: Final = ("idempotent", "transactional")


class Sinks:
    """Writes of both kinds to one root."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        """Return the sinks of a root in a directory; the first topic creates the root."""
        self._spark = spark
        self._work = work
        self._root = str(work / "root")

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Create a topic."""
        Admin(self._root).create_topics([NewTopic(topic, partitions)])

    def write(self, df: DataFrame, sink: str, topic: str) -> None:
        """Append a DataFrame to a topic."""
        df.write.format("spark_log").mode("append").options(**self._options(sink, topic)).save()

    def copy(self, sink: str, topic: str) -> None:
        """Copy the topic `_SOURCE` to another one, in one micro-batch."""
        query = self._start(sink, topic, _SOURCE)
        query.awaitTermination()
        shutil.rmtree(self._checkpoint(sink, topic))

    def micro_batches_ms(self, sink: str, topic: str) -> list[float]:
        """Return the durations of micro-batches of one record each."""
        self.create(topic, 1)
        query = self._start(sink, topic, _TRIVIAL, maxOffsetsPerTrigger="1")
        query.awaitTermination()
        return [
            each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["batchId"] >= _WARMUPS
        ]

    def _start(self, sink: str, topic: str, source: str, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("spark_log").options(path=self._root, **options)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        writer = reader.load().select("key", "value").writeStream.format("spark_log")
        writer = writer.options(**self._options(sink, topic))
        writer = writer.option("checkpointLocation", self._checkpoint(sink, topic))
        return writer.trigger(availableNow=True).start()

    def _options(self, sink: str, topic: str) -> dict[str, str]:
        transactional = str(sink == "transactional").lower()
        return {"path": self._root, "topic": topic, "transactional": transactional}

    def _checkpoint(self, sink: str, topic: str) -> str:
        return str(self._work / f"checkpoint-{sink}-{topic}")


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("spark_transactions", __doc__).parse_args()
    run(options.records, options.repeats, options.value_bytes, options.directory)
    return 0


def run(n: int, repeats: int, value_bytes: int, directory: Path | None) -> None:
    """Measure, print the table, and write JSON."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=directory)
        work = Path(stack.enter_context(temporary))
        spark = session()
        stack.callback(spark.stop)
        df = prepare(spark, work, n, value_bytes)
        sinks = Sinks(spark, work)
        for topic, source, partitions in (
            (_SOURCE, df, PARTITIONS),
            (_TRIVIAL, df.limit(_MICRO_BATCHES), 1),
        ):
            sinks.create(topic, partitions)
            sinks.write(source, "idempotent", topic)
        peers = [[_write(sinks, df, sink)] for sink in _SINKS]
        peers += [[_copy(sinks, sink)] for sink in _SINKS]
        result = measure("spark_transactions", n, peers, repeats, value_bytes=value_bytes)
        result = replace(result, notes=_least_micro_batches(sinks, repeats))
    result.report()


def _write(sinks: Sinks, df: DataFrame, sink: str) -> Case:
    against = () if sink == _SINKS[0] else (f"{_SINKS[0]} write",)
    return Case(
        f"{sink} write", lambda topic: sinks.write(df, sink, topic), sinks.create, against=against
    )


def _copy(sinks: Sinks, sink: str) -> Case:
    against = () if sink == _SINKS[0] else (f"{_SINKS[0]} copy",)
    return Case(
        f"{sink} copy", lambda topic: sinks.copy(sink, topic), sinks.create, against=against
    )


def _least_micro_batches(sinks: Sinks, repeats: int) -> dict[str, object]:
    """Return the duration of a micro-batch of one record; the sinks take turns."""
    took: dict[str, list[float]] = {sink: [] for sink in _SINKS}
    for repeat in range(repeats):
        for sink in _SINKS if repeat % 2 else reversed(_SINKS):
            took[sink] += sinks.micro_batches_ms(sink, f"least-{sink}-{repeat}")
    one, other = (median(took[sink]) for sink in _SINKS)
    figures = f"idempotent {one:.0f}, transactional {other:.0f}: {other / one:.2f}x"
    return {"micro-batch of one record, ms": figures}


if __name__ == "__main__":
    sys.exit(main())
