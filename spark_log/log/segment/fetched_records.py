"""Fetched rows of one partition with their offsets: all rows of a batch, or some of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from spark_log.log.segment.log_batch import LogBatch
from spark_log.record import bool_array, int_array, times_us_of


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Rows of one partition. In contrast to a `LogBatch`, any row can be missing.

    Attributes:
        partition: number of the partition.
        offsets: offset of each row, int64.
        records: columns of `RECORD_SCHEMA`.
        timestamp_type: 0 create time, 1 log append time.
        leader_epoch: leader epoch of all rows.
    """

    partition: int
    offsets: np.ndarray
    records: pa.RecordBatch
    timestamp_type: int
    leader_epoch: int

    @classmethod
    def of_batch(cls, partition: int, batch: LogBatch) -> Self:
        """Return all rows of a batch."""
        return cls(
            partition, batch.offsets(), batch.records, batch.timestamp_type, batch.leader_epoch
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def timestamps_us(self) -> np.ndarray:
        """Timestamps in microseconds since the epoch, int64."""
        return times_us_of(self.records)

    def where(self, mask: np.ndarray) -> Self:
        """Return the rows where the boolean ``mask`` is true."""
        return replace(
            self, offsets=self.offsets[mask], records=self.records.filter(bool_array(mask))
        )

    def take(self, rows: np.ndarray) -> Self:
        """Return the rows with these row numbers."""
        records = self.records.take(int_array(rows, pa.int64()))
        return replace(self, offsets=self.offsets[rows], records=records)

    def slice(self, start: int, count: int) -> Self:
        """Return at most ``count`` rows, from the row ``start`` on."""
        rows = self.records.slice(start, count)
        return replace(self, offsets=self.offsets[start : start + count], records=rows)

    def pieces(self, rows: int) -> Iterator[Self]:
        """Yield all rows, at most ``rows`` at a time."""
        for start in range(0, len(self), rows):
            yield self.slice(start, rows)
