"""Compares `read_table` with a hand-written Delta table of the same rows, and with Kafka; by Spark.

    python -m benchmarks.spark_table_reads --records 2000000 --repeats 3

Two topics of flights (JSON of 19 fields) are written and converted to Parquet, so that all of each
is in its table: one without typed columns, one with them. The peers have the same rows:

- Delta: a table that delta-spark writes as a user does, with its own compression, partitioned by
  partition, one file for each, in the order of offsets. Its columns are those of `read_table`.
- Kafka: a topic of a real 4.1 broker on this machine, read by Spark's connector. ``from_json``
  makes its typed columns, and its day is a range of offsets, since the connector writes no
  timestamps.

All columns, the keys alone, one day of thirty, and the typed columns alone are read in turns. A
read includes its planning: each run makes a new DataFrame. "CPU s" is the processor time of all
processes (Python, Spark, the broker), the least of all runs.

A record takes 400 bytes in Kafka's topic: ``--kafka-compression zstd`` saves most of it. Exit
status 2 if Maven or Java is missing, 1 if Kafka fails.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.command_line import base_parser, positive
from benchmarks.kafka_broker import KAFKA_VERSION, KafkaBroker, exit_status, find_java
from benchmarks.made_flights import PARTITIONS, VALUE_BYTES, VALUE_SCHEMA
from benchmarks.spark_vs_kafka import CONNECTOR_VERSION, WARMUPS, connector_jars
from benchmarks.table_scan import write_table
from benchmarks.workload import Case, measure, noop, session
from spark_log import read_table

DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 are for large tables
    "spark.sql.session.timeZone": "UTC",
}

_TOPIC = "flights"
_TYPED_TOPIC = "typed_flights"
_TYPED = {
    "compression.type": "zstd",
    "table.value.format": "json",
    "table.schema": VALUE_SCHEMA,
}
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_FIELDS = [field.split()[0] for field in VALUE_SCHEMA.split(", ")]

_FILTERED = ", by a filter"

Read = Callable[[], DataFrame]


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    parser = base_parser("spark_table_reads", __doc__)
    parser.add_argument("--records", type=positive, default=2_000_000, help="how many (2000000)")
    parser.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after two that warm up (3)"
    )
    parser.add_argument("--without-kafka", action="store_true", help="leave Kafka out")
    parser.add_argument(
        "--kafka-compression", default="none", help="compression.type of Kafka's producer (none)"
    )
    options = parser.parse_args()
    return exit_status(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """Write the peers' rows, measure, print the table, and write JSON."""
    find_java()
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)
        work = Path(stack.enter_context(temporary))
        jars: list[Path] = []
        if not options.without_kafka:
            jars = connector_jars()
            broker = stack.enter_context(KafkaBroker(work))
        n, root = options.records, str(work / "root")
        write_table(root, n, settings={"compression.type": "zstd"})
        write_table(root, n, topic=_TYPED_TOPIC, settings=_TYPED)
        spark = session([DELTA_PACKAGE], jars=jars, extra_settings=DELTA_SETTINGS)
        stack.callback(spark.stop)
        peers = {"read_table": _of_table(spark, root, n), "Delta": _of_delta(spark, root, work, n)}
        if not options.without_kafka:
            peers["Kafka"] = _of_kafka(spark, broker, root, n, options.kafka_compression)
        versions = {"kafka": KAFKA_VERSION, "kafka_connector": CONNECTOR_VERSION}
        result = measure(
            "spark_table_reads",
            n,
            [_cases(peers, kind) for kind in peers["read_table"]],
            options.repeats,
            warmups=WARMUPS,
            versions=versions if jars else None,
            value_bytes=VALUE_BYTES,
            with_cpu=True,
        )
    result.report()


def _cases(peers: Mapping[str, Mapping[str, Read]], kind: str) -> list[Case]:
    """Return the cases of all peers for one kind of read; ours is compared to the others."""
    cases = []
    for name, reads in peers.items():
        if read := reads.get(kind):
            others = [each for each in peers if each != name and name == "read_table"]
            against = tuple(f"{each}, {kind.removesuffix(_FILTERED)}" for each in others)
            cases.append(Case(f"{name}, {kind}", partial(_read, read), against=against))
    return cases


def _read(make: Read, _: str) -> None:
    noop(make())


def _day(n: int) -> tuple[datetime, datetime]:
    first, behind = (_BEGIN + timedelta(seconds=n * day // 30) for day in (14, 15))
    return first, behind


def _in_day(n: int) -> Column:
    first, behind = _day(n)
    return (F.col("timestamp") >= F.lit(first)) & (F.col("timestamp") < F.lit(behind))


def _of_table(spark: SparkSession, root: str, n: int) -> dict[str, Read]:
    first, behind = _day(n)
    read = partial(read_table, spark, root, _TOPIC)
    return {
        "all columns": read,
        "key": lambda: read().select("key"),
        "a day": partial(read, from_time=first, to_time=behind),
        "a day" + _FILTERED: lambda: read().where(_in_day(n)),
        "typed columns": lambda: read_table(spark, root, _TYPED_TOPIC).select(*_FIELDS),
    }


def _of_delta(spark: SparkSession, root: str, work: Path, n: int) -> dict[str, Read]:
    plain, typed = str(work / "delta"), str(work / "typed-delta")
    for topic, path in ((_TOPIC, plain), (_TYPED_TOPIC, typed)):
        rows = read_table(spark, root, topic).drop("_decode_error")
        rows = rows.repartitionById(PARTITIONS, F.col("partition"))
        rows = rows.sortWithinPartitions("partition", "offset")
        rows.write.format("delta").partitionBy("partition").save(path)
        assert spark.read.format("delta").load(path).count() == n
    read = spark.read.format("delta").load
    return {
        "all columns": partial(read, plain),
        "key": lambda: read(plain).select("key"),
        "a day": lambda: read(plain).where(_in_day(n)),
        "typed columns": lambda: read(typed).select(*_FIELDS),
    }


def _of_kafka(
    spark: SparkSession, broker: KafkaBroker, root: str, n: int, compression: str
) -> dict[str, Read]:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    broker.create_topic(_TOPIC, PARTITIONS)
    rows = read_table(spark, root, _TOPIC, columns=["key", "value", "partition"])
    writer = rows.write.format("kafka").mode("append").options(**servers)
    writer.option("kafka.compression.type", compression).option("topic", _TOPIC).save()
    first, behind = _day(n)
    day = read_table(spark, root, _TOPIC, from_time=first, to_time=behind)
    found = day.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    starts = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    ends = starts | {str(row[0]): row[2] + 1 for row in found}
    starts |= {str(row[0]): row[1] for row in found}
    limits = {
        "startingOffsets": json.dumps({_TOPIC: starts}),
        "endingOffsets": json.dumps({_TOPIC: ends}),
    }

    def read(**more: str) -> DataFrame:
        reader = spark.read.format("kafka").options(**servers).option("subscribe", _TOPIC)
        return reader.options(**more).load()

    def typed() -> DataFrame:
        value = F.from_json(F.col("value").cast("string"), VALUE_SCHEMA)
        return read().select(value.alias("value")).select("value.*")

    assert read().count() == n
    for each in (day, read(**limits)):
        assert each.count() == n * 15 // 30 - n * 14 // 30
    return {
        "all columns": read,
        "key": lambda: read().select("key"),
        "a day": partial(read, **limits),
        "typed columns": typed,
    }


if __name__ == "__main__":
    sys.exit(main())
