"""The batches of one append, and their state over its retries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import SparkLogError
from spark_log.log import (
    LogAppendInfo,
    LogValidator,
)
from spark_log.producer.batch.producer_batch import RECORD_FIELDS, ProducerBatch
from spark_log.producer.batch.record_arrays import record_batch, small_batch
from spark_log.record import ProducerAppend, SmallBatch, int_array, times_us_of

_ENCODED_BYTES: Final = 1_048_576
"""Approximate size of the Arrow record batches to which batches are concatenated."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The records of one batch of the log, and the producer's batches that they are of, in order.

    Attributes:
        records: an Arrow batch, or the buffers of few records.
        batches: the producer's batches.
    """

    records: pa.RecordBatch | SmallBatch
    batches: tuple[ProducerBatch, ...]

    def times_us(self) -> np.ndarray:
        """Return the timestamps, int64 microseconds since the epoch."""
        if isinstance(self.records, SmallBatch):
            return self.records.times_us()
        return times_us_of(self.records)


class InFlightBatches:
    """The batches that one append writes to a partition, and the state of this append.

    The append is retried until it succeeds or fails, or until all its batches have expired. While
    it is certain that no attempt has appended them, expired batches may be dropped, and the
    sequence number may change. After the first attempt with an unknown outcome the batches stay
    unchanged, so that the log recognizes a repeat.

    Attributes:
        batches: the batches to append, in order.
        producer: id, epoch and sequence number of the last attempt; None before the first attempt,
            and without idempotence.
        attempts: number of attempts.
        retry_ms: monotonic time of the next attempt.
        is_outcome_unknown: whether an attempt may have appended the batches.
        error: the error of the last attempt.
    """

    def __init__(self, batches: Sequence[ProducerBatch]) -> None:
        """Put batches in flight; no attempt was made yet."""
        self.batches = list(batches)
        self.producer: ProducerAppend | None = None
        self.attempts = 0
        self.retry_ms = 0.0
        self.is_outcome_unknown = False
        self.error: Exception | None = None
        self._encoded: list[EncodedBatch] | None = None

    def __str__(self) -> str:
        records = sum(batch.record_count for batch in self.batches)
        size_bytes = self.reserved_bytes
        return f"{len(self.batches)} batches, {records} records, {size_bytes} bytes of memory"

    @property
    def reserved_bytes(self) -> int:
        """Memory of the batches."""
        return sum(batch.reserved_bytes for batch in self.batches)

    @property
    def is_done(self) -> bool:
        """Whether all batches are acknowledged or failed."""
        return all(batch.is_over for batch in self.batches)

    def drop_done_batches(self) -> None:
        """Drop batches that have expired, unless an attempt may have appended them."""
        if not self.is_outcome_unknown and any(batch.is_over for batch in self.batches):
            self.batches = [batch for batch in self.batches if not batch.is_over]
            self._encoded = None

    def encoded(self) -> list[EncodedBatch]:
        """Return the records as batches of the log; empty if the topic accepts none of them."""
        if self._encoded is None:
            groups = _grouped(self.batches)
            self._encoded = [each for group in groups if (each := _encode(group)) is not None]
        return self._encoded

    def refuse(self, encoded: EncodedBatch, validator: LogValidator) -> int:
        """Drop the records that the topic does not accept, each with its own error.

        Args:
            encoded: the encoded batch that the log has refused.
            validator: the validator of the log, which is asked for each record.

        Returns:
            The number of records that were dropped.
        """
        refused = 0
        for batch in encoded.batches:
            records = _records_of(batch)
            if records is None:
                continue
            skipped = {row for row, _ in batch.refused()}
            rows = [row for row in range(batch.record_count) if row not in skipped]
            errors: dict[int, Exception] = {}
            for index, row in enumerate(rows):
                try:
                    validator.validate(records.slice(index, 1))
                except SparkLogError as error:
                    errors[row] = error
            if errors:
                batch.refuse(errors)
                refused += len(errors)
        self._encoded = None
        return refused

    def refused_errors(self) -> list[Exception]:
        """Return the errors of the refused records, without those of expired batches."""
        return [
            error for batch in self.batches if not batch.is_done for _, error in batch.refused()
        ]

    def complete(
        self, info: LogAppendInfo | None, log_append_times_us: Sequence[int | None]
    ) -> int:
        """Acknowledge the batches with their offsets and timestamps.

        A batch fails if the topic accepted none of its records.

        Args:
            info: the offsets of the append; None if the topic accepted no record at all.
            log_append_times_us: one item per encoded batch: the timestamp that the log gave to all
                its records (``message.timestamp.type=LogAppendTime``), or None.

        Returns:
            The number of records that this call acknowledged.
        """
        acknowledged = 0
        offset = 0 if info is None else info.base_offset
        for encoded, log_append_time_us in zip(self.encoded(), log_append_times_us, strict=True):
            times_us = encoded.times_us()
            if log_append_time_us is not None:
                times_us = np.full(len(times_us), log_append_time_us)
            row = 0
            for batch in encoded.batches:
                count = batch.record_count - batch.refused_count
                if batch.acknowledge(offset, times_us[row : row + count]):
                    acknowledged += count
                row += count
                offset += count
        for batch in self.batches:
            if not batch.is_done:
                batch.fail(batch.refused()[0][1])
        return acknowledged


def _grouped(batches: Iterable[ProducerBatch]) -> Iterable[list[ProducerBatch]]:
    """Yield groups of adjacent batches that are encoded together; a table is a group of its own."""
    group: list[ProducerBatch] = []
    size_bytes = 0
    for batch in batches:
        is_new = batch.table is not None or (group and group[0].table is not None)
        if group and (is_new or size_bytes + batch.reserved_bytes > _ENCODED_BYTES):
            yield group
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.reserved_bytes
    if group:
        yield group


def _encode(group: Sequence[ProducerBatch]) -> EncodedBatch | None:
    if group[0].table is not None:
        records = _records_of(group[0])
        return None if records is None else EncodedBatch(records, tuple(group))
    flat: list[Any] = []
    for batch in group:
        flat += _accepted_records(batch)
    return EncodedBatch(small_batch(flat) or record_batch(flat), tuple(group)) if flat else None


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
    return record_batch(_accepted_records(batch))


def _accepted_records(batch: ProducerBatch) -> list[Any]:
    """Return the flat list of a batch's records without the refused ones."""
    if not batch.refused_count:
        return batch.records
    accepted = list(batch.records)
    for row, _ in reversed(batch.refused()):
        del accepted[row * RECORD_FIELDS : (row + 1) * RECORD_FIELDS]
    return accepted
