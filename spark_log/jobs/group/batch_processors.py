"""Batch processors of group jobs: write to a destination, or exactly once to a Delta table.

Both distribute the job's partitions over member tasks by the group's assignor. Each task owns whole
partitions. If an executor dies, Spark runs its tasks again on another one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_log.datasource import (
    LogSplit,
    OffsetReader,
    PartitionOwners,
    ReadOptions,
    format_offsets,
    group_by_member,
    parse_read_options,
    read_split,
    splits_between,
)
from spark_log.errors import StorageError
from spark_log.jobs.group.group_job import BatchResult
from spark_log.jobs.group.job_member import Batch
from spark_log.jobs.sink import DeltaSink, Destination
from spark_log.types import TopicPartition
from spark_log.util import IN_PROCESS

_RESULT_SCHEMA: Final = "topic string, partition int, reached long, skipped long, records long"

ShowProgress = Callable[[SparkSession, str], AbstractContextManager[None]]


class SparkProcessor:
    """Common part of the processors: the session, which the first batch starts, and progress."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        connection: Mapping[str, str],
        group: str,
        members: int | None,
        show_progress: ShowProgress = lambda spark, title: nullcontext(),
    ) -> None:
        """Create the processor; starts no session.

        Args:
            session: the function that creates the session, called on the thread that runs batches.
            connection: the options that every read needs.
            group: the id of the consumer group.
            members: the number of tasks; None for as many as can run at once.
            show_progress: a context manager that shows the progress of a batch.
        """
        self._make_session = session
        self._connection = connection
        self._group = group
        self._members = members
        self._show_progress = show_progress
        self._job_group = f"spark-log-{uuid.uuid4().hex}"
        self._spark: SparkSession | None = None

    def run(self, batch: Batch) -> BatchResult:
        """Write a batch's records."""
        if self._spark is None:
            self._spark = self._make_session()
            _activate(self._spark)
            self._spark.sparkContext.setJobGroup(self._job_group, f"group {self._group}")
            self._members = self._members or self._spark.sparkContext.defaultParallelism
        topics = ", ".join(sorted({tp.topic for tp in batch.starts}))
        with self._show_progress(self._spark, f"Reading {topics}"):
            return self._write(self._spark, batch)

    def progress(self) -> object:
        """Return the number of completed tasks, and Spark's SQL metrics of running queries.

        Executors send the metrics with their heartbeats, every 10 s.
        """
        spark = self._spark
        if spark is None:
            return None
        try:
            tracker = spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = [(stage.stageId, stage.numCompletedTasks) for stage in stages if stage]
            return done, _sql_metrics(spark)
        except Exception as error:  # py4j's, of several kinds: the JVM has ended or is ending
            IN_PROCESS.add("progress of a batch", self._job_group, error)
            return None

    def cancel(self) -> None:
        """Cancel the Spark job of the batch."""
        if self._spark is not None:
            # py4j's: if the JVM has ended, so has the Spark job.
            with IN_PROCESS.suppress("cancelling of a batch", self._job_group, Exception):
                self._spark.sparkContext.cancelJobGroup(self._job_group)

    def _write(self, spark: SparkSession, batch: Batch) -> BatchResult:
        raise NotImplementedError

    def _options(self, batch: Batch) -> dict[str, str]:
        """Return the options of a read of a batch by member tasks."""
        new = {tp: at for tp, at in batch.starts.items() if at < batch.ends[tp]}
        assigned: dict[str, list[int]] = {}
        for tp in sorted(new):
            assigned.setdefault(tp.topic, []).append(tp.partition)
        return {
            **self._connection,
            "assign": json.dumps(assigned),
            "startingOffsets": format_offsets(new),
            "endingOffsets": format_offsets({tp: batch.ends[tp] for tp in new}),
            "group.id": self._group,
            "partition.assignment.strategy": batch.strategy,
            "minPartitions": str(self._members),
        }


class DestinationProcessor(SparkProcessor):
    """Writes to any destination, at least once."""

    def __init__(self, destination: Destination, *arguments: Any, **keywords: Any) -> None:
        """Append records to ``destination``; the other arguments are those of `SparkProcessor`."""
        super().__init__(*arguments, **keywords)
        self._destination = destination

    def _write(self, spark: SparkSession, batch: Batch) -> BatchResult:
        records = spark.read.format("spark_log").options(**self._options(batch)).load()
        counts = self._destination.write(records)
        return BatchResult(batch.ends, counts.read, counts.written)


class DeltaProcessor(SparkProcessor):
    """Writes to a Delta table together with the offsets, exactly once.

    Within a task, records go from the log to the table as Arrow batches, and never through the JVM.
    The assignment of partitions to members is kept from batch to batch.
    """

    def __init__(self, sink: DeltaSink, *arguments: Any, **keywords: Any) -> None:
        """Append records to an existing table; other arguments are those of `SparkProcessor`."""
        super().__init__(*arguments, **keywords)
        self._sink = sink
        self._owners: PartitionOwners | None = None
        self._version = -1

    def progress(self) -> object:
        """Return the progress of `SparkProcessor`, and the table's version.

        Tasks commit to the table several times in a batch.
        """
        # If the error persists, the tasks report it.
        with IN_PROCESS.suppress("progress of a batch", self._sink.url, StorageError):
            self._version = self._sink.version()
        return super().progress(), self._version

    def _write(self, spark: SparkSession, batch: Batch) -> BatchResult:
        options = parse_read_options(self._options(batch), is_stream=False)
        if self._owners is None:
            self._owners = PartitionOwners(batch.strategy, self._members)
        reader = OffsetReader(options)
        splits = splits_between(reader, batch.starts, batch.ends)
        members = group_by_member(splits, self._owners, batch.starts, reader.stripes())
        splits_by_member = [member.splits for member in members]
        tasks = spark.range(0, len(splits_by_member), 1, len(splits_by_member))
        rows = tasks.mapInArrow(
            _appending(self._sink, splits_by_member, options), _RESULT_SCHEMA
        ).collect()
        reached = {TopicPartition(row.topic, row.partition): row.reached for row in rows}
        written = sum(row.records for row in rows)
        return BatchResult(
            dict(batch.ends) | reached, written, written, sum(row.skipped for row in rows)
        )


def _appending(
    sink: DeltaSink, splits_by_member: list[tuple[LogSplit, ...]], options: ReadOptions
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task, which appends the splits of one member."""
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

    def append(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for result in sink.append(
                    splits_by_member[number], lambda split: read_split(split, columns, options)
                ):
                    yield pa.RecordBatch.from_pydict(
                        {
                            "topic": pa.array([result.split.topic]),
                            "partition": pa.array([result.split.partition], pa.int32()),
                            "reached": pa.array([result.reached], pa.int64()),
                            "skipped": pa.array([result.skipped], pa.int64()),
                            "records": pa.array([result.records], pa.int64()),
                        }
                    )

    return append


def _activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, by which a write finds Python data sources."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def _sql_metrics(spark: SparkSession) -> list[tuple[int, str]]:
    """Return the metrics of running queries; only Java's API has them."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    queries = store.executionsList()
    running = (queries.apply(index) for index in range(queries.size()))
    return [
        (query.executionId(), store.executionMetrics(query.executionId()).toString())
        for query in running
        if query.completionTime().isEmpty()
    ]
