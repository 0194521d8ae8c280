"""Compares writes and reads of the same records through Spark Log and through Kafka, by Spark.

    python -m benchmarks.spark_vs_kafka --records 2000000 --repeats 3

Kafka is a real 4.1 broker on this machine, used through Spark's own connector (acks=all, 4
partitions). Neither side syncs to disk, which is Kafka's default; our synced figure is shown as
well.

At the end of each partition the connector's task waits for a fetch that the broker holds for
fetch.max.wait.ms (500 ms): reading 1,000 records of 4 partitions on 2 cores takes 1 s. A user gets
this wait, so ratios include it. The read with fetch.max.wait.ms=10 is measured after it.

Exit status 2 if Maven or Java is missing, 1 if Kafka fails.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.command_line import base_parser, positive
from benchmarks.kafka_broker import (
    KAFKA_VERSION,
    KafkaBroker,
    exit_status,
    fetch_jars,
    find_java,
)
from benchmarks.workload import PARTITIONS, VALUE_BYTES, Case, measure, noop, prepare, session

# Maven fetches each jar of Spark's connector alone: the connector's 4.2.0 requires a token provider
# 4.2.0 that neither Maven nor spark.jars.packages resolves; its 4.0.0 does resolve, and works.
CONNECTOR_VERSION = "4.2.0"
CONNECTOR_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
KAFKA_WRITE, KAFKA_READ = "Kafka write", "Kafka read"
KAFKA_READ_TUNED = "Kafka read, tuned"
WARMUPS = 2  # the broker's JVM and the connector are still being compiled in the second run


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    arguments = parser("spark_vs_kafka", __doc__)
    arguments.add_argument("--only", choices=("kafka", "spark_log"), help="leave the other one out")
    options = arguments.parse_args()
    return exit_status(
        lambda: run(
            options.records,
            options.repeats,
            options.only,
            options.directory,
            value_bytes=options.value_bytes,
        )
    )


def run(
    n: int,
    repeats: int,
    only: str | None,
    directory: Path | None,
    *,
    value_bytes: int = VALUE_BYTES,
) -> None:
    """Measure ``n`` records on both peers, or on ``only`` one; print the table and write JSON.

    All files are written to a temporary directory under ``directory`` that is removed at the end:
    300 bytes of disk per record and repeat are enough.
    """
    find_java()
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=directory)
        work = Path(stack.enter_context(temporary))
        jars: list[Path] = []
        if only != "spark_log":
            jars = connector_jars()
            broker = stack.enter_context(KafkaBroker(work))
        spark = session(jars=jars)
        stack.callback(spark.stop)
        df = prepare(spark, work, n, value_bytes)
        peers: list[list[Case]] = []
        if only != "spark_log":
            peers.append(kafka_cases(spark, df, broker))
        if only != "kafka":
            from benchmarks.spark_log_peer import spark_log_cases  # so that Kafka can run alone

            peers += spark_log_cases(
                spark,
                df,
                work,
                keyed_against=(KAFKA_WRITE,),
                unkeyed_against=(KAFKA_WRITE,),
                read_against=(KAFKA_READ, KAFKA_READ_TUNED),
            )
        name = "spark_vs_kafka" + (f"-{only}" if only else "")
        versions = {"kafka": KAFKA_VERSION, "kafka_connector": CONNECTOR_VERSION}
        result = measure(
            name,
            n,
            peers,
            repeats,
            warmups=WARMUPS,
            versions=versions if jars else None,
            value_bytes=value_bytes,
        )
    result.report()


def kafka_cases(spark: SparkSession, df: DataFrame, broker: KafkaBroker) -> list[Case]:
    """Return the write of ``df`` into a new topic of ``broker``, by key, and the reads of it."""
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def create(topic: str) -> None:
        broker.create_topic(topic, PARTITIONS)

    def write(topic: str) -> None:
        writer = df.write.format("kafka").mode("append").options(**options)
        writer.option("kafka.acks", "all").option("topic", topic).save()

    def read(topic: str, **more: str) -> None:
        reader = spark.read.format("kafka").options(**options, **more).option("subscribe", topic)
        noop(reader.options(startingOffsets="earliest", endingOffsets="latest").load())

    def read_tuned(topic: str) -> None:
        read(topic, **{"kafka.fetch.max.wait.ms": "10"})

    return [
        Case(KAFKA_WRITE, write, before=create),
        Case(KAFKA_READ, read),
        Case(KAFKA_READ_TUNED, read_tuned, after=broker.delete_topic, against=(KAFKA_READ,)),
    ]


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector, which `fetch_jars` downloads and caches."""
    return sorted(fetch_jars("connector", CONNECTOR_ARTIFACTS, transitive=False).glob("*.jar"))


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that the comparisons with Kafka have in common."""
    arguments = base_parser(name, doc)
    arguments.add_argument("--records", type=positive, default=2_000_000, help="(2000000)")
    arguments.add_argument(
        "--repeats", type=positive, default=3, help="measured runs, after two that warm up (3)"
    )
    arguments.add_argument(
        "--value-bytes",
        type=positive,
        default=VALUE_BYTES,
        help="of a record; its key has 8 (100)",
    )
    return arguments


if __name__ == "__main__":
    sys.exit(main())
