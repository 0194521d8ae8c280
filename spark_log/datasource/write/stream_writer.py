"""Streaming writes: ``df.writeStream.format("spark_log")``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_log.datasource.options.kafka_options import warn_ignored_options
from spark_log.datasource.options.options import WriteOptions
from spark_log.datasource.worker_process import warn_exposed_secrets, without_traceback
from spark_log.datasource.write.columns import check_columns
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.task_writer import TaskWriter
from spark_log.errors import InvalidOptionError
from spark_log.metadata import Cluster

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch of a streaming query to topics, once (ADR 8).

    Records are visible when their task ends. A micro-batch that is run again, after a task or the
    driver died, by whatever process, finds what it has appended by the query's id and its own:
    both come from the checkpoint. All output modes are taken, and all append.
    """

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Args: schema: the DataFrame's; options: checked ones.

        Spark makes a new one for every micro-batch, and another for its commit.

        Raises:
            InvalidRecordError: a column is missing or has a type that the log does not take.
            UnknownTopicOrPartitionError: the topic does not exist.
            RootNotFoundError: nor does the root.
        """
        passed_over = check_columns(schema, options.topic)
        self._warnings = [*options.warnings, *passed_over]
        if options.summary_path is not None:
            raise InvalidOptionError(
                "option 'summaryPath' is for batch writes; what a streaming query did is in its "
                "progress",
                key="summaryPath",
            )
        self._options = options
        cluster = Cluster(options.root, options.storage_options)
        if options.topic is not None:
            cluster.topic(options.topic)

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        warn_exposed_secrets(self._options.storage_options)
        identity = _identity()
        if identity.batch_id == 0 and identity.task == 0:
            warn_ignored_options(self._options.ignored, self._warnings)
        with TaskWriter(self._options, identity) as writer:
            return writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays: the micro-batch finds it when it is run again."""


def _identity() -> WriteIdentity:
    """Return who writes here, from what Spark tells every task of a micro-batch."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_ID)
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if context is None or not query or batch is None:
        raise RuntimeError("a streaming write runs in a task of a streaming query")
    return WriteIdentity(query, int(batch), context.partitionId(), is_stream=True)
