"""A batch in a produce request: what waits for its partition, its conversion, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from spark_log.errors import InvalidProducerEpochError, InvalidRecordError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.record_batches import (
    BatchError,
    BatchErrorCode,
    ClientBatch,
    CompressionType,
    check_produced,
    split,
    to_arrow,
    to_small,
)
from spark_log.log import BatchAppend, LogAppendInfo
from spark_log.record import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerAppend,
    ProducerIdAndEpoch,
    SmallBatch,
)
from spark_log.transaction import PresentProducer

_CODECS = {
    CompressionType.GZIP: "zstd",
    CompressionType.SNAPPY: "lz4",
    CompressionType.LZ4: "lz4",
    CompressionType.ZSTD: "zstd",
}


Verify = Callable[[bool], PresentProducer]
"""Returns the identity under which a client's batch is appended; with true, by the newest state. It
raises a `SparkLogError` if the batch belongs to no ongoing transaction."""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The answer to one batch.

    Attributes:
        error: Kafka's error code.
        base_offset: the first record's offset; -1 after an error.
        append_time_ms: the timestamp that the log gave to all records; -1 if the client's stay.
        message: a sentence about the error, or None.
        record_indexes: the records that are the reason of the error; empty if it is the whole
            batch.
    """

    error: int = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    message: str | None = None
    record_indexes: tuple[int, ...] = ()


@dataclass(slots=True)
class ProducedBatch:
    """A batch that waits for its partition, from the field ``records`` of a request.

    Attributes:
        data: the bytes, which are not checked yet.
        partition: the number of the partition.
        is_ready: whether it may be appended: its partition was added to its transaction.
        transactional_id: the id of its transaction; None without one.
        waits_for_all: whether it is answered when all in-sync replicas have it, and not when the
            leader has it.
        result: the answer, once it is known.
        verify: translates the identity that its client keeps from transaction to transaction; None
            if the batch has the identity of the log.
        code_of: returns the error code of an error for the client's version.
        present: the identity from `verify`.
        batch: the batch, once its header is checked.
    """

    data: memoryview
    partition: int = 0
    is_ready: bool = True
    transactional_id: str | None = None
    waits_for_all: bool = True
    result: ProduceResult | None = None
    verify: Verify | None = None
    code_of: Callable[[SparkLogError], int] = error_code
    present: PresentProducer | None = None
    batch: ClientBatch | None = field(default=None, repr=False)

    def parse(self, max_bytes: int) -> ClientBatch | None:
        """Return the batch, its header and checksum checked; None if it has a result: an error.

        Args:
            max_bytes: ``max.message.bytes``: the largest batch, in the client's bytes.
        """
        try:
            if len(self.data) > max_bytes:
                raise BatchError(
                    f"the batch has {len(self.data)} bytes, but the topic accepts at most "
                    f"{max_bytes} (max.message.bytes). Send smaller batches",
                    BatchErrorCode.MESSAGE_TOO_LARGE,
                )
            found = split(self.data, max_batches=1)
            if not found:
                raise BatchError(
                    "the request has no record batch for a partition", BatchErrorCode.INVALID_RECORD
                )
            check_produced(found[0])
            if found[0].is_transactional and self.transactional_id is None:
                raise BatchError(
                    "the batch is transactional, but the request has no transactional id",
                    BatchErrorCode.INVALID_RECORD,
                )
            self.batch = found[0]
        except BatchError as error:
            self.result = _refused(error)
        return self.batch

    def translate(self, *, is_recent: bool = False) -> bool:
        """Set the present identity, if the client keeps its own; return false after an error.

        Args:
            is_recent: whether by the newest state, because the log has refused the known identity.
        """
        if self.verify is None:
            return True
        before = self.present
        try:
            self.present = self.verify(is_recent)
        except SparkLogError as error:
            self.finish(error)
            return False
        return not is_recent or self.present != before

    @property
    def transaction(self) -> ProducerIdAndEpoch | None:
        """The identity of the batch's transaction in the log; None if it belongs to none."""
        if self.batch is None or not self.batch.is_transactional:
            return None
        if self.present is not None:
            return self.present.producer
        return ProducerIdAndEpoch(self.batch.producer_id, self.batch.producer_epoch)

    def finish(self, result: LogAppendInfo | SparkLogError) -> None:
        """Set the answer from the result of the append."""
        if isinstance(result, SparkLogError):
            indexes = result.record_indexes if isinstance(result, InvalidRecordError) else ()
            self.result = ProduceResult(
                self.code_of(result), message=str(result), record_indexes=indexes
            )
            return
        time_us = result.append_time_us
        append_time_ms = -1 if time_us == NO_TIMESTAMP else time_us // 1000
        self.result = ProduceResult(base_offset=result.base_offset, append_time_ms=append_time_ms)


Put = Callable[
    [Sequence[ProducedBatch], Sequence[BatchAppend], str], Sequence[LogAppendInfo | SparkLogError]
]
"""Appends batches, with the codec to use, by one put if they can share it; returns the result of
each."""


def append_produced(
    produced: Sequence[ProducedBatch], put: Put, *, max_bytes: int, max_uncompressed_bytes: int
) -> list[tuple[ProducedBatch, LogAppendInfo | SparkLogError]]:
    """Check batches, convert and append them, and set the result of each.

    Args:
        produced: the batches. Those that have a result are left out.
        put: appends them. It is called again with batches that the log has refused because another
            gateway has ended the transaction that this one knew of.
        max_bytes: ``max.message.bytes``: the largest batch, in the client's bytes.
        max_uncompressed_bytes: the largest size of all records without their compression.

    Returns:
        The batches that could be converted, with their results.
    """
    parsed = [each for each in produced if each.result is None and each.parse(max_bytes)]
    # Translated here, so that the batches of one client are so in their order; and before the log
    # is locked: who ends the transaction of a batch waits for it, and the translation for him.
    waiting = [each for each in parsed if each.translate()]
    results = _append_all(waiting, put, max_uncompressed_bytes)
    fenced = [
        each
        for each, result in results
        if isinstance(result, InvalidProducerEpochError) and each.verify is not None
    ]
    again = [each for each in fenced if each.translate(is_recent=True)]
    return results + _append_all(again, put, max_uncompressed_bytes)


def _append_all(
    produced: Sequence[ProducedBatch], put: Put, max_uncompressed_bytes: int
) -> list[tuple[ProducedBatch, LogAppendInfo | SparkLogError]]:
    accepted, appends = batch_appends(produced, max_uncompressed_bytes)
    if not accepted:
        return []
    results = put(accepted, appends, codec_of(accepted))
    for each, result in zip(accepted, results, strict=True):
        each.finish(result)
    return list(zip(accepted, results, strict=True))


def batch_appends(
    produced: Sequence[ProducedBatch], max_uncompressed_bytes: int
) -> tuple[list[ProducedBatch], list[BatchAppend]]:
    """Return the batches that can be converted, and their records; the others get their error.

    Each small batch becomes a `SmallBatch`, the others are converted at once.

    Args:
        produced: batches whose headers have been checked.
        max_uncompressed_bytes: the largest size of all records without their compression.
    """
    contents: dict[int, pa.RecordBatch | SmallBatch] = {}
    large: list[int] = []
    rest_bytes = max_uncompressed_bytes
    for index, each in enumerate(produced):
        small = to_small(_batch_of(each), max_uncompressed_bytes=rest_bytes)
        if small is None:
            large.append(index)
        else:
            contents[index] = small
            rest_bytes -= len(small.content)
    while large:
        batches = [_batch_of(produced[index]) for index in large]
        try:
            records = to_arrow(batches, max_uncompressed_bytes=max(0, rest_bytes))
        except BatchError as error:
            produced[large.pop(error.batch_index)].result = _refused(error)
            continue
        row = 0
        for index, batch in zip(large, batches, strict=True):
            contents[index] = records.slice(row, batch.record_count)
            row += batch.record_count
        break
    accepted = [produced[index] for index in sorted(contents)]
    return accepted, [
        BatchAppend(contents[index], _producer_of(produced[index])) for index in sorted(contents)
    ]


def codec_of(produced: Sequence[ProducedBatch]) -> str:
    """Return the codec of the log that takes the place of the clients' own."""
    codecs = {_CODECS.get(CompressionType(_batch_of(each).compression_type)) for each in produced}
    return next((codec for codec in ("zstd", "lz4") if codec in codecs), "none")


def _batch_of(produced: ProducedBatch) -> ClientBatch:
    assert produced.batch is not None
    return produced.batch


def _producer_of(produced: ProducedBatch) -> ProducerAppend | None:
    batch, present = _batch_of(produced), produced.present
    if batch.producer_id == NO_PRODUCER_ID:
        return None
    if present is not None and batch.is_transactional:
        return ProducerAppend(
            present.producer.producer_id,
            present.producer.producer_epoch,
            batch.base_sequence,
            is_transactional=True,
            continues=present.continues,
        )
    return ProducerAppend(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional
    )


def _refused(error: BatchError) -> ProduceResult:
    indexes = () if error.record_index < 0 else (error.record_index,)
    return ProduceResult(error.code, message=error.message, record_indexes=indexes)


def _invalid(message: str) -> BatchError:
    return BatchError(message, BatchErrorCode.INVALID_RECORD)
