"""The stream reader: Spark calls it in the query's own Python process and in tasks.

Spark creates the reader in both, and pickles it to the tasks. Until the driver asks for offsets, it
therefore contains only its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_log.cluster import open_cluster
from spark_log.datasource.options import ReadOptions, warn_ignored_options
from spark_log.datasource.read import check_columns, read_in_task
from spark_log.datasource.stream.micro_batch_planner import MicroBatchPlanner
from spark_log.datasource.stream.read_limits import default_read_limit
from spark_log.datasource.stream.stream_offset import OffsetDocument, StreamOffset
from spark_log.datasource.worker_process import without_traceback
from spark_log.util import SYSTEM_CLOCK

if TYPE_CHECKING:
    from spark_log.datasource.stream.group_progress import GroupProgress


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as micro-batches, with the offsets of Spark's Kafka connector.

    With ``group.id`` it reports the processed offsets to a consumer group. It does so when the next
    trigger asks for offsets: everything before the offset that Spark passes has been processed.
    With ``Trigger.AvailableNow`` Spark asks once more after the last batch, while it calls `commit`
    only if another batch follows. After ``Trigger.Once``, or if a query is stopped right after a
    batch, Spark does not ask; the next run then reports this batch first.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Check the columns; reads nothing yet.

        Args:
            schema: columns to read, any subset in any order.
            options: parsed options of a stream.

        Raises:
            InvalidOptionError: a column does not exist or has another type.
        """
        self._columns = check_columns(schema)
        self._options = options
        self._batches: MicroBatchPlanner | None = None
        self._progress: GroupProgress | None = None
        self._start: tuple[dict[str, Any], StreamOffset, OffsetDocument] | None = None

    @without_traceback
    def initialOffset(self) -> OffsetDocument:
        """Return the offset at which a query without a checkpoint starts."""
        return self._driver().initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of ``maxOffsetsPerTrigger`` or ``minOffsetsPerTrigger``, if set."""
        return default_read_limit(self._options)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the current end of the log as the end of this run."""
        self._driver().prepare_available_now()

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetDocument:
        """Return the end of the next batch; everything before ``start`` has been processed."""
        if self._start is None or self._start[0] != start:
            begin = StreamOffset.from_document(start)
            self._start = start, begin, begin.to_document()
        _, begin, document = self._start
        self._report(begin)
        end = self._driver().next_end(begin, limit)
        # Spark asks an idle query all the time, so the document is not built again.
        return document if end is begin else end.to_document()

    @without_traceback
    def reportLatestOffset(self) -> OffsetDocument | None:
        """Return the end of the log, with the lag in time, for the query's progress."""
        return self._driver().latest()

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the input splits of a batch."""
        return self._driver().splits(
            StreamOffset.from_document(start), StreamOffset.from_document(end)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of a split; runs in a task."""
        return read_in_task(partition, self._columns, self._options)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """Report the end of a batch to the consumer group, unless it was reported before."""
        self._report(StreamOffset.from_document(end))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batches": None, "_progress": None, "_start": None}

    def _driver(self) -> MicroBatchPlanner:
        if self._batches is None:
            # Here and not where the reader is made: Spark makes it in two processes of the driver.
            warn_ignored_options(self._options.ignored)
            self._batches = MicroBatchPlanner(self._options, SYSTEM_CLOCK)
        return self._batches

    def _report(self, processed: StreamOffset) -> None:
        if self._options.group_id is None or self._driver().is_initial(processed):
            return
        if self._progress is None:
            # Imported here: Delta takes a third of a second to import, and tasks do not need it.
            from spark_log.datasource.stream.group_progress import GroupProgress

            cluster = open_cluster(
                self._options.root,
                self._options.storage_options,
                broker_options=self._options.broker_options,
            )
            self._progress = GroupProgress(cluster, self._options.group_id)
        self._progress.report(processed, self._driver().topic_ids)
