"""`by_partition`: shuffle a DataFrame so that task *i* owns partition *i* of a topic."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import cycle

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import IntegerType

from spark_log.errors import InvalidRecordError
from spark_log.metadata import Cluster
from spark_log.record.murmur2 import partition_for_keys
from spark_log.storage import StorageOptions


def by_partition(
    df: DataFrame,
    root: str | os.PathLike[str],
    topic: str,
    storage_options: StorageOptions | None = None,
) -> DataFrame:
    """Return ``df`` repartitioned so that each task writes one segment into one partition.

    Adds (or completes) the column ``partition``: what it says, else murmur2 of ``key`` as Kafka's
    clients compute it, else, without a key, one partition after the other by Arrow batch.

    Args:
        df: columns as ``format("spark_log")`` takes them.
        root: the cluster root.
        topic: the topic that will be written to.
        storage_options: for the file system.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidRecordError: ``df`` has no column ``value``.
    """
    if "value" not in df.columns:
        raise InvalidRecordError(f"the DataFrame has no column 'value', only {df.columns}")
    count = Cluster(root, storage_options).topic(topic).num_partitions
    key = F.col("key").cast("binary") if "key" in df.columns else F.lit(None).cast("binary")
    chosen = arrow_udf(_partitioner(count), IntegerType())(key)  # type: ignore[call-overload]
    if "partition" in df.columns:
        chosen = F.coalesce(F.col("partition"), chosen)
    # Out of range stays out of range: the writer refuses it with a message.
    with_partition = df.withColumn("partition", chosen)
    return with_partition.repartitionById(count, F.pmod(F.col("partition"), F.lit(count)))


def _partitioner(num_partitions: int) -> Callable[[pa.Array], pa.Array]:
    """Return the function from an Arrow batch of keys to partitions; runs in tasks."""
    sticky = None

    def partition(keys: pa.Array) -> pa.Array:
        nonlocal sticky
        partitions = partition_for_keys(keys, num_partitions)
        if keys.null_count:
            if sticky is None:
                context = TaskContext.get()
                sticky = cycle(
                    _rotated(num_partitions, 0 if context is None else context.partitionId())
                )
            partitions[keys.is_null().to_numpy(zero_copy_only=False)] = next(sticky)
        return pa.array(partitions)

    return partition


def _rotated(count: int, first: int) -> list[int]:
    return [(first + step) % count for step in range(count)]
