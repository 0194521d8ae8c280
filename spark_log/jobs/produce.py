"""Write files or a Delta table to a topic, one record per row.

The value is the row as JSON, unless ``--value`` names a column. Rows with the same key go to the
same partition, which is chosen as by Kafka's clients.
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

from spark_log.cli import Output, Root, parse_pairs, print_note, run, with_option_groups
from spark_log.datasource import by_partition
from spark_log.errors import InvalidOptionError, TopicAlreadyExistsError, nearest
from spark_log.jobs.program import (
    Counts,
    JobReport,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.types import NewTopic

_TRIED_ROWS: Final = 100
"""Number of rows that are read before a topic is created, to detect errors in the source."""


class SourceFormat(StrEnum):
    """Format of the source."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    DELTA = "delta"
    TEXT = "text"


@with_option_groups
def main(
    source: Annotated[str, typer.Argument(help="File, directory or Delta table to read.")],
    root: Root,
    output: Output,
    topic: Annotated[str, typer.Option(help="Topic to write to.")],
    source_format: Annotated[
        SourceFormat,
        typer.Option("--format", help="Format of the source; json has one document per line."),
    ] = SourceFormat.CSV,
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option for Spark's reader. Repeatable. [default for csv: header=true, "
            "inferSchema=true]",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Column with the key. [default: no key]")] = None,
    value: Annotated[
        str | None, typer.Option(help="Column with the value. [default: the row as JSON]")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Column with the timestamp. [default: time of writing]"),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Column that becomes a header. Repeatable.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Create the topic with this number of partitions if it does not exist."),
    ] = None,
    topic_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Config of the topic if it is created. Repeatable."),
    ] = None,
    shuffle: Annotated[
        bool,
        typer.Option(
            help="Shuffle rows by partition, which gives one segment per partition instead of "
            "one per task and partition."
        ),
    ] = True,
) -> None:
    """Write files or a Delta table to a topic, one record per row."""
    report = JobReport("produced")
    new = _new_topic(root, topic, partitions, parse_pairs("--topic-config", topic_config or []))
    if new is None:
        root.cluster().topic(topic)  # if it does not exist, fail before the source is read
    spark = job_session("produce")
    options = parse_pairs("--source-option", source_option or [])
    counted = Observation("produced")
    with spark_progress(spark, f"Reading {source}"):
        rows = _read(spark, source, source_format, options)
        records = _records(rows, key, value, timestamp, header or [])
        if new is not None:
            records.limit(_TRIED_ROWS).collect()  # if the source is wrong, no topic is created
    records = records.observe(counted, F.count(F.lit(1)).alias("rows"))
    if new is not None:
        _create(root, new)
    if shuffle:
        records = by_partition(records, root.url, topic, root.storage_options)
    started = time.perf_counter()
    options = connection_options(root) | {"topic": topic}
    try:
        with spark_progress(spark, f"Writing to {topic}"):
            written = _write(records, options)
    except Exception:
        if new is not None:
            print_note(
                f"Topic {topic} was created before the error. To delete it: spark-log topics "
                f"delete {topic} --root {root.url}"
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
        report.warn(f"no record was written, because {source} has no rows")
    report.print(as_json=output.is_json)


def _new_topic(
    root: Root, name: str, partitions: int | None, configs: dict[str, str]
) -> NewTopic | None:
    """Return the topic to create; None if it exists, or if no number of partitions is given.

    Raises:
        InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: the topic cannot be
            created.
    """
    if partitions is None:
        return None
    topic = NewTopic(name, partitions, topic_configs=configs)
    try:
        root.admin().create_topics([topic], validate_only=True)
    except TopicAlreadyExistsError:  # --partitions does not change an existing topic
        return None
    return topic


def _create(root: Root, topic: NewTopic) -> None:
    with suppress(TopicAlreadyExistsError):  # another process has created it
        root.admin().create_topics([topic])


def _write(records: DataFrame, options: dict[str, str]) -> int:
    """Append records to the topic, and return how many the log has accepted."""
    with tempfile.TemporaryDirectory(prefix="spark-log-") as folder:
        summary = Path(folder, "summary.json")
        writer = records.write.format("spark_log").mode("append").options(**options)
        writer.option("summaryPath", str(summary)).save()
        return int(json.loads(summary.read_text("utf-8"))["records"])


def _read(
    spark: SparkSession, source: str, source_format: SourceFormat, options: dict[str, str]
) -> DataFrame:
    if source_format is SourceFormat.CSV:
        options = {"header": "true", "inferSchema": "true"} | options
    return spark.read.format(source_format.value).options(**options).load(source)


def _records(
    rows: DataFrame, key: str | None, value: str | None, timestamp: str | None, headers: list[str]
) -> DataFrame:
    """Return rows as records for the sink."""
    for name in filter(None, (key, value, timestamp, *headers)):
        if name not in rows.columns:
            close = nearest(name, rows.columns)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"its columns are {', '.join(rows.columns)}"
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
