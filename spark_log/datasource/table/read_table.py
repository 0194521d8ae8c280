"""`read_table`: a topic's records as one DataFrame, from its table and its log."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
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
    with_typed_columns,
)
from spark_log.types import TopicPartition
from spark_log.values import TypedValues


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
            the typed columns of the topic behind them. With ``table.keep.value=false``, files may
            leave values out: None then leaves out the column ``value``, and who names it gets all
            values, read from the log alone.
        include_headers: whether the column ``headers`` is added, if ``columns`` is None.
        partitions: numbers of the partitions to read; None for all.
        starting_offsets: partition → first offset. Other partitions start at their start.
        ending_offsets: partition → offset after the last: the topic as it was when it ended there.
            Other partitions end where they end now. A compacted topic has not all of its past.
        from_time: the smallest timestamp, with a time zone; None for no limit. Files without such
            records are not even planned, which a filter on ``timestamp`` cannot do.
        to_time: the timestamp after the largest; None for no limit.
        version: a version of the table: the read has the typed columns that the table had, ends
            at its ends, and has nothing of the log behind. None reads the newest one, and the log.
        min_partitions: approximate minimum number of tasks that read the log.

    Raises:
        UnknownTopicOrPartitionError: the topic or a partition does not exist.
        InvalidOptionError: ``spark`` is no session, a column does not exist, a limit is not
            possible, or the topic has no such version.
        OffsetOutOfRangeError: an offset to start or end at is not retained, or does not exist yet.
    """
    # A session of Spark Connect is of another class.
    if not callable(getattr(spark, "createDataFrame", None)):
        raise InvalidOptionError(
            f"spark is {spark!r}; give a SparkSession, such as that of spark_log.spark_session()"
        )
    bounds = ReadBounds.parse(
        partitions=partitions,
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        from_time=from_time,
        to_time=to_time,
    )
    cluster = open_cluster(checked_root(root), storage_options)
    read = plan_read(cluster, topic, bounds, version=version)
    schema = _schema(read, include_headers=include_headers or "headers" in (columns or ()))
    names = _checked_columns(columns, schema)
    parts = _parts(read)
    if any(leaves_values_out for _, leaves_values_out in parts) and "value" in names:
        if columns is None:
            names.remove("value")
        else:  # only the log's reader gives these values back
            read, parts = _from_log_alone(read), []
    frames: list[DataFrame] = []
    if parts:
        stored = StructType([field for field in schema.fields if field.name not in _MADE])
        parquet = ParquetFrames(spark, topic, stored, hadoop_options(cluster.store))
        frames += parquet.read(part for part, _ in parts)
    tails = [each for each in read.partitions if each.log_start < each.end]
    if tails:
        options = _log_options(read, tails, storage_options, min_partitions)
        frames.append(_log_frame(spark, read, schema, names, options))
    if not frames:
        frames.append(spark.createDataFrame([], schema))
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
    options: Mapping[str, str],
) -> DataFrame:
    """Return the rows of the log, with typed columns.

    Args:
        spark: the session.
        read: the read.
        schema: all columns.
        columns: the columns that are wanted.
        options: options of the data source.
    """
    wanted = {*columns, "timestamp"} if read.bounds.has_times else {*columns}
    typed = [each for each in schema.fields if not _is_of_log(each) and each.name in wanted]
    if typed:
        wanted.add("value")  # they are decoded from it
    fields = [each for each in schema.fields if _is_of_log(each) and each.name in wanted]
    reader = spark.read.format("spark_log").schema(StructType(fields)).options(**options)
    frame = reader.load(read.cluster.root)
    if read.typed is None or not typed:
        return frame
    decode = _Decode(read.typed.format, read.typed.text, [each.name for each in [*fields, *typed]])
    return frame.mapInArrow(decode, StructType([*fields, *typed]))


@dataclass(frozen=True, slots=True)
class _Decode:
    """Adds typed columns to Arrow batches; runs in tasks.

    Attributes:
        format: the format of the values.
        text: the schema of the values.
        columns: names of the columns to return.
    """

    format: str
    text: str
    columns: Sequence[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns."""
        typed = TypedValues(self.format, self.text)
        for batch in batches:
            yield with_typed_columns(batch, typed).select(self.columns)


def _schema(read: TopicRead, *, include_headers: bool) -> StructType:
    """Return all columns that the read can have."""
    headers = [HEADERS_FIELD] if include_headers else []
    typed = from_arrow_schema(read.typed_columns)
    return StructType([*READ_SCHEMA.fields, *headers, *typed.fields])


def _from_log_alone(read: TopicRead) -> TopicRead:
    """Return the read without the files of the table."""
    partitions = [replace(each, files=(), log_start=each.start) for each in read.partitions]
    return replace(read, partitions=tuple(partitions))


def _is_of_log(field: StructField) -> bool:
    return field.name in READ_SCHEMA.names or field.name == HEADERS_FIELD.name


def _parts(read: TopicRead) -> list[tuple[ParquetPart, bool]]:
    """Return the files, each with the timestamp type of its rows; one with both types twice.

    The second value is whether the file leaves values out.
    """
    files = [(each, part) for each in read.partitions for part in each.files]
    if not files:
        return []
    store = files[0][0].directory.store
    found = map_requests(store, lambda file: _parts_of(*file), files)
    return [part for parts in found for part in parts]


def _parts_of(read: PartitionRead, part: FilePart) -> list[tuple[ParquetPart, bool]]:
    directory = hadoop_directory(read.directory.store, read.directory.path)
    reader = open_file(read.directory, part)
    return [
        (
            ParquetPart(
                read.partition,
                directory,
                part.name.file_name,
                part.size_bytes,
                each.timestamp_type,
                (each.part.low, each.part.high),
            ),
            reader.leaves_values_out,
        )
        for each in typed_parts(reader, part)
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
