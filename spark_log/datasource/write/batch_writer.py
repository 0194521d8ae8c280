"""The batch writer: ``df.write.format("spark_log")``."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_log.datasource.options import WriteOptions, warn_ignored_options
from spark_log.datasource.worker_process import (
    enter_worker,
    warn_exposed_secrets,
    without_traceback,
)
from spark_log.datasource.write.commit_message import TaskCommitMessage
from spark_log.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_log.datasource.write.open_root import OpenRoot


class LogBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame to topics.

    With ``joinTransaction`` the write is a part of a transaction that the caller commits. With
    ``transactional=true`` the write is one transaction, which the driver commits after the
    last task (docs/spark.md). Without a transaction the driver commits nothing: as with Spark's
    Kafka connector, records are visible when their task ends. A task that runs again, or twice at
    the same time, appends its records once (ADR 8): the driver creates the writer, and the writer
    carries the write's identity to all tasks.

    Methods import what they need: the process that commits a write imports this module, too.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Check the columns and the topic, and create the topic if the options say so.

        Args:
            schema: the DataFrame's schema.
            options: parsed options of a write.

        Raises:
            InvalidRecordError: a column is missing or has an unsupported type.
            UnknownTopicOrPartitionError, RootNotFoundError: the topic or the root does not exist,
                and is not to be created.
            InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: the topic cannot
                be created.
            InvalidOptionError: the directory for the summary does not exist.
        """
        from spark_log.datasource.write.columns import check_columns
        from spark_log.datasource.write.target_topic import prepare_topic

        column_warnings = check_columns(schema, options.topic)
        warn_ignored_options(options.ignored, [*options.warnings, *column_warnings])
        if options.summary_path and not Path(options.summary_path).absolute().parent.is_dir():
            raise InvalidOptionError(
                f"option 'summaryPath' is {options.summary_path!r}, expected a file in a directory "
                f"that exists on the driver",
                key="summaryPath",
            )
        self._options = options
        # A generated id is unique. A write that runs again gives txnAppId and txnVersion again.
        self._write_id, self._number = options.transaction or (uuid.uuid4().hex, 0)
        prepare_topic(options)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from spark_log.datasource.write.identity import WriteIdentity
        from spark_log.datasource.write.task_writer import TaskWriter

        enter_worker()
        warn_exposed_secrets(self._options)
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        identity = WriteIdentity(self._write_id, self._number, task, is_stream=False)
        with TaskWriter(self._options, identity) as writer:
            return writer.write(iterator)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the write's own transaction, and write the summary, if the options say so."""
        if self._ends_transaction:
            from spark_log.datasource.write.job_transaction import commit_transaction

            with self._root() as root:
                commit_transaction(root, messages, self._number)
        if self._options.summary_path is not None:
            written = [message for message in messages if isinstance(message, TaskCommitMessage)]
            _write_atomically(
                Path(self._options.summary_path), json.dumps(summary_of(written)) + "\n"
            )

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the write's own transaction; without one, appended records stay."""
        if self._ends_transaction:
            from spark_log.datasource.write.job_transaction import abort_transaction

            with self._root() as root:
                abort_transaction(root, messages)

    @property
    def _ends_transaction(self) -> bool:
        return self._options.transactional and self._options.external_transaction is None

    def _root(self) -> OpenRoot:
        from spark_log.datasource.write.open_root import OpenRoot

        return OpenRoot.acquire(
            self._options.root, self._options.storage_options, self._options.broker_options
        )


def summary_of(tasks: Sequence[TaskCommitMessage]) -> dict[str, Any]:
    """Return the summary of a write, as a JSON document.

    It contains the number of records, of records that an earlier attempt had appended, of bytes in
    segments, and of tasks; and for each partition the number of records, first and last offset.
    Records of other producers may be between these offsets. If the write joined a transaction, the
    summary contains the producer (id and epoch) of each task.
    """
    results = [result for task in tasks for result in task.results.values()]
    topics: dict[str, dict[str, dict[str, int]]] = {}
    pairs = (pair for task in tasks for pair in task.results.items())
    for tp, result in sorted(pairs, key=lambda pair: pair[0]):
        found = topics.setdefault(tp.topic, {}).setdefault(str(tp.partition), {})
        found["records"] = found.get("records", 0) + result.records
        if result.first_offset >= 0:
            found["firstOffset"] = min(result.first_offset, found.get("firstOffset", 2**63))
            found["lastOffset"] = max(result.last_offset, found.get("lastOffset", -1))
    producers = [
        {
            "producerId": task.joined.producer.producer_id,
            "producerEpoch": task.joined.producer.producer_epoch,
        }
        for task in tasks
        if task.joined is not None
    ]
    return {
        "records": sum(result.records for result in results),
        "repeatedRecords": sum(result.repeated for result in results),
        "bytes": sum(result.size_bytes for result in results),
        "tasks": len(tasks),
        "topics": topics,
        **({"producers": producers} if producers else {}),
    }


def _write_atomically(path: Path, text: str) -> None:
    """Write a file atomically, by a rename."""
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    staged.write_text(text, "utf-8")
    os.replace(staged, path)
