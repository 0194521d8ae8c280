"""Write files or a Delta table into a topic: one record per row.

    spark-submit jobs/produce.py flights.csv --root /data/log --topic flights \\
        --key carrier --timestamp time_hour

The value is the row as JSON unless ``--value`` names a column. Rows of one key go to one partition,
chosen as Kafka's clients choose it.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from spark_log import NewTopic
from spark_log.cli.errors import run
from spark_log.cli.format.output import Output, print_note
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.datasource import by_partition
from spark_log.errors import InvalidOptionError, TopicAlreadyExistsError, nearest
from spark_log.jobs.job_options import connection_options
from spark_log.jobs.progress_bar import spark_progress
from spark_log.jobs.report import Counts, Report
from spark_log.jobs.session import job_session

_TRIED_ROWS: Final = 100
"""So many rows are read before a topic is created for them."""


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
    new = _new_topic(root, topic, partitions, parse_pairs("--topic-config", topic_config or []))
    if new is None:
        root.cluster().topic(topic)  # no such topic: say so before anything is read
    spark = job_session("produce")
    options = parse_pairs("--source-option", source_option or [])
    counted = Observation("produced")
    with spark_progress(spark, f"Reading {source}"):
        rows = _read(spark, source, source_format, options)
        records = _records(rows, key, value, timestamp, header or [])
        if new is not None:
            records.limit(_TRIED_ROWS).collect()  # a wrong source leaves no empty topic behind
    records = records.observe(counted, F.count(F.lit(1)).alias("rows"))
    if new is not None:
        _create(root, new)
    if shuffle:
        records = by_partition(records, root.url, topic, root.storage_options)
    started = time.perf_counter()
    options = connection_options(root.url, root.storage_options) | {"topic": topic}
    try:
        with spark_progress(spark, f"Writing to {topic}"):
            written = _write(records, options)
    except Exception:
        if new is not None:
            print_note(
                f"The topic {topic} was created before this failed: spark-log topics delete "
                f"{topic} --root {root.url} removes it."
            )
        raise
    counts = Counts(int(counted.get["rows"]), written)
    seconds = time.perf_counter() - started
    described = root.admin().describe_topics([topic])[0]
    report.add(topic=topic, root=root.url)
    report.add_counts(counts, seconds)
    report.add(
        partitions=len(described.partitions),
        segments=sum(partition.segments for partition in described.partitions),
        size_bytes=sum(partition.size_bytes for partition in described.partitions),
    )
    if not counts.read:
        report.warn(f"no record was written: {source} has no rows")
    report.print(as_json=output.is_json)


def _new_topic(
    root: Root, name: str, partitions: int | None, configs: dict[str, str]
) -> NewTopic | None:
    """Return the topic that is to be created; None where it exists, or none was asked for.

    Raises:
        InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: it cannot be created.
    """
    if partitions is None:
        return None
    topic = NewTopic(name, partitions, topic_configs=configs)
    try:
        root.admin().create_topics([topic], validate_only=True)
    except TopicAlreadyExistsError:  # stays as it is: --partitions is for a new one
        return None
    return topic


def _create(root: Root, topic: NewTopic) -> None:
    with suppress(TopicAlreadyExistsError):  # another process was first
        root.admin().create_topics([topic])


def _write(records: DataFrame, options: dict[str, str]) -> int:
    """Append the records to the topic, and return how many the log took."""
    with tempfile.TemporaryDirectory(prefix="spark-log-") as folder:
        summary = Path(folder, "summary.json")
        writer = records.write.format("spark_log").mode("append").options(**options)
        writer.option("summaryPath", str(summary)).save()
        return int(json.loads(summary.read_text("utf-8"))["records"])


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
