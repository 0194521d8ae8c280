"""Fetched batches, and the rows of them that a consumer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.log import LogBatch
from spark_log.record import OFFSET_DELTA_FIELD, SmallBatch, ints_of
from spark_log.types import TopicPartition

_TEXTS: Final = ("key", "value")

_BATCH_BYTES: Final = 1_024
"""Approximate memory of a batch without its records."""

_SEGMENT_BYTES: Final = 9_216
"""Approximate memory that Arrow keeps for a segment as long as one of its batches is held: ten
thousand segments of one record take 100 MB."""


class CompletedFetch:
    """One batch of one partition, and the number of its rows that were handed out.

    Attributes:
        partition: the partition of the batch.
        batch: the batch as it was read; None if no row is visible (a control batch, or a gap).
        next_offset: the offset after the batch, where reading continues.
        size_bytes: the size of the batch's records. For data that is not memory-mapped this is the
            decoded size.
        memory_bytes: the approximate memory that the batch holds: its records, the objects around
            them, and the segment, if the batch before it was read from another segment.
    """

    __slots__ = ("_row", "batch", "memory_bytes", "next_offset", "partition", "size_bytes")

    def __init__(
        self,
        partition: TopicPartition,
        batch: LogBatch | None,
        next_offset: int,
        previous: CompletedFetch | None = None,
    ) -> None:
        """Hold a batch of which no row was handed out.

        Args:
            partition: the partition of the batch.
            batch: the batch as it was read; None if no row is visible.
            next_offset: the offset after the batch.
            previous: the batch that was read before it in the same turn; None if it is the first.
        """
        self.partition = partition
        self.batch = batch
        self.next_offset = next_offset
        self.size_bytes = self.memory_bytes = 0
        if batch is not None:
            self.size_bytes = batch.size_bytes
            before = None if previous is None else previous.batch
            is_same = before and before.segment_base_offset == batch.segment_base_offset
            self.memory_bytes = self.size_bytes + _BATCH_BYTES + (0 if is_same else _SEGMENT_BYTES)
        self._row = 0

    @property
    def rows_left(self) -> int:
        """Number of rows that were not handed out yet."""
        return 0 if self.batch is None else self.batch.num_rows - self._row

    def take(self, max_rows: int) -> BatchSlice:
        """Hand out the next ``max_rows`` rows, or all rows that are left if they are fewer."""
        assert self.batch is not None
        start, count = self._row, min(max_rows, self.rows_left)
        self._row += count
        size_bytes = self.size_bytes * count // self.batch.num_rows
        return BatchSlice(self.partition, self.batch, start, count, self.next_offset, size_bytes)


class BatchSlice:
    """Consecutive rows of one fetched batch.

    Attributes:
        partition: the partition of the rows.
        batch: the batch that contains them.
        start: the index of the first row in the batch.
        count: the number of rows, at least one.
        next_offset: the offset after the rows, where reading continues.
        size_bytes: the approximate memory that the rows hold.
    """

    __slots__ = ("batch", "count", "next_offset", "partition", "size_bytes", "start")

    def __init__(
        self,
        partition: TopicPartition,
        batch: LogBatch,
        start: int,
        count: int,
        next_batch_offset: int,
        size_bytes: int,
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.start = start
        self.count = count
        self.size_bytes = size_bytes
        is_last = start + count == batch.num_rows
        self.next_offset = next_batch_offset if is_last else int(self.offsets()[-1]) + 1

    def column(self, name: str) -> pa.Array:
        """Return one column of the log's schema, without copying."""
        return self.batch.records.column(name).slice(self.start, self.count)

    def texts(self, name: str) -> Sequence[bytes | None]:
        """Return the bytes of each row in the column ``key`` or ``value``."""
        content = self.batch.content
        if isinstance(content, SmallBatch):
            return content.texts(_TEXTS.index(name))[self.start : self.start + self.count]
        # As fast as through numpy, and without importing pandas, which numpy conversion does.
        found: list[bytes | None] = self.column(name).to_pylist()
        return found

    def times_us(self) -> np.ndarray:
        """Return the timestamp of each row, int64 microseconds since the epoch."""
        content = self.batch.content
        if isinstance(content, SmallBatch):
            return content.times_us()[self.start : self.start + self.count]
        return ints_of(self.column("timestamp"), np.int64)

    @property
    def has_no_headers(self) -> bool:
        """Whether it is known that no row has headers."""
        return isinstance(self.batch.content, SmallBatch)

    def offsets(self) -> np.ndarray:
        """Return the offset of each row, int64."""
        batch = self.batch
        if batch.has_gaps:
            offsets: np.ndarray = ints_of(self.column(OFFSET_DELTA_FIELD.name), np.int32).astype(
                np.int64
            )
            offsets += batch.segment_base_offset
            return offsets
        first = batch.base_offset + self.start
        return np.arange(first, first + self.count)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Result of one `Fetcher.collect_fetch`.

    Attributes:
        rows: the fetched rows, in offset order within a partition.
        positions: partition → the offset at which reading continues after ``rows``. Partitions in
            which only invisible batches were read are included.
        failure: a partition that cannot be read further, and the reason. Only set if ``positions``
            is empty.
    """

    rows: list[BatchSlice]
    positions: dict[TopicPartition, int]
    failure: tuple[TopicPartition, Exception] | None = None

    def __bool__(self) -> bool:
        return bool(self.positions or self.failure)
