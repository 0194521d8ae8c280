"""A read of one partition's log that continues from fetch to fetch, as Kafka's record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_log.gateway.record_batches import (
    HEADER_BYTES,
    BatchTarget,
    control_batch,
    encoded_sizes,
    from_arrow,
)
from spark_log.log import IsolationLevel, LogBatch, PartitionLog
from spark_log.record import EndTransactionMarker

PIECE_BYTES = 1_048_576
"""Largest size of the batches that large Arrow batches are cut into, but for a larger record."""

_SKIP_BYTES = HEADER_BYTES + 21
"""Largest size of a control batch."""

_MAX_OFFSET_DELTA = 2**31 - 1

_NO_OFFSETS, _NO_ROWS = np.empty(0, np.int64), np.zeros(1, np.int64)


@dataclass(slots=True)
class _Piece:
    """Rows that become one batch.

    Attributes:
        records: the rows.
        offsets: the offset of each row.
        batch: the batch of the log that they are a part of.
    """

    records: pa.RecordBatch
    offsets: np.ndarray
    batch: LogBatch


class LogCursor:
    """Reads on from an offset. For one thread at a time.

    Offsets without a record that a client gets (markers, aborted batches, records that a compaction
    removed) lie between two batches, or belong to the range of the batch before them. Where markers
    are among them, a control batch ends with the last of them, as in Kafka: librdkafka moves its
    position by records alone, and would show a lag behind a marker at the log's end. If an answer
    would have nothing else, it has a control batch over them, so that every client moves on:
    kafkajs would not move on by an empty batch.

    Attributes:
        next_offset: the offset that the next read begins at.
        isolation_level: ``read_committed`` ends at the last stable offset, and leaves out aborted
            batches.
        is_at_end: whether the log ended at `next_offset` when the last read ended. A read may also
            end inside of a segment: at its limit of bytes, or where an open transaction begins.
        is_late: whether the last read ended because its time was over.
    """

    def __init__(self, log: PartitionLog, offset: int, isolation_level: IsolationLevel) -> None:
        """Return a cursor; nothing is read yet.

        Args:
            log: the partition's log, which nobody else uses.
            offset: the first offset to read.
            isolation_level: see above.
        """
        self.next_offset = offset
        self.isolation_level = isolation_level
        self.is_at_end = False
        self.is_late = False
        self._log = log
        self._stream: Iterator[tuple[LogBatch | None, int]] | None = None
        self._batch: LogBatch | None = None
        self._offsets = _NO_OFFSETS
        self._is_after_marker = False
        self._row = 0
        self._ends_bytes = _NO_ROWS  # the size of all rows before each row
        self._following = offset

    @property
    def held_bytes(self) -> int:
        """The size of the records that were read from the log, and not all returned yet."""
        if self._batch is None:
            return 0
        return int(self._batch.records.nbytes + self._offsets.nbytes + self._ends_bytes.nbytes)

    def read(
        self, max_bytes: int, has_time: Callable[[], bool] = lambda: True
    ) -> list[bytes | bytearray]:
        """Return the next batches; none at the log's end.

        Args:
            max_bytes: the largest size of all batches. There is at least one record, of any size.
            has_time: returns whether to look for more than what was found so far.

        Raises:
            OffsetOutOfRangeError: the next offset is not in the log.
            CorruptRecordError: a segment is damaged.
            StorageError: the log cannot be read.
        """
        self.is_at_end = self.is_late = False
        begin = self.next_offset
        done, size_bytes = begin, 0  # offsets before `done` are in the batches
        parts: list[bytes | bytearray] = []
        pending: _Piece | None = None
        markers_end = -1  # the offset after markers that need a control batch from `done` on
        while size_bytes < max_bytes:
            if self._batch is None and not self._next_batch(begin, has_time):
                break
            if self._batch is None:  # offsets without a record
                has_room = markers_end >= 0 or size_bytes + _SKIP_BYTES <= max_bytes
                if self._is_after_marker and has_room:
                    size_bytes += 0 if markers_end >= 0 else _SKIP_BYTES
                    markers_end = self.next_offset
                continue
            rows = self._rows_within(max_bytes - size_bytes)
            if not rows:
                if pending is not None or markers_end >= 0:
                    break
                rows = 1
            if pending is not None:
                parts.append(_encoded(pending, int(pending.offsets[-1])))
            if markers_end >= 0:
                parts.append(skipping_batch(done, markers_end))
                markers_end = -1
            size_bytes += HEADER_BYTES + self._size_bytes(rows)
            pending = self._take(rows)
            done = int(pending.offsets[-1]) + 1
        if markers_end >= 0:
            if pending is not None:
                parts.append(_encoded(pending, done - 1))
            parts.append(skipping_batch(done, self.next_offset))
        elif pending is not None:
            parts.append(_encoded(pending, self.next_offset - 1))
        elif self.next_offset > done:
            parts.append(skipping_batch(done, self.next_offset))
        return parts

    def _next_batch(self, begin: int, has_time: Callable[[], bool]) -> bool:
        """Move to the next batch, or past offsets without a record.

        Returns:
            False at the log's end, and if the time is over and anything was found since ``begin``.
        """
        if self.next_offset > begin and not has_time():
            self.is_late = True
            return False
        if self._stream is None:
            self._stream = self._log.stream(self.next_offset, isolation_level=self.isolation_level)
        found = next(self._stream, None)
        if found is None:
            self._stream = None
            is_committed = self.isolation_level == "read_committed"
            self.is_at_end = not is_committed or self._log.blocking_transaction is None
            return False
        batch, following = found
        self._is_after_marker = batch is not None and batch.is_control
        if batch is None or batch.is_control or not batch.records.num_rows:
            self.next_offset = following
            return True
        self._batch, self._row, self._following = batch, 0, following
        self._offsets = batch.offsets()
        sizes = encoded_sizes(
            batch.records, self._offsets, splits_at_times=bool(batch.timestamp_type)
        )
        self._ends_bytes = np.concatenate([[0], np.cumsum(sizes)])
        return True

    def _rows_within(self, max_bytes: int) -> int:
        """Return the number of the next rows that a batch of this size has room for."""
        limit_bytes = self._ends_bytes[self._row] + min(max_bytes, PIECE_BYTES) - HEADER_BYTES
        found = int(np.searchsorted(self._ends_bytes, limit_bytes, side="right")) - 1 - self._row
        return max(0, found)

    def _size_bytes(self, rows: int) -> int:
        return int(self._ends_bytes[self._row + rows] - self._ends_bytes[self._row])

    def _take(self, rows: int) -> _Piece:
        batch, row = self._batch, self._row
        assert batch is not None
        piece = _Piece(batch.records.slice(row, rows), self._offsets[row : row + rows], batch)
        self._row += rows
        if self._row < len(self._offsets):
            self.next_offset = int(self._offsets[self._row])
        else:
            self._batch, self.next_offset = None, self._following
            self._offsets, self._ends_bytes = _NO_OFFSETS, _NO_ROWS
        return piece


def _encoded(piece: _Piece, last_offset: int) -> bytes | bytearray:
    batch = piece.batch
    return from_arrow(
        piece.records,
        base_offset=int(piece.offsets[0]),
        target=BatchTarget(batch.leader_epoch, batch.timestamp_type),
        offsets=piece.offsets,
        last_offset=last_offset,
    )


def skipping_batch(begin: int, end: int) -> bytearray:
    """Return a control batch over a range of offsets.

    It is the marker of an aborted transaction that nobody has: no answer of this gateway names an
    aborted transaction, because the records of all of them are left out.
    """
    return control_batch(
        EndTransactionMarker(0, 0, False),
        offset=end - 1,
        timestamp_us=0,
        leader_epoch=-1,
        base_offset=max(begin, end - 1 - _MAX_OFFSET_DELTA),
    )
