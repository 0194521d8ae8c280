"""Writes the rows of a Spark task.

A task streams its rows into staged segments, and appends them to the logs only after its last row.
If a row is invalid or the disk is full, nothing of the task is visible.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from spark_log.datasource.options import WriteOptions
from spark_log.datasource.write.append_all import append_all
from spark_log.datasource.write.columns import given_columns
from spark_log.datasource.write.commit_message import TaskCommitMessage, WriteResult
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.datasource.write.partition_chooser import PartitionChooser
from spark_log.datasource.write.partition_writer import PartitionWriter
from spark_log.datasource.write.record_buffers import MEMORY_POOL, RecordBuffers
from spark_log.datasource.write.task_transaction import TaskTransaction
from spark_log.errors import InvalidRecordError
from spark_log.log import ALL
from spark_log.metadata import TopicImage
from spark_log.record import int_array
from spark_log.transaction import TopicIdPartition, batch_timeout_ms
from spark_log.types import TopicPartition
from spark_log.util import SYSTEM_CLOCK

_log = logging.getLogger(__name__)


class TaskWriter:
    """Writes the rows of one task. A context manager, which removes staged segments on exit."""

    def __init__(
        self,
        options: WriteOptions,
        identity: WriteIdentity,
        *,
        buffers: RecordBuffers | None = None,
    ) -> None:
        """Start without a row.

        Args:
            options: parsed options of the write.
            identity: identity by which repeated records, or the transaction, are detected; ignored
                if the write is neither idempotent nor transactional.
            buffers: buffers with other limits than the default ones.
        """
        self._options = options
        self._identity = identity
        self._root = OpenRoot.acquire(options.root, options.storage_options, options.broker_options)
        self._now_us = SYSTEM_CLOCK.time_us()
        self._topics: dict[str, _TopicRouter] = {}
        self._writers: dict[TopicPartition, PartitionWriter] = {}
        self._buffers = buffers or RecordBuffers()
        self._transaction: TaskTransaction | None = None
        if options.transactional:
            config = self._root.image.cluster_config()
            timeout_ms = batch_timeout_ms(config, options.transaction_timeout_ms)
            self._transaction = TaskTransaction(
                self._root, identity, options.topic, timeout_ms, options.external_transaction
            )

    def __enter__(self) -> TaskWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, *details: object) -> None:
        self._buffers.discard()
        for writer in self._writers.values():
            writer.discard()
        self._root.__exit__(error, *details)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
        """Write all rows of a task; the records are in the log on return.

        All rows are read, also those of a micro-batch that is committed already: the operators that
        compute them may have state.
        """
        for batch in batches:
            self.add(batch)
        return self.commit()

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage rows.

        Args:
            batch: rows with columns that `check_columns` has accepted.

        Raises:
            InvalidRecordError: a row has no topic, or its topic refuses it.
            TransactionAbortableError: others have aborted the transaction.
            InvalidPartitionsError: a row names a partition that its topic does not have.
            UnknownTopicOrPartitionError: a row names a topic that does not exist.
            StorageFullError: the storage is full.
        """
        if not batch.num_rows or (self._transaction and self._transaction.is_committed):
            return
        records = given_columns(batch)
        explicit = batch.column("partition") if "partition" in batch.schema.names else None
        if self._options.topic is not None:
            self._topic(self._options.topic).add(records, explicit)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise InvalidRecordError(
                f"{topics.null_count} rows have a null topic; fill the column 'topic', or set the "
                f"option 'topic'"
            )
        import pyarrow.compute as pc

        for name in topics.unique().to_pylist():
            rows = pc.equal(topics, name)
            chosen = None if explicit is None else explicit.filter(rows)
            self._topic(name).add(records.filter(rows), chosen)

    def commit(self) -> TaskCommitMessage:
        """Append the staged records, and return the results.

        If an error is raised, records appended before it stay. They are detected when the task runs
        again, or their transaction is aborted.

        Raises:
            TransactionAbortableError: others have aborted the transaction.
            NotRepeatableError: an earlier attempt has appended other records.
            InvalidProducerEpochError: a later micro-batch of the query has written.
            UnknownOutcomeError: it is unknown whether all records are in the log.
            StorageError: some records were not appended.
        """
        self._buffers.finish()
        if self._transaction is None:
            return TaskCommitMessage(self._append())
        self._transaction.register()
        with self._transaction.explained():
            return TaskCommitMessage(self._append(), self._transaction.joined)

    def _append(self) -> dict[TopicPartition, WriteResult]:
        ordered = sorted(self._writers)
        append_all(self._writers[name] for name in ordered)
        results = {name: self._writers[name].result() for name in ordered}
        for writer in self._writers.values():
            writer.catch_up()
        for tp, result in results.items():
            _log.debug(
                "task %d of write %s: %s has %d records from offset %d, %d of them from an earlier "
                "attempt",
                self._identity.task,
                self._identity.write,
                tp,
                result.records,
                result.first_offset,
                result.repeated,
            )
        return results

    def partition_writer(self, topic: TopicImage, partition: int) -> PartitionWriter:
        """Return the task's writer for a partition."""
        name = TopicPartition(topic.name, partition)
        if name not in self._writers:
            producer, acks = None, self._options.acks_of(topic.name)
            if self._transaction is not None:
                self._transaction.add(TopicIdPartition(topic.topic_id, partition))
            elif self._options.idempotent and acks == "all":
                producer_id = self._identity.producer_id(topic.topic_id, partition)
                producer = (producer_id, self._identity.producer_epoch)
            self._writers[name] = PartitionWriter(
                self._root.partition_log(topic, partition),
                compression=self._options.compression,
                acks=ALL if acks == "all" else 1,
                producer=producer,
                transaction=self._transaction,
                now_us=self._now_us,
            )
        return self._writers[name]

    def _topic(self, name: str) -> _TopicRouter:
        if name not in self._topics:
            self._topics[name] = _TopicRouter(
                self, self._root.image.topic(name), self._buffers, self._identity.task
            )
        return self._topics[name]


class _TopicRouter:
    """Distributes the records of one topic to the writers of its partitions."""

    def __init__(
        self, task: TaskWriter, topic: TopicImage, buffers: RecordBuffers, first_partition: int
    ) -> None:
        self._task = task
        self._topic = topic
        self._buffers = buffers
        self._chooser = PartitionChooser(topic.name, topic.num_partitions, first_partition)

    def add(self, records: pa.RecordBatch, explicit: pa.Array | None) -> None:
        has_key = "key" in records.schema.names
        keys = records.column("key") if has_key else pa.nulls(records.num_rows, pa.binary())
        partitions = self._chooser.choose(keys, explicit)
        if (partitions == partitions[0]).all():
            writer = self._task.partition_writer(self._topic, int(partitions[0]))
            self._buffers.add(records, iter([(writer, 0, len(partitions))]))
            return
        import pyarrow.compute as pc  # imported here: the driver does not need it

        # numpy sorts 8- and 16-bit integers by a radix sort, which is stable and takes linear time.
        narrow = partitions.astype(np.min_scalar_type(self._topic.num_partitions - 1))
        order = np.argsort(narrow, kind="stable")
        rows = int_array(order, pa.int64())
        sorted_records = pc.take(records, rows, boundscheck=False, memory_pool=MEMORY_POOL)
        self._buffers.add(sorted_records, self._parts(partitions[order]))

    def _parts(self, partitions: np.ndarray) -> Iterator[tuple[PartitionWriter, int, int]]:
        starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(partitions)], strict=True):
            writer = self._task.partition_writer(self._topic, int(partitions[start]))
            yield writer, start, end
