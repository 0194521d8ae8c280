"""The batch source: plans on the driver, reads in tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.member_splits import PartitionOwners, group_by_member, splits_in
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.record_filter import EVERYTHING, RecordFilter
from spark_log.datasource.read.schema import check_columns
from spark_log.datasource.read.split_reader import read_split
from spark_log.datasource.read.splits import plan_splits
from spark_log.datasource.worker_process import (
    hide_traceback,
    silence_broken_pipe,
    warn_exposed_secrets,
    without_traceback,
)

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class LogBatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    Offsets are fixed when the query is planned, so that tasks that are tried again, and joins of
    the DataFrame with itself, read the same records.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Args: schema: the columns wanted, any subset in any order; options: checked ones.

        Raises:
            InvalidOptionError: a column does not exist or has another type.
        """
        self._columns = check_columns(schema)
        self._options = options
        self._where = EVERYTHING

    @without_traceback
    def partitions(self) -> Sequence[InputPartition]:
        """See `plan_splits`, and with ``partition.assignment.strategy`` `PartitionOwners`."""
        splits = plan_splits(self._options, self._where)
        strategy = self._options.assignor
        if strategy is None:
            return splits
        owners = PartitionOwners(strategy, self._options.min_partitions)
        return group_by_member(splits, owners, OffsetReader(self._options).partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the split's records."""
        silence_broken_pipe()
        warn_exposed_secrets(self._options.storage_options)
        with hide_traceback():
            for split in splits_in(partition):
                yield from read_split(split, self._columns, self._options)


class FilteringBatchReader(LogBatchReader):
    """Takes over filters on ``topic``, ``partition``, ``offset`` and ``timestamp``.

    Spark refuses a reader that can do so unless ``spark.sql.python.filterPushdown.enabled`` is
    true, and some versions of it mix up what such readers plan: see `batch_reader_class`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over filters; returns those that Spark has to apply to what is read."""
        self._where, left = RecordFilter.from_filters(filters)
        return left


def batch_reader_class() -> type[LogBatchReader]:
    """Return the reader for this query.

    Spark 4.2.0 and 4.3.0 keep what a reader planned with filters in the DataFrame's *source*
    (``PythonDataSourceV2.setReadInfo``), where every other scan of it finds that too: after
    ``df.where("partition = 1").count()``, ``df.count()`` would count partition 1 alone, and a union
    of two filtered reads would read one of them twice. So no filter is taken over there, and Spark
    applies them all. The version that keeps it with the scan is known by ``pushLimit``, which came
    with that.

    No setting of the session reaches the process that plans a query. Which of Spark's two modules
    runs in it tells: the one that pushes filters down is started only when that is switched on.
    """
    if not hasattr(DataSourceReader, "pushLimit"):
        return LogBatchReader
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == _PUSHDOWN_WORKER
    return FilteringBatchReader if pushes else LogBatchReader
