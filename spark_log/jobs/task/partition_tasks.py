"""Runs an action for each of several partitions, each in a Spark task of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_RESULT_SCHEMA: Final = "number int, report string"


def run_per_partition(
    spark: SparkSession,
    action: Callable[[TopicPartition], dict[str, Any]],
    partitions: Sequence[TopicPartition],
) -> list[dict[str, Any]]:
    """Run an action for each partition, in one Spark task each, started in the given order.

    Args:
        spark: the session.
        action: the function that a task calls.
        partitions: the partitions.

    Returns:
        The results, in the same order.
    """
    if not partitions:
        return []
    count = len(partitions)
    _log.debug("starting %d Spark tasks, one for each partition", count)
    tasks = spark.range(0, count, 1, count)
    rows = tasks.mapInArrow(_task(action, tuple(partitions)), _RESULT_SCHEMA).collect()
    reports = {row.number: json.loads(row.report) for row in rows}
    return [reports[number] for number in range(count)]


def _task(
    action: Callable[[TopicPartition], dict[str, Any]], partitions: tuple[TopicPartition, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int32()),
                        "report": pa.array([json.dumps(action(partitions[number]))]),
                    }
                )

    return work
