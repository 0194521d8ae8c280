"""The stream writer: ``df.writeStream.format("spark_log")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_log.datasource.options import WriteOptions, warn_ignored_options
from spark_log.datasource.worker_process import (
    enter_worker,
    warn_exposed_secrets,
    without_traceback,
)
from spark_log.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_log.datasource.write.identity import WriteIdentity
    from spark_log.datasource.write.open_root import OpenRoot

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch of a streaming query to topics, once (ADR 8).

    Records are visible when their task ends. If a micro-batch runs again after a crash of a task or
    of the driver, in any process, its records are detected by the query's id and the micro-batch's
    number; both are in the checkpoint. All output modes are accepted, and all of them append.

    With ``transactional=true`` a micro-batch is one transaction, which the driver commits after the
    last task (docs/spark.md): readers with ``read_committed`` see all of it or nothing.

    Methods import what they need: the process that commits a micro-batch imports this module, too.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Check the columns and the topic, and create the topic if the options say so.

        Spark creates a writer for every micro-batch, and another one for its commit.

        Args:
            schema: the DataFrame's schema.
            options: parsed options of a write.

        Raises:
            InvalidRecordError: a column is missing or has an unsupported type.
            InvalidOptionError: an option is for batch writes only.
            UnknownTopicOrPartitionError, RootNotFoundError: the topic or the root does not exist,
                and is not to be created.
            InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: the topic cannot
                be created.
        """
        from spark_log.datasource.write.columns import check_columns
        from spark_log.datasource.write.target_topic import prepare_topic

        self._warnings = [*options.warnings, *check_columns(schema, options.topic)]
        if options.summary_path is not None:
            raise InvalidOptionError(
                "option 'summaryPath' is for batch writes; for a streaming query see "
                "query.lastProgress",
                key="summaryPath",
            )
        if options.external_transaction is not None:
            raise InvalidOptionError(
                "option 'joinTransaction' is for batch writes; set transactional=true, and each "
                "micro-batch is a transaction",
                key="joinTransaction",
            )
        self._options = options
        prepare_topic(options)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from spark_log.datasource.write.task_writer import TaskWriter

        enter_worker()
        warn_exposed_secrets(self._options)
        with TaskWriter(self._options, _identity()) as writer:
            return writer.write(iterator)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the transaction; without one do nothing: the tasks have appended the records."""
        self._warn(batchId)
        if self._options.transactional:
            from spark_log.datasource.write.job_transaction import commit_transaction

            with self._root() as root:
                commit_transaction(root, messages, batchId)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transaction; without one do nothing.

        Appended records of an idempotent write stay, and are detected when the micro-batch runs
        again.
        """
        self._warn(batchId)
        if self._options.transactional:
            from spark_log.datasource.write.job_transaction import abort_transaction

            with self._root() as root:
                abort_transaction(root, messages)

    def _warn(self, batch_id: int) -> None:
        """Warn of options without effect, in the first micro-batch of a query.

        `commit` and `abort` call this, because they run on the driver, whose output users read.
        """
        if batch_id == 0:
            warn_ignored_options(self._options.ignored, self._warnings)

    def _root(self) -> OpenRoot:
        from spark_log.datasource.write.open_root import OpenRoot

        return OpenRoot.acquire(
            self._options.root, self._options.storage_options, self._options.broker_options
        )


def _identity() -> WriteIdentity:
    """Return the task's identity, from the local properties that Spark sets for a micro-batch."""
    from spark_log.datasource.write.identity import WriteIdentity

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if context is None or not query or batch is None:
        raise RuntimeError(
            f"this thread is not in a task of a streaming query: {_QUERY_ID} is {query}, "
            f"{_BATCH_ID} is {batch}; Spark sets both in each task of a micro-batch"
        )
    return WriteIdentity(query, int(batch), context.partitionId(), is_stream=True)
