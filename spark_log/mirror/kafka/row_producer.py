"""Sends rows of Arrow tables as records of a Kafka producer, and collects their offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from operator import length_hint
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import InvalidRecordError, KafkaTimeoutError, RecordTooLargeError
from spark_log.mirror.kafka.confluent import KafkaError, Message, Producer
from spark_log.mirror.kafka.errors import as_own_error
from spark_log.mirror.kafka.message_table import parts_by_partition
from spark_log.record import int_array, ints_of
from spark_log.types import TopicPartition

_FIRST_AND_LAST: Final = 2
_FULL_WAIT_S: Final = 0.05
_MIN_TIME_MS: Final = 1
"""The lowest timestamp that is sent: librdkafka replaces 0 by the present time."""
_US_PER_MS: Final = 1000

_Report = Callable[[KafkaError | None, Message], None]


_REFUSED: Final = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_TIMESTAMP,
)
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Errors that only follow from an earlier error."""


class InterleavedError(Exception):
    """Some offsets in Kafka are unknown, because only the first and the last one were requested.

    Another producer wrote between the records of a transaction, or Kafka refused one of them.
    """


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Records of one partition of the log, as the arguments of a producer.

    Attributes:
        topic_partition: the partition of the log.
        offsets: the records' offsets in the log, int64, ascending.
        keys: the key of each record.
        values: the value of each record.
        times_ms: the timestamp of each record.
        headers: the headers of each record, as pairs of name and value; None if no record has
            headers.
    """

    topic_partition: TopicPartition
    offsets: np.ndarray
    keys: list[bytes | None]
    values: list[bytes | None]
    times_ms: list[int]
    headers: list[list[tuple[str, bytes | None]]] | None


@dataclass(frozen=True, slots=True)
class ProducedRows:
    """Rows that were produced to one partition of Kafka, in order.

    Attributes:
        offsets: the rows' offsets in the log, int64.
        reported: the offsets in Kafka that the broker has reported: of all rows, or of the first
            and the last.
        errors: the errors of rows that were not delivered, each with the number of rows that were
            delivered before.
        asks_for_all: whether the broker was asked for the offset of each row.
    """

    offsets: np.ndarray
    reported: list[int] = field(default_factory=list)
    errors: list[tuple[int, KafkaError]] = field(default_factory=list)
    asks_for_all: bool = False

    def kafka_offsets(self) -> np.ndarray:
        """Return the offset of each row in Kafka, after all rows were acknowledged.

        Raises:
            InterleavedError: only the first and the last offset were requested, and the others
                cannot be computed from them.
            InvalidRecordError: Kafka refused a record.
            SparkLogError: a record was not delivered, so that the commit would fail.
        """
        count, reported = len(self.offsets), self.reported
        errors = [each for each in self.errors if each[1].code() not in _PURGED]
        if errors:
            delivered, error = errors[0]
            if error.code() not in _REFUSED:
                raise as_own_error(error)
            if not self.asks_for_all:
                raise InterleavedError
            raise _refusal(error, int(self.offsets[delivered]))
        if len(reported) == count:
            return np.array(reported, np.int64)
        if len(reported) != _FIRST_AND_LAST:
            if not self.asks_for_all:
                raise InterleavedError
            raise KafkaTimeoutError(
                "Kafka did not report the offsets of mirrored records; try again"
            )
        first, last = reported
        if last - first + 1 != count:
            raise InterleavedError
        return np.arange(first, last + 1)


def rows_by_partition(table: pa.Table) -> Iterator[PartitionRows]:
    """Yield the rows of each partition, in the order of the table.

    Args:
        table: a table from `Consumer.poll_table`.
    """
    for tp, part in _tables_by_partition(table):
        times_us = ints_of(part.column("timestamp").combine_chunks(), np.int64)
        yield PartitionRows(
            tp,
            ints_of(part.column("offset").combine_chunks(), np.int64),
            part.column("key").to_pylist(),
            part.column("value").to_pylist(),
            np.maximum(times_us // _US_PER_MS, _MIN_TIME_MS).tolist(),
            _headers(part.column("headers").combine_chunks()),
        )


def produce_rows(
    producer: Producer, topic: str, rows: PartitionRows, *, asks_for_all: bool
) -> ProducedRows:
    """Produce rows, and wait while the client's queue is full.

    The report of an offset costs as much as the record, so only the offsets of the first and the
    last row are requested by default.

    Args:
        producer: a producer with an open transaction.
        topic: the topic in Kafka. The partition's number is that of the rows.
        rows: the rows, at least one.
        asks_for_all: whether the broker is asked for the offset of each row.
    """
    produced = ProducedRows(rows.offsets, asks_for_all=asks_for_all)
    add = produced.reported.append

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            add(message.offset() or 0)
        else:
            produced.errors.append((len(produced.reported), error))

    last = len(rows.keys) - 1
    _produce(producer, topic, rows, slice(0, 1), report)
    _produce(producer, topic, rows, slice(1, last), report if asks_for_all else None)
    if last:
        _produce(producer, topic, rows, slice(last, last + 1), report)
    return produced


def _produce(
    producer: Producer, topic: str, rows: PartitionRows, part: slice, report: _Report | None
) -> None:
    """Produce a slice of rows. The call for each record limits the speed of a mirror."""
    produce: Any = producer.produce
    partition = rows.topic_partition.partition
    keys, times_ms = iter(rows.keys[part]), iter(rows.times_ms[part])
    values = iter(rows.values[part])
    columns: list[Iterable[object]] = [
        *(repeat(topic), values, keys, repeat(partition), repeat(report), repeat(report), times_ms)
    ]
    headers = None if rows.headers is None else iter(rows.headers[part])
    if headers is not None:
        columns.append(headers)
    count = length_hint(values)
    while True:
        try:
            deque(map(produce, *columns), maxlen=0)  # a loop without steps of the interpreter
            return
        except BufferError:
            failed = count - length_hint(values) - 1 + (part.start or 0)
        again: list[Any] = [
            topic,
            rows.values[failed],
            rows.keys[failed],
            partition,
            report,
            report,
        ]
        again.append(rows.times_ms[failed])
        if rows.headers is not None:
            again.append(rows.headers[failed])
        while True:
            producer.poll(_FULL_WAIT_S)
            try:
                produce(*again)
                break
            except BufferError:
                continue


def _refusal(error: KafkaError, offset: int) -> InvalidRecordError:
    """Return the error for a record that Kafka refused."""
    text = f"Kafka refused the record at offset {offset} of the log: {error.str()}"
    undone = (
        "the transaction was aborted, and the mirror continues with this record when it is started"
    )
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return RecordTooLargeError(f"{text}. Raise max.message.bytes of the topic; {undone}")
    return InvalidRecordError(f"{text}. Change the topic's settings in Kafka; {undone}")


def _tables_by_partition(table: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    if not table.num_rows:
        return
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    numbers = ints_of(table.column("partition").combine_chunks(), np.int32).astype(np.int64)
    codes = ints_of(topics.indices, np.int32) + numbers * len(names)
    for code, rows in parts_by_partition(codes):
        first, count = int(rows[0]), len(rows)
        if int(rows[-1]) - first + 1 == count:
            part = table.slice(first, count)
        else:
            part = table.take(int_array(rows, pa.int64()))
        yield TopicPartition(names[code % len(names)], code // len(names)), part


def _headers(column: pa.ListArray) -> list[list[tuple[str, bytes | None]]] | None:
    if column.null_count == len(column):
        return None
    items = column.flatten()
    pairs = list(zip(*(items.field(number).to_pylist() for number in (0, 1)), strict=True))
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths).tolist()
    return [pairs[start:end] for start, end in zip([0, *ends], ends, strict=False)]
