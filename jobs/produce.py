"""Write files or a Delta table into a topic: one record per row.

    spark-submit jobs/produce.py flights.csv --root /data/log --topic flights \\
        --key carrier --timestamp time_hour

The value is the row as JSON unless ``--value`` names a column. Rows of one key go to one partition,
chosen as Kafka's clients choose it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from spark_log import NewTopic
from spark_log.cli.errors import run
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.output import Output
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.datasource import by_partition
from spark_log.datasource.job import Report, connection_options, job_session, spark_progress
from spark_log.errors import InvalidOptionError, TopicAlreadyExistsError, nearest


class Format(StrEnum):
    """What the input is."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    DELTA = "delta"
    TEXT = "text"


@with_option_groups
def main(
    source: Annotated[str, typer.Argument(help="File, directory or table to read.")],
    root: Root,
    output: Output,
    topic: Annotated[str, typer.Option(help="The topic to write to.")],
    source_format: Annotated[
        Format, typer.Option("--format", help="What the source is; json is one document a line.")
    ] = Format.CSV,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE for Spark's reader; may be given again. For csv a header "
            "line and inferred types are the default."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Column that becomes the key.")] = None,
    value: Annotated[
        str | None, typer.Option(help="Column that becomes the value; else the row as JSON.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Column that becomes the timestamp; else the time of writing."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Column that becomes a header; may be given again.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Create the topic with so many partitions if it is new.")
    ] = None,
    topic_config: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for a topic that is created.")
    ] = None,
    shuffle: Annotated[
        bool,
        typer.Option(
            help="Bring each partition's rows together first: one segment a partition, "
            "instead of one for each task and partition."
        ),
    ] = True,
) -> None:
    """Write files or a Delta table into a topic: one record per row."""
    report = Report("produced")
    if partitions is not None:
        _create(root, topic, partitions, parse_pairs("--topic-config", topic_config or []))
    root.cluster().topic(topic)  # no such topic: say so before anything is read
    spark = job_session("produce")
    options = parse_pairs("--source-option", source_option or [])
    with spark_progress(spark, f"Reading {source}"):
        rows = _read(spark, source, source_format, options)
    counted = Observation("produced")
    records = _records(rows, key, value, timestamp, header or []).observe(
        counted, F.count(F.lit(1)).alias("records")
    )
    if shuffle:
        records = by_partition(records, root.url, topic, root.storage_options)
    started = time.perf_counter()
    with spark_progress(spark, f"Writing to {topic}"):
        options = connection_options(root.url, root.storage_options) | {"topic": topic}
        records.write.format("spark_log").mode("append").options(**options).save()
    seconds = time.perf_counter() - started
    described = root.admin().describe_topics([topic])[0]
    report.add(topic=topic, root=root.url)
    report.add_rate(int(counted.get["records"]), seconds)
    report.add(
        partitions=len(described.partitions),
        segments=sum(partition.segments for partition in described.partitions),
        size_bytes=sum(partition.size_bytes for partition in described.partitions),
    )
    report.print(as_json=output.is_json)


def _create(root: Root, topic: str, partitions: int, configs: dict[str, str]) -> None:
    with suppress(TopicAlreadyExistsError):  # stays as it is: --partitions is for a new one
        root.admin().create_topics([NewTopic(topic, partitions, topic_configs=configs)])


def _read(
    spark: SparkSession, source: str, source_format: Format, options: dict[str, str]
) -> DataFrame:
    if source_format is Format.CSV:
        options = {"header": "true", "inferSchema": "true"} | options
    return spark.read.format(source_format.value).options(**options).load(source)


def _records(
    rows: DataFrame, key: str | None, value: str | None, timestamp: str | None, headers: list[str]
) -> DataFrame:
    """Return the rows as the sink wants them."""
    for name in filter(None, (key, value, timestamp, *headers)):
        if name not in rows.columns:
            close = nearest(name, rows.columns)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"there are {', '.join(rows.columns)}"
            )
            raise InvalidOptionError(f"the source has no column {name!r}; {hint}", key=name)
    columns: list[Column] = [
        (F.col(value).cast("string") if value else F.to_json(F.struct("*"))).alias("value")
    ]
    if key:
        columns.append(F.col(key).cast("string").alias("key"))
    if timestamp:
        columns.append(F.col(timestamp).cast("timestamp").alias("timestamp"))
    if headers:
        items = [
            F.struct(
                F.lit(name).alias("key"), F.col(name).cast("string").cast("binary").alias("value")
            )
            for name in headers
        ]
        columns.append(F.array(*items).alias("headers"))
    return rows.select(*columns)


if __name__ == "__main__":
    run(main)
