"""The batch reader: plans input splits on the driver and reads records in tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_log.datasource.options import ReadOptions
from spark_log.datasource.read.record_filter import EVERYTHING, RecordFilter
from spark_log.datasource.read.schema import check_columns
from spark_log.datasource.read.task_reader import read_in_task
from spark_log.datasource.worker_process import without_traceback

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class LogBatchReader(DataSourceReader):
    """Batch reader of ``format("spark_log")``.

    Offsets are resolved when the query is planned. Task retries, and joins of a DataFrame with
    itself, therefore read the same records.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Check the columns; reads nothing yet.

        Args:
            schema: columns to read, any subset in any order.
            options: parsed options of a batch.

        Raises:
            InvalidOptionError: a column does not exist or has another type.
        """
        self._columns = check_columns(schema)
        self._options = options
        self._where = EVERYTHING

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """Return the input splits, one per task.

        With ``partition.assignment.strategy`` each split is a `MemberSplit` of whole partitions.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            InvalidOptionError: the offsets do not match the partitions, or end before they start.
            OffsetOutOfRangeError: offsets to read do not exist, and ``failOnDataLoss`` is true.
        """
        # Imported here: tasks import this module, and do not plan.
        from spark_log.datasource.read.member_splits import PartitionOwners, group_by_member
        from spark_log.datasource.read.offset_reader import OffsetReader
        from spark_log.datasource.read.splits import plan_splits

        splits = plan_splits(self._options, self._where)
        strategy = self._options.assignor
        if strategy is None:
            return splits
        owners = PartitionOwners(strategy, self._options.min_partitions)
        reader = OffsetReader(self._options)
        return group_by_member(splits, owners, reader.partitions(), reader.stripes())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of a split; runs in a task."""
        return read_in_task(partition, self._columns, self._options)


class FilteringBatchReader(LogBatchReader):
    """Batch reader with pushdown of filters on topic, partition, offset and timestamp.

    Spark refuses a reader with `pushFilters` unless ``spark.sql.python.filterPushdown.enabled`` is
    true, and some versions of Spark mix up the plans of such readers. `batch_reader_class` decides
    whether this class is used.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept filters, and return the filters that Spark has to apply itself."""
        self._where, left = RecordFilter.from_filters(filters)
        return left


def batch_reader_class() -> type[LogBatchReader]:
    """Return the reader class for this query.

    Spark 4.2.0 and 4.3.0 store the plan of a reader with filters in the DataFrame's *source*
    (``PythonDataSourceV2.setReadInfo``), where every other scan of the source uses it as well:
    after ``df.where("partition = 1").count()``, ``df.count()`` would count partition 1 only, and a
    union of two filtered reads would read one of them twice. With these versions no filter is
    pushed down, and Spark applies all of them. Versions that store the plan with the scan are
    detected by ``pushLimit``, which was added in the same version.

    The process that plans a query does not see the session's settings. Its main module tells
    whether pushdown is enabled: Spark starts the worker that pushes filters down only in that case.
    """
    if not hasattr(DataSourceReader, "pushLimit"):
        return LogBatchReader
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == _PUSHDOWN_WORKER
    return FilteringBatchReader if pushes else LogBatchReader
