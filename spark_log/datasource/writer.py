"""Writing from Spark tasks: rows to partitions, partitions to segments.

A task streams its rows into staged segments, one per partition it meets (more where they grow past
``segment.bytes``), and gives them their place in the logs only when it has seen its last row: a row
that does not fit, or a full disk, leaves nothing of the task behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, StructType

from spark_log.clock import SYSTEM_CLOCK
from spark_log.datasource.options import WriteOptions
from spark_log.errors import InvalidPartitionsError, InvalidRecordError
from spark_log.log import PartitionLog, SegmentWriter, StagedSegment
from spark_log.metadata import Cluster, TopicImage
from spark_log.record.murmur2 import partition_for_keys
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_BATCH_BYTES = 1_048_576
"""Rows wait until they make a record batch of about this size (Kafka's max.message.bytes)."""

_COLUMN_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


@dataclass
class PartitionWritten(WriterCommitMessage):
    """What a task wrote, by topic and partition: offsets of the first and last record."""

    ranges: dict[tuple[str, int], tuple[int, int]]


class LogWriter(DataSourceArrowWriter):
    """Appends a DataFrame to topics.

    Nothing is committed by the driver: segments are visible when their task ends, as records
    written through Spark's Kafka connector are.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Args: schema: the DataFrame's; options: checked ones.

        Raises:
            InvalidRecordError: a column is missing or has a type that the log does not take.
            UnknownTopicOrPartitionError: the topic does not exist.
            RootNotFoundError: nor does the root.
        """
        _check_columns(schema, options.topic)
        self._options = options
        cluster = Cluster(options.root, options.storage_options)
        if options.topic is not None:
            cluster.topic(options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        context = TaskContext.get()
        first_partition = 0 if context is None else context.partitionId()
        with _TaskWriter(self._options, first_partition) as task:
            for batch in iterator:
                task.add(batch)
            return PartitionWritten(task.commit())


def _check_columns(schema: StructType, topic: str | None) -> None:
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise InvalidRecordError(
            f"the DataFrame has no column 'value'; its columns are {', '.join(types) or 'none'}: "
            f"name one value, for instance with selectExpr('to_json(struct(*)) AS value')"
        )
    if topic is None and "topic" not in types:
        raise InvalidRecordError(
            "no topic: give the option 'topic', or a column 'topic' of type string"
        )
    for name, allowed in _COLUMN_TYPES.items():
        if name in types and types[name].simpleString() not in allowed:
            raise InvalidRecordError(
                f"column {name!r} is of type {types[name].simpleString()}, expected "
                f"{' or '.join(allowed)}; cast it"
            )


class _TaskWriter:
    """The open segments of one task, by topic and partition."""

    def __init__(self, options: WriteOptions, first_partition: int) -> None:
        self._options = options
        self._first_partition = first_partition
        self._cluster = Cluster(options.root, options.storage_options)
        self._image = self._cluster.image()
        self._now_us = SYSTEM_CLOCK.time_us()
        self._topics: dict[str, _TopicWriter] = {}

    def __enter__(self) -> _TaskWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for topic in self._topics.values():
            topic.discard()

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        records = _records(batch, self._now_us)
        explicit = batch.column("partition") if "partition" in batch.schema.names else None
        if self._options.topic is not None:
            self._topic(self._options.topic).add(records, explicit)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise InvalidRecordError(
                f"{topics.null_count} rows have a null topic; fill the column 'topic', or give "
                f"the option 'topic'"
            )
        for name in topics.unique().to_pylist():
            rows = pc.equal(topics, name)
            chosen = None if explicit is None else explicit.filter(rows)
            self._topic(name).add(records.filter(rows), chosen)

    def commit(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Append every staged segment; returns the offsets taken."""
        for topic in self._topics.values():
            topic.finish()
        return {
            (name, partition): offsets
            for name, topic in self._topics.items()
            for partition, offsets in topic.append()
        }

    def _topic(self, name: str) -> _TopicWriter:
        if name not in self._topics:
            self._topics[name] = _TopicWriter(
                self._cluster, self._image.topic(name), self._options, self._first_partition
            )
        return self._topics[name]


class _TopicWriter:
    """Distributes records over a topic's partitions."""

    def __init__(
        self, cluster: Cluster, topic: TopicImage, options: WriteOptions, first_partition: int
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._options = options
        self._sticky = first_partition % topic.num_partitions
        self._partitions: dict[int, _PartitionWriter] = {}

    def add(self, records: pa.RecordBatch, explicit: pa.Array | None) -> None:
        partitions = self._choose(records.column("key"), explicit)
        first = int(partitions[0])
        if (partitions == first).all():
            self._partition(first).add(records)
            return
        # Numpy sorts 16-bit integers by radix: stable, and linear.
        narrow = (
            partitions.astype(np.uint16) if self._topic.num_partitions <= 65_536 else partitions
        )
        order = np.argsort(narrow, kind="stable")
        grouped = records.take(pa.array(order))
        numbers, starts = np.unique(partitions[order], return_index=True)
        for number, start, end in zip(numbers, starts, [*starts[1:], len(order)], strict=True):
            self._partition(int(number)).add(grouped.slice(start, end - start))

    def finish(self) -> None:
        for partition in self._partitions.values():
            partition.finish()

    def append(self) -> Iterator[tuple[int, tuple[int, int]]]:
        for number in sorted(self._partitions):
            yield number, self._partitions[number].append()

    def discard(self) -> None:
        for partition in self._partitions.values():
            partition.discard()

    def _choose(self, keys: pa.Array, explicit: pa.Array | None) -> np.ndarray:
        """Return each record's partition: an explicit one, else by key, else the sticky one.

        Records without a key stay together for a batch and then move on to the next partition
        (KIP-480), so that they need no sorting.
        """
        count = self._topic.num_partitions
        if keys.null_count == len(keys):
            partitions = np.full(len(keys), self._sticky, np.int32)
        else:
            partitions = partition_for_keys(keys, count)
            if keys.null_count:
                partitions[keys.is_null().to_numpy(zero_copy_only=False)] = self._sticky
        if keys.null_count:
            self._sticky = (self._sticky + 1) % count
        if explicit is not None and explicit.null_count < len(explicit):
            given = explicit.is_valid().to_numpy(zero_copy_only=False)
            partitions[given] = explicit.drop_null().to_numpy()
            wrong = (partitions < 0) | (partitions >= count)
            if wrong.any():
                raise InvalidPartitionsError(
                    f"column 'partition' holds {int(partitions[wrong][0])}, but topic "
                    f"{self._topic.name!r} has {count} partitions, numbered from 0; nothing of "
                    f"this task was written"
                )
        return partitions

    def _partition(self, number: int) -> _PartitionWriter:
        if number not in self._partitions:
            self._partitions[number] = _PartitionWriter(
                self._cluster.partition_log(self._topic, number),
                self._options.compression,
                self._topic.config().segment_bytes,
            )
        return self._partitions[number]


class _PartitionWriter:
    """Collects one partition's rows into batches, and batches into staged segments."""

    def __init__(self, log: PartitionLog, compression: str, segment_bytes: int) -> None:
        self._log = log
        self._compression = compression
        self._segment_bytes = segment_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._writer: SegmentWriter | None = None
        self._staged: list[StagedSegment] = []

    def add(self, records: pa.RecordBatch) -> None:
        self._waiting.append(records)
        self._waiting_bytes += records.nbytes
        if self._waiting_bytes >= _BATCH_BYTES:
            self._write_waiting()

    def finish(self) -> None:
        if self._waiting:
            self._write_waiting()
        self._end_segment()

    def append(self) -> tuple[int, int]:
        placed = [self._log.append_segment(segment) for segment in self._staged]
        return placed[0].base_offset, placed[-1].last_offset

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()
        for segment in self._staged:
            segment.staged.discard()

    def _write_waiting(self) -> None:
        if self._writer is None:
            self._writer = self._log.segment_writer(self._compression)
        whole = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        self._writer.write(whole)
        self._waiting, self._waiting_bytes = [], 0
        if self._writer.size_bytes >= self._segment_bytes:
            self._end_segment()

    def _end_segment(self) -> None:
        if self._writer is not None:
            self._staged.append(self._writer.finish())
            self._writer = None


def _records(batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
    """Return Spark's columns as the log's; missing ones are null, missing timestamps ``now``."""
    names = batch.schema.names
    rows = batch.num_rows

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return batch.column(name).cast(kind) if name in names else pa.nulls(rows, kind)

    timestamps = column("timestamp", TIMESTAMP_TYPE)
    if timestamps.null_count:
        timestamps = pc.fill_null(timestamps, pa.scalar(now_us, TIMESTAMP_TYPE))
    arrays: Iterable[pa.Array] = [
        column("key", pa.binary()),
        column("value", pa.binary()),
        column("headers", HEADERS_TYPE),
        timestamps,
    ]
    return pa.RecordBatch.from_arrays(list(arrays), schema=RECORD_SCHEMA)
