"""A batch that was fetched, and how far it has been handed out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_log.log import LogBatch
from spark_log.record.arrays import ints_of
from spark_log.record.schema import OFFSET_DELTA_FIELD
from spark_log.types import TopicPartition


class CompletedFetch:
    """Records of one partition between the fetcher and the user.

    Attributes:
        partition: where they are from.
        batch: as it was read; None where there was nothing to show: control batches, a gap.
        next_offset: where reading goes on behind it.
        size_bytes: what it holds in memory, of what is not mapped the decoded size.
    """

    __slots__ = ("_row", "batch", "next_offset", "partition", "size_bytes")

    def __init__(self, partition: TopicPartition, batch: LogBatch | None, next_offset: int) -> None:
        self.partition = partition
        self.batch = batch
        self.next_offset = next_offset
        self.size_bytes = 0 if batch is None else int(batch.records.nbytes)
        self._row = 0

    @property
    def rows_left(self) -> int:
        """How many records were not handed out yet."""
        return 0 if self.batch is None else int(self.batch.records.num_rows) - self._row

    def take(self, count: int) -> FetchedRows:
        """Hand out the next ``count`` records, or all that are left."""
        assert self.batch is not None
        start, count = self._row, min(count, self.rows_left)
        self._row += count
        size_bytes = self.size_bytes * count // int(self.batch.records.num_rows)
        return FetchedRows(self.partition, self.batch, start, count, self.next_offset, size_bytes)


class FetchedRows:
    """Some consecutive rows of a fetched batch.

    Attributes:
        partition: where they are from.
        batch: in which they are.
        start: the first row.
        count: how many rows, at least one.
        next_offset: where reading goes on behind them.
        size_bytes: about what they hold in memory.
    """

    __slots__ = ("batch", "count", "next_offset", "partition", "size_bytes", "start")

    def __init__(
        self,
        partition: TopicPartition,
        batch: LogBatch,
        start: int,
        count: int,
        behind: int,
        size_bytes: int,
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.start = start
        self.count = count
        self.size_bytes = size_bytes
        is_last = start + count == batch.records.num_rows
        self.next_offset = behind if is_last else int(self.offsets()[-1]) + 1

    def column(self, name: str) -> pa.Array:
        """Return a column of the log's schema."""
        return self.batch.records.column(name).slice(self.start, self.count)

    def offsets(self) -> np.ndarray:
        """Return the offset of every row, int64."""
        batch = self.batch
        if OFFSET_DELTA_FIELD.name in batch.records.schema.names:
            offsets: np.ndarray = ints_of(self.column(OFFSET_DELTA_FIELD.name), np.int32).astype(
                np.int64
            )
            offsets += batch.segment_base_offset
            return offsets
        first = batch.base_offset + self.start
        return np.arange(first, first + self.count)
