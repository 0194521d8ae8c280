"""`read_table`: a topic's records as one DataFrame, from its table and its log."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_log.cluster import open_cluster
from spark_log.datasource.options import STORAGE_PREFIX, format_offsets
from spark_log.datasource.read import HEADERS_FIELD, READ_SCHEMA
from spark_log.datasource.table.hadoop_files import hadoop_directory, hadoop_options
from spark_log.datasource.table.parquet_relation import ParquetFrames, ParquetPart, union_of
from spark_log.errors import InvalidOptionError, nearest
from spark_log.storage import StorageOptions, checked_root, map_requests
from spark_log.topic_read import (
    FilePart,
    PartitionRead,
    ReadBounds,
    TopicRead,
    open_file,
    plan_read,
    typed_parts,
)
from spark_log.types import TopicPartition


def read_table(
    spark: SparkSession,
    root: str | os.PathLike[str],
    topic: str,
    *,
    storage_options: StorageOptions | None = None,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    partitions: Collection[int] | None = None,
    starting_offsets: Mapping[int, int] | None = None,
    ending_offsets: Mapping[int, int] | None = None,
    from_time: datetime | None = None,
    to_time: datetime | None = None,
    version: int | None = None,
    min_partitions: int | None = None,
) -> DataFrame:
    """Return a topic's records as one DataFrame: its table, and the log behind it.

    Spark's own vectorised reader reads the Parquet files of the table's newest version, and
    ``format("spark_log")`` the records behind its ends. The DataFrame is one state of the topic,
    that of this call: nothing that is written afterwards appears, and what retention deletes before
    it is read is an error, not a gap. It has what is acknowledged, up to the first transaction that
    is open, and no records of aborted transactions. Call the function again to see newer records.

    Filters and ``select`` reach the Parquet files: Spark reads only the columns, row groups and
    partitions that it needs. Of the log, which is short, it reads ``columns``. A topic without a
    table is read from its log alone.

    Args:
        spark: the session.
        root: the cluster root, a path or URL. Spark's Hadoop reads ``s3://`` as ``s3a://``.
        topic: the topic's name.
        storage_options: the options of the file system; never printed or logged.
        columns: names of the columns, in this order; None for those of ``format("spark_log")``, and
            the typed columns of the table behind them.
        include_headers: whether the column ``headers`` is added, if ``columns`` is None.
        partitions: numbers of the partitions to read; None for all.
        starting_offsets: partition → first offset. Other partitions start at their start.
        ending_offsets: partition → offset after the last: the topic as it was when it ended there.
            Other partitions end where they end now. A compacted topic has not all of its past.
        from_time: the smallest timestamp, with a time zone; None for no limit. Files without such
            records are not even planned, which a filter on ``timestamp`` cannot do.
        to_time: the timestamp after the largest; None for no limit.
        version: a version of the table: the read ends at its ends, and has nothing of the log
            behind. None reads the newest one, and the log.
        min_partitions: approximate minimum number of tasks that read the log.

    Raises:
        UnknownTopicOrPartitionError: the topic or a partition does not exist.
        InvalidOptionError: a column does not exist, a limit is not possible, or the topic has no
            such version.
        OffsetOutOfRangeError: an offset to start or end at is not retained, or does not exist yet.
    """
    bounds = ReadBounds.parse(
        partitions=partitions,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        from_time=from_time,
        to_time=to_time,
    )
    cluster = open_cluster(checked_root(root), storage_options)
    read = plan_read(cluster, topic, bounds, version=version)
    typed = from_arrow_schema(read.typed_columns)
    headers = [HEADERS_FIELD] if include_headers or "headers" in (columns or ()) else []
    schema = StructType([*READ_SCHEMA.fields, *headers, *typed.fields])
    names = _checked_columns(columns, schema)
    frames: list[DataFrame] = []
    if parts := _parts(read):
        stored = StructType([field for field in schema.fields if field.name not in _MADE])
        frames += ParquetFrames(spark, topic, stored, hadoop_options(cluster.store)).read(parts)
    tails = [each for each in read.partitions if each.log_start < each.end]
    if tails or not frames:
        options = _log_options(read, tails, storage_options, min_partitions)
        frames.append(_log_frame(spark, read, schema, names, options if tails else None))
    if from_time is not None:
        frames = [each.where(F.col("timestamp") >= F.lit(from_time)) for each in frames]
    if to_time is not None:
        frames = [each.where(F.col("timestamp") < F.lit(to_time)) for each in frames]
    return union_of([each.select(*names) for each in frames])


_MADE = ("topic", "partition", "timestampType")
"""Columns that no file has."""


def _log_options(
    read: TopicRead,
    tails: Sequence[PartitionRead],
    storage_options: StorageOptions | None,
    min_partitions: int | None,
) -> dict[str, str]:
    """Return the options of ``format("spark_log")`` for the rows of the log."""
    topic = read.topic.name
    starts = {TopicPartition(topic, each.partition): each.log_start for each in tails}
    ends = {TopicPartition(topic, each.partition): each.end for each in tails}
    options = {
        "assign": json.dumps({topic: [each.partition for each in tails]}),
        "startingOffsets": format_offsets(starts),
        "endingOffsets": format_offsets(ends),
        "isolation.level": "read_committed",
    }
    if min_partitions is not None:
        options["minPartitions"] = str(min_partitions)
    given = (storage_options or {}).items()
    return options | {f"{STORAGE_PREFIX}{key}": str(value) for key, value in given}


def _log_frame(
    spark: SparkSession,
    read: TopicRead,
    schema: StructType,
    columns: Sequence[str],
    options: Mapping[str, str] | None,
) -> DataFrame:
    """Return the rows of the log, with typed columns that are null.

    Args:
        spark: the session.
        read: the read.
        schema: all columns.
        columns: the columns that are wanted.
        options: options of the data source; None if nothing is read.
    """
    if options is None:
        return spark.createDataFrame([], schema)
    wanted = {*columns, "timestamp"} if read.bounds.has_times else {*columns}
    if not any(_is_of_log(schema[name]) for name in wanted):
        wanted.add("offset")  # rows are counted by it
    fields = [each for each in schema.fields if _is_of_log(each) and each.name in wanted]
    reader = spark.read.format("spark_log").schema(StructType(fields)).options(**options)
    frame = reader.load(read.cluster.root)
    missing = [each for each in schema.fields if each.name not in frame.columns]
    nulls = [F.lit(None).cast(each.dataType).alias(each.name) for each in missing]
    return frame.select("*", *nulls)


def _is_of_log(field: StructField) -> bool:
    return field.name in READ_SCHEMA.names or field.name == HEADERS_FIELD.name


def _parts(read: TopicRead) -> list[ParquetPart]:
    """Return the files, each with the timestamp type of its rows; one with both types twice."""
    files = [(each, part) for each in read.partitions for part in each.files]
    if not files:
        return []
    store = files[0][0].directory.store
    found = map_requests(store, lambda file: _parts_of(*file), files)
    return [part for parts in found for part in parts]


def _parts_of(read: PartitionRead, part: FilePart) -> list[ParquetPart]:
    directory = hadoop_directory(read.directory.store, read.directory.path)
    return [
        ParquetPart(
            read.partition,
            directory,
            part.name.file_name,
            part.size_bytes,
            each.timestamp_type,
            (each.part.low, each.part.high),
        )
        for each in typed_parts(open_file(read.directory, part), part)
    ]


def _checked_columns(columns: Sequence[str] | None, schema: StructType) -> list[str]:
    if columns is None:
        return list(schema.names)
    for name in columns:
        if name not in schema.names:
            close = nearest(name, schema.names)
            raise InvalidOptionError(
                f"column {name!r} does not exist; "
                + (f"did you mean {close[0]!r}? " if close else "")
                + f"the columns are {', '.join(schema.names)}",
                key="columns",
            )
    return list(columns)
