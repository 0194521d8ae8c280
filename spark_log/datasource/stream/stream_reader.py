"""The streaming source: what Spark calls, in the query's own Python process and in tasks.

The reader is made in both, and what reads is pickled to the tasks: so it holds nothing but its
options until the driver asks for offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_log.clock import SYSTEM_CLOCK
from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.member_splits import splits_in
from spark_log.datasource.read.schema import check_columns
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.stream.micro_batch_planner import MicroBatchPlanner
from spark_log.datasource.stream.read_limits import default_read_limit
from spark_log.datasource.stream.stream_offset import OffsetDocument, StreamOffset
from spark_log.datasource.worker_process import (
    hide_traceback,
    silence_broken_pipe,
    warn_exposed_secrets,
    without_traceback,
)
from spark_log.metadata import Cluster

if TYPE_CHECKING:
    from spark_log.datasource.stream.group_progress import GroupProgress


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as micro-batches, with the offsets of Spark's Kafka connector.

    With ``group.id`` it reports what has been processed when the next trigger asks for offsets:
    where it asks from has been processed. That comes after the last batch too: with
    ``Trigger.AvailableNow`` Spark asks once more before it ends, while it calls `commit` only when
    another batch follows. After ``Trigger.Once``, or when a query is stopped right behind a batch,
    nobody asks: the next run reports it first of all.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Args: schema: the columns wanted; options: checked ones of a stream.

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
        """See `MicroBatchPlanner.initial`."""
        return self._driver().initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """See `default_read_limit`."""
        return default_read_limit(self._options)

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:
        """See `MicroBatchPlanner.prepare_available_now`."""
        self._driver().prepare_available_now()

    @without_traceback
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetDocument:
        """See `MicroBatchPlanner.next_end`. What lies before ``start`` has been processed."""
        if self._start is None or self._start[0] != start:
            begin = StreamOffset.from_document(start)
            self._start = start, begin, begin.to_document()
        _, begin, document = self._start
        self._report(begin)
        end = self._driver().next_end(begin, limit)
        # While nothing comes Spark asks for this all the time, however many partitions there are.
        return document if end is begin else end.to_document()

    @without_traceback
    def reportLatestOffset(self) -> OffsetDocument | None:
        """See `MicroBatchPlanner.latest`."""
        return self._driver().latest()

    @without_traceback
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See `MicroBatchPlanner.splits`."""
        return self._driver().splits(
            StreamOffset.from_document(start), StreamOffset.from_document(end)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a split's records; in a task."""
        silence_broken_pipe()
        warn_exposed_secrets(self._options.storage_options)
        with hide_traceback():
            for split in splits_in(partition):
                yield from read_split(split, self._columns, self._options)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """Report it, where it was not: the batch that ends here is done."""
        self._report(StreamOffset.from_document(end))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batches": None, "_progress": None, "_start": None}

    def _driver(self) -> MicroBatchPlanner:
        if self._batches is None:
            self._batches = MicroBatchPlanner(self._options, SYSTEM_CLOCK)
        return self._batches

    def _report(self, processed: StreamOffset) -> None:
        if self._options.group_id is None or self._driver().is_initial(processed):
            return
        if self._progress is None:
            # Imported here: Delta takes a third of a second, and a task never needs it.
            from spark_log.datasource.stream.group_progress import GroupProgress

            cluster = Cluster(self._options.root, self._options.storage_options)
            self._progress = GroupProgress(cluster, self._options.group_id)
        self._progress.report(processed, self._driver().topic_ids)
