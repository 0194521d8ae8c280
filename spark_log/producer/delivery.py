"""The batches of one append, and their state over its retries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.log import LogAppendInfo, LogValidator
from spark_log.producer.producer_batch import RECORD_FIELDS, ProducerBatch
from spark_log.producer.record_arrays import record_batch
from spark_log.record import ProducerAppend, int_array, times_us_of

_PIECE_BYTES: Final = 1_048_576
"""Approximate size of the Arrow record batches to which batches are concatenated."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An Arrow record batch, and the producer's batches whose records it has, in this order."""

    records: pa.RecordBatch
    batches: tuple[ProducerBatch, ...]


class Delivery:
    """The batches that one append writes to a partition.

    A delivery is retried until it is acknowledged or failed, or the time of all its batches is
    over. While it is certain that no attempt appended it, expired batches may be dropped and its
    sequence number may change. After the first attempt with an unknown outcome it stays unchanged,
    so that the log recognizes a repeat.

    Attributes:
        batches: the batches to append, in order.
        producer: id, epoch and sequence number of the last attempt; None before the first attempt,
            and without idempotence.
        tries: number of attempts.
        due_ms: monotonic time of the next attempt.
        is_outcome_unknown: whether an attempt may have appended the delivery.
        error: the error of the last attempt.
    """

    def __init__(self, batches: Sequence[ProducerBatch]) -> None:
        """Create a delivery of batches; no attempt was made yet."""
        self.batches = list(batches)
        self.producer: ProducerAppend | None = None
        self.tries = 0
        self.due_ms = 0.0
        self.is_outcome_unknown = False
        self.error: Exception | None = None
        self._pieces: list[Piece] | None = None

    @property
    def record_count(self) -> int:
        """Number of records to append."""
        return sum(batch.record_count - batch.refused_count for batch in self.batches)

    @property
    def is_done(self) -> bool:
        """Whether all batches are acknowledged or failed."""
        return all(batch.is_over for batch in self.batches)

    def drop_done_batches(self) -> None:
        """Drop batches that have expired, unless an attempt may have appended them."""
        if not self.is_outcome_unknown and any(batch.is_over for batch in self.batches):
            self.batches = [batch for batch in self.batches if not batch.is_over]
            self._pieces = None

    def pieces(self) -> list[Piece]:
        """Return the records as Arrow batches; empty if the topic accepts none of them."""
        if self._pieces is None:
            groups = _grouped(self.batches)
            self._pieces = [piece for group in groups if (piece := _joined(group)) is not None]
        return self._pieces

    def refuse(self, piece: Piece, validator: LogValidator) -> bool:
        """Drop the records of a piece that the topic does not accept, each with its own error.

        Returns:
            Whether any record was dropped.
        """
        refused = 0
        for batch in piece.batches:
            records = _records_of(batch)
            if records is None:
                continue
            skipped = {row for row, _ in batch.refused()}
            rows = [row for row in range(batch.record_count) if row not in skipped]
            errors: dict[int, Exception] = {}
            for place, row in enumerate(rows):
                try:
                    validator.validate(records.slice(place, 1))
                except SparkLogError as error:
                    errors[row] = error
            if errors:
                batch.refuse(errors)
                refused += len(errors)
        self._pieces = None
        return refused > 0

    def acknowledge(self, info: LogAppendInfo, log_append_times_us: Sequence[int | None]) -> int:
        """Acknowledge the batches with their offsets and timestamps.

        Args:
            info: the offsets of the append.
            log_append_times_us: one item per piece: the timestamp that the log gave to all its
                records (``message.timestamp.type=LogAppendTime``), or None.

        Returns:
            The number of records that this call acknowledged.
        """
        offset = info.base_offset
        acknowledged = 0
        for piece, log_append_time_us in zip(self.pieces(), log_append_times_us, strict=True):
            times_us = times_us_of(piece.records)
            if log_append_time_us is not None:
                times_us = np.full(len(times_us), log_append_time_us)
            row = 0
            for batch in piece.batches:
                count = batch.record_count - batch.refused_count
                if batch.acknowledge(offset, times_us[row : row + count]):
                    acknowledged += count
                row += count
                offset += count
        for batch in self.batches:
            if not batch.is_done:  # the topic accepted none of its records
                batch.fail(batch.refused()[0][1])
        return acknowledged

    def fail(self, error: Exception) -> int:
        """Fail all batches; return the number of records that failed."""
        return sum(
            batch.record_count - batch.refused_count for batch in self.batches if batch.fail(error)
        )


def _grouped(batches: Iterable[ProducerBatch]) -> Iterable[list[ProducerBatch]]:
    """Yield groups of adjacent batches, one per piece; table rows are never grouped."""
    group: list[ProducerBatch] = []
    size_bytes = 0
    for batch in batches:
        is_new = batch.table is not None or (group and group[0].table is not None)
        if group and (is_new or size_bytes + batch.reserved_bytes > _PIECE_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.reserved_bytes
    if group:
        yield group


def _joined(group: Sequence[ProducerBatch]) -> Piece | None:
    if len(group) == 1:
        records = _records_of(group[0])
        return None if records is None else Piece(records, tuple(group))
    flat: list[Any] = []
    for batch in group:
        flat += _taken(batch)
    return Piece(record_batch(flat), tuple(group)) if flat else None


def _records_of(batch: ProducerBatch) -> pa.RecordBatch | None:
    """Return the records of one batch without the refused ones; None if all were refused."""
    refused = [row for row, _ in batch.refused()]
    if len(refused) == batch.record_count:
        return None
    if batch.table is not None:
        if not refused:
            return batch.table
        kept = np.delete(np.arange(batch.record_count), refused)
        return batch.table.take(int_array(kept, pa.int64()))
    return record_batch(_taken(batch))


def _taken(batch: ProducerBatch) -> list[Any]:
    """Return the flat list of a batch's records without the refused ones."""
    if not batch.refused_count:
        return batch.records
    taken = list(batch.records)
    for row, _ in reversed(batch.refused()):
        del taken[row * RECORD_FIELDS : (row + 1) * RECORD_FIELDS]
    return taken
