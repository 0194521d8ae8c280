"""`by_partition` shuffles a DataFrame so that task *i* writes partition *i* of a topic."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import IntegerType, StringType

from spark_log.cluster import open_cluster
from spark_log.datasource.write.columns import no_value_column
from spark_log.datasource.write.partition_chooser import STICKY_ROWS
from spark_log.record import partition_for_keys
from spark_log.storage import StorageOptions

_log = logging.getLogger(__name__)

_MURMUR2: Final = ("org.apache.commons.codec.digest.MurmurHash2", "hash32")
"""Class and method of Kafka's hash, with Kafka's seed, in commons-codec, which Spark ships."""


def by_partition(
    df: DataFrame,
    root: str | os.PathLike[str],
    topic: str,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Return ``df`` repartitioned so that each task writes one segment into one partition.

    Adds the column ``partition``, or fills its nulls: by murmur2 of ``key`` like Kafka's clients,
    and in turn for rows without a key. Compiled code in the JVM hashes the keys. With Spark
    Connect, string keys are hashed by reflection, and binary keys in Python; both take twice as
    long.

    Args:
        df: columns that ``format("spark_log")`` takes.
        root: the cluster root.
        topic: the topic that will be written to.
        storage_options: options of the file system.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
        InvalidRecordError: ``df`` has no column ``value``.
    """
    if "value" not in df.columns:
        raise no_value_column(df.columns)
    count = open_cluster(root, storage_options).topic(topic).num_partitions
    chosen = _spread(count)
    if "key" in df.columns:
        is_text = isinstance(df.schema["key"].dataType, StringType)
        hashed = _partition_compiled(df, count)
        if hashed is None:
            hashed = _partition_of_text(count) if is_text else _partition_of_bytes(count)
        chosen = F.when(F.col("key").isNull(), chosen).otherwise(hashed)
    if "partition" in df.columns:
        chosen = F.coalesce(F.col("partition"), chosen)
    # A row whose partition is invalid or null goes to any task. The writer refuses or fills it in.
    owner = F.pmod(F.coalesce(F.col("partition"), F.lit(0)), F.lit(count))
    return df.withColumn("partition", chosen).repartitionById(count, owner)


def _spread(count: int) -> Column:
    """Return partitions for rows without a key, in runs; each task starts with another one."""
    run = F.floor(F.monotonically_increasing_id() / STICKY_ROWS) + F.spark_partition_id()
    return F.pmod(run, F.lit(count)).cast("int")


def _partition_compiled(df: DataFrame, count: int) -> Column | None:
    """Return partitions of keys, by a call that Spark compiles into the code of its stage.

    Spark's public functions offer no such call, but Catalyst's expressions do. The result is None
    with Spark Connect, and with versions of Spark that have other expressions.
    """
    key = F.col("key").cast("binary")
    try:
        jvm: Any = df.sparkSession.sparkContext._jvm
        spark_sql = jvm.org.apache.spark.sql
        convert = spark_sql.classic.ExpressionUtils
        given: list[Any] = [key, F.octet_length(key)]
        arguments = [convert.expression(each._jc) for each in given]
        call = spark_sql.catalyst.expressions.objects.StaticInvoke(
            jvm.org.apache.spark.util.Utils.classForName(_MURMUR2[0], True, False),
            spark_sql.types.DataTypes.IntegerType,
            _MURMUR2[1],
            jvm.PythonUtils.toSeq(arguments),
            jvm.PythonUtils.toSeq([]),  # no conversion of arguments
            True,  # a null gives null
            True,  # and so the result may be null
            True,  # it is deterministic
            jvm.scala.Option.empty(),  # it is not a function of a catalog
        )
        hashed = type(key)(convert.column(call))
    except Exception as error:  # py4j's, of several kinds
        _log.info("keys are hashed by a public function of Spark, which is slower: %r", error)
        return None
    return _partition_of_hash(hashed, count)


def _partition_of_text(count: int) -> Column:
    """Return partitions of string keys, by reflection.

    It hashes a string's UTF-8 bytes. Keys that are not valid UTF-8 would be altered on the way; for
    them the writer chooses the partition.
    """
    hashed = F.java_method(*map(F.lit, _MURMUR2), F.col("key")).cast("int")
    return F.when(F.is_valid_utf8("key"), _partition_of_hash(hashed, count))


def _partition_of_hash(hashed: Column, count: int) -> Column:
    return F.pmod(hashed.bitwiseAND(F.lit(0x7FFFFFFF)), F.lit(count))


def _partition_of_bytes(count: int) -> Column:
    """Return partitions of binary keys; Python computes them for each Arrow batch."""

    def partition(keys: pa.Array) -> pa.Array:
        return pa.array(partition_for_keys(keys, count))

    column: Column = arrow_udf(partition, IntegerType())(F.col("key"))  # type: ignore[call-overload]
    return column
