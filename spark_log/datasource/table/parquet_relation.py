"""Parquet segments as a DataFrame of Spark's own vectorised reader.

``topic``, ``partition`` and ``timestampType`` are no columns of the files. They become partition
columns of the relation: Spark fills them in without work for each row, and skips the files of
partitions that a filter excludes. Spark's public functions find partition columns in the names of
directories only. So the relation is built of Catalyst's classes, from a list of files with their
sizes: nothing is listed. With Spark Connect, and with versions of Spark that have other classes,
the columns are computed from the path of the file, for each row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

_SAME: Final = StructType(
    [
        StructField("topic", StringType(), False),
        StructField("partition", IntegerType(), False),
        StructField("timestampType", IntegerType(), False),
    ]
)
"""The columns that are the same in all rows of a file."""

_log = logging.getLogger(__name__)

Limits = tuple[int | None, int | None]
"""The first offset, and the offset after the last; None if a file has no rows beyond."""


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """Rows of one file.

    Attributes:
        partition: number of the partition.
        directory: URL of the partition's directory.
        file_name: name of the file.
        size_bytes: size of the file.
        timestamp_type: timestamp type of the rows.
        limits: limits of the rows' offsets.
    """

    partition: int
    directory: str
    file_name: str
    size_bytes: int
    timestamp_type: int
    limits: Limits


@dataclass(slots=True)
class _Directory:
    """The parts of one directory that one relation reads."""

    part: ParquetPart
    files: dict[str, int] = field(default_factory=dict)

    def fits(self, part: ParquetPart) -> bool:
        known = self.part
        is_same = (known.timestamp_type, known.limits) == (part.timestamp_type, part.limits)
        return is_same and part.file_name not in self.files


class ParquetFrames:
    """Makes DataFrames of Parquet parts."""

    def __init__(
        self, spark: SparkSession, topic: str, schema: StructType, options: dict[str, str]
    ) -> None:
        """Make none yet.

        Args:
            spark: the session.
            topic: the topic's name.
            schema: the columns that files may have.
            options: Hadoop's options for the files; they may have credentials.
        """
        self._spark = spark
        self._topic = topic
        self._schema = schema
        # A missing or damaged file is an error, whatever the session's settings say.
        self._options = {
            "ignoreMissingFiles": "false",
            "ignoreCorruptFiles": "false",
            "parquet.page.verify-checksum.enabled": "true",
            **options,
        }

    def read(self, parts: Iterable[ParquetPart]) -> list[DataFrame]:
        """Return DataFrames with the rows of all parts.

        Whole files are one DataFrame, and those of which only a part is read are another one, so
        that whole files are read without their offsets if nobody asks for these.
        """
        relations: list[dict[str, _Directory]] = []
        for part in parts:
            is_whole = part.limits == (None, None)
            for relation in relations:
                first = next(iter(relation.values())).part
                if (first.limits == (None, None)) != is_whole:
                    continue
                if part.directory not in relation or relation[part.directory].fits(part):
                    break
            else:
                relation = {}
                relations.append(relation)
            directory = relation.setdefault(part.directory, _Directory(part))
            directory.files[part.file_name] = part.size_bytes
        return [self._limited(list(relation.values())) for relation in relations]

    def _limited(self, directories: Sequence[_Directory]) -> DataFrame:
        frame = self._frame(directories)
        limits = {each.part.partition: each.part.limits for each in directories}
        low = {number: each[0] for number, each in limits.items() if each[0] is not None}
        high = {number: each[1] for number, each in limits.items() if each[1] is not None}
        if low:
            frame = frame.where(F.col("offset") >= _by_partition(low, 0))
        if high:
            frame = frame.where(F.col("offset") < _by_partition(high, 2**63 - 1))
        return frame

    def _frame(self, directories: Sequence[_Directory]) -> DataFrame:
        try:
            return _relation(self._spark, self._schema, self._topic, directories, self._options)
        except Exception as error:  # py4j's, of several kinds, and those of Spark Connect
            _log.info("partitions are told by the paths of files, which is slower: %r", error)
        reader = self._spark.read.schema(self._schema).options(**self._options)
        frame = reader.parquet(
            *(f"{each.part.directory}/{name}" for each in directories for name in each.files)
        )
        path = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
        directory = F.substring_index(F.substring_index(path, "/", -2), "/", 1)
        names = {each.part.directory.rpartition("/")[2]: each.part for each in directories}
        kinds = {part.timestamp_type for part in names.values()}
        kind: Column = F.lit(next(iter(kinds)))
        if len(kinds) > 1:
            kind = _lookup(directory, {name: part.timestamp_type for name, part in names.items()})
        return frame.select(
            *self._schema.names,
            F.lit(self._topic).alias("topic"),
            _lookup(directory, {name: part.partition for name, part in names.items()}).alias(
                "partition"
            ),
            kind.alias("timestampType"),
        )


def _by_partition(offsets: dict[int, int], other: int) -> Column:
    """Return the offset of each row's partition, and another one for other partitions."""
    known = [F.lit(offsets.get(number, other)).cast("long") for number in range(max(offsets) + 1)]
    return F.coalesce(F.get(F.array(*known), F.col("partition")), F.lit(other).cast("long"))


def _lookup(key: Column, values: dict[str, int]) -> Column:
    pairs = [each for name, value in values.items() for each in (F.lit(name), F.lit(value))]
    return F.create_map(*pairs)[key]


def _relation(
    spark: SparkSession,
    schema: StructType,
    topic: str,
    directories: Sequence[_Directory],
    options: dict[str, str],
) -> DataFrame:
    """Return the files as a relation with partition columns.

    Raises:
        Exception: this session has no such classes.
    """
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    session: Any = spark._jsparkSession
    sources = jvm.org.apache.spark.sql.execution.datasources
    new_path = jvm.org.apache.hadoop.fs.Path
    to_seq = jvm.PythonUtils.toSeq
    none = jvm.scala.Option.empty()
    cache = sources.FileStatusCache.getOrCreate(session)
    paths, partitions = [], []
    text = jvm.org.apache.spark.unsafe.types.UTF8String
    for each in directories:
        values = gateway.new_array(jvm.java.lang.Object, len(_SAME))
        values[0] = text.fromString(topic)
        values[1], values[2] = each.part.partition, each.part.timestamp_type
        row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values)
        partitions.append(sources.PartitionPath(row, new_path(each.part.directory)))
        for name, size_bytes in each.files.items():
            path = new_path(f"{each.part.directory}/{name}")
            paths.append(path)
            _cache_size(spark, cache, path, size_bytes)
    same = session.parseDataType(_SAME.json())
    stored = session.parseDataType(schema.json())
    given = jvm.PythonUtils.toScalaMap(options)
    index = sources.InMemoryFileIndex(
        session,
        to_seq(paths),
        given,
        jvm.scala.Option.apply(stored),
        cache,
        jvm.scala.Option.apply(sources.PartitionSpec(same, to_seq(partitions))),
        none,
    )
    relation = sources.HadoopFsRelation(
        index, same, stored, none, sources.parquet.ParquetFileFormat(), given, session
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def _cache_size(spark: SparkSession, cache: Any, path: Any, size_bytes: int) -> None:
    """Tell Spark the size of a file, which the table's version has, so that it does not ask."""
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    status = jvm.org.apache.hadoop.fs.FileStatus(size_bytes, False, 1, 128 << 20, 0, path)
    statuses = gateway.new_array(jvm.org.apache.hadoop.fs.FileStatus, 1)
    statuses[0] = status
    cache.putLeafFiles(path, statuses)


def union_of(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all DataFrames, which have the same columns in the same order."""
    return reduce(DataFrame.union, frames)
