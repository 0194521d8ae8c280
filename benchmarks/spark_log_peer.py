"""Spark Log's cases in the comparisons through Spark, the same for every peer."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.workload import PARTITIONS, Case, noop
from spark_log import Admin, NewTopic
from spark_log.datasource import by_partition


def append_to_new_topic(rows: DataFrame, root: str, topic: str) -> None:
    """Create a topic of `PARTITIONS` partitions that is not synced, and append ``rows`` to it."""
    configs = {"flush.on.append": "false"}
    Admin(root).create_topics([NewTopic(topic, PARTITIONS, topic_configs=configs)])
    rows.write.format("spark_log").mode("append").option("topic", topic).save(root)


def spark_log_cases(
    spark: SparkSession,
    df: DataFrame,
    work: Path,
    *,
    keyed_against: Sequence[str],
    unkeyed_against: Sequence[str],
    read_against: Sequence[str],
) -> list[list[Case]]:
    """Return the cases of Spark Log; the first log written is also read.

    The writes are: keyed through `by_partition`, keyed without its shuffle, and unkeyed (only
    values, null keys) without a shuffle. All have ``flush.on.append=false``, since neither Kafka
    nor Parquet syncs; then the first and the last write are repeated with sync.

    Args:
        spark: the session of all peers.
        df: the records, with the columns key and value.
        work: a directory for the logs; each log is removed after its case.
        keyed_against: the names of the cases that keyed writes are compared with.
        unkeyed_against: the names of the cases that unkeyed writes are compared with.
        read_against: the names of the cases that the read is compared with.
    """

    def root(topic: str) -> str:
        return str(work / f"spark_log-{topic}")

    def create(topic: str, flush: str) -> None:
        configs = {"flush.on.append": flush}
        Admin(root(topic)).create_topics([NewTopic(topic, PARTITIONS, topic_configs=configs)])

    def save(frame: DataFrame, topic: str) -> None:
        frame.write.format("spark_log").mode("append").option("topic", topic).save(root(topic))

    def read(topic: str) -> None:
        noop(spark.read.format("spark_log").option("subscribe", topic).load(root(topic)))

    def drop(topic: str) -> None:
        shutil.rmtree(root(topic))

    def write(
        what: str, frame: Callable[[str], DataFrame], against: Sequence[str], *, sync: bool = False
    ) -> Case:
        return Case(
            f"Spark Log write, {what}{', sync' if sync else ''}",
            run=lambda topic: save(frame(topic), topic),
            before=lambda topic: create(topic, str(sync).lower()),
            after=drop,
            against=tuple(against),
        )

    def shuffled(topic: str) -> DataFrame:
        return by_partition(df, root(topic), topic)

    def values(topic: str) -> DataFrame:
        return df.select("value")

    keyed = replace(write("keyed", shuffled, keyed_against), after=lambda topic: None)
    return [
        [keyed, Case("Spark Log read", read, after=drop, against=tuple(read_against))],
        [write("keyed, no shuffle", lambda topic: df, keyed_against)],
        [write("unkeyed", values, unkeyed_against)],
        [write("keyed", shuffled, keyed_against, sync=True)],
        [write("unkeyed", values, unkeyed_against, sync=True)],
    ]
