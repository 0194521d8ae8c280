"""Tables on their way: `Producer.send_table`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from spark_log.clock import Clock
from spark_log.config import ProducerConfig
from spark_log.errors import InvalidPartitionsError, KafkaTimeoutError, RecordTooLargeError
from spark_log.log.append.validator import record_sizes
from spark_log.producer.accumulator import Accumulator
from spark_log.producer.producer_batch import NO_OFFSET, ProducerBatch
from spark_log.producer.record_arrays import partition_column, table_records
from spark_log.producer.record_future import RecordFuture
from spark_log.producer.topic_route import TopicRoute

_BATCH_BYTES: Final = 4_194_304
"""Rows of a partition are appended as Arrow batches of about this size."""


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Rows that lie one behind the other in a partition.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        base_offset: of the first; -1 with ``acks=0``.
        last_offset: of the last; -1 with ``acks=0``.
        records: how many.
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    records: int


class TableFuture:
    """The outcome of one ``send_table``: done when every row is acknowledged or has failed."""

    def __init__(self, batches: Sequence[ProducerBatch], clock: Clock) -> None:
        self._batches = tuple(batches)
        self._counts = [batch.record_count for batch in self._batches]
        self._clock = clock

    def result(self, timeout: float | None = None) -> tuple[RecordRange, ...]:
        """Wait until all rows are acknowledged, and return where they are, by partition.

        Args:
            timeout: seconds; None: no longer than ``delivery.timeout.ms``, when it ends anyhow.

        Raises:
            KafkaTimeoutError: not done in this time.
            SparkLogError: why rows failed; others may be in the log: `appended` tells which.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.appended()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait likewise, and return why the first of the rows failed, None if none did.

        Raises:
            KafkaTimeoutError: not done in this time.
        """
        began_ms = self._clock.monotonic_ms()
        for batch in self._batches:
            rest_s = None
            if timeout is not None:
                rest_s = timeout - (self._clock.monotonic_ms() - began_ms) / 1000
            if not batch.wait(rest_s):
                raise KafkaTimeoutError(
                    f"a table for {batch.topic} is not acknowledged after {timeout} s; it is still "
                    f"on its way: wait longer, or until delivery.timeout.ms"
                )
        for batch in self._batches:
            refused = batch.refused()
            if batch.error is not None or refused:
                return batch.error or refused[0][1]
        return None

    def appended(self) -> tuple[RecordRange, ...]:
        """Return where the rows are that are acknowledged by now."""
        ranges: list[RecordRange] = []
        for batch, rows in zip(self._batches, self._counts, strict=True):
            count = rows - batch.refused_count
            if not batch.is_done or batch.error is not None or not count:
                continue
            base = batch.base_offset
            last = ranges[-1] if ranges else None
            follows = (
                last is not None
                and last.partition == batch.partition
                and base in (NO_OFFSET, last.last_offset + 1)
            )
            if follows:
                assert last is not None
                base, count = last.base_offset, last.records + count
                ranges.pop()
            end = NO_OFFSET if base == NO_OFFSET else base + count - 1
            ranges.append(RecordRange(batch.topic, batch.partition, base, end, count))
        return tuple(ranges)

    def done(self) -> bool:
        """Whether every row is acknowledged or has failed."""
        return all(batch.is_done for batch in self._batches)

    def add_done_callback(self, function: Callable[[Self], Any]) -> None:
        """Call ``function(self)`` when all is done: at once if it is."""
        rest = list(self._batches)

        def go_on(_: object) -> None:
            while rest and rest[-1].is_done:
                rest.pop()
            if rest:
                rest[-1].call_when_done(RecordFuture((rest[-1], 0)), go_on)
            else:
                function(self)

        go_on(None)


def send_table(
    route: TopicRoute,
    table: pa.Table | pa.RecordBatch,
    partition: int | None,
    accumulator: Accumulator,
    config: ProducerConfig,
    clock: Clock,
    check_usable: Callable[[], None],
) -> TableFuture:
    """See `Producer.send_table`."""
    partitions = len(route.queues)
    if partition is not None and not (type(partition) is int and 0 <= partition < partitions):
        raise InvalidPartitionsError(
            f"topic {route.topic.name!r} has {partitions} partitions, numbered from 0: asked for "
            f"{partition!r}"
        )
    given = None if partition is not None else partition_column(table, partitions)
    records = table_records(table, clock.time_us())
    if not records.num_rows:
        return TableFuture((), clock)
    _check_sizes(records, min(config.max_request_size, route.max_record_bytes))
    size_bytes = max(records.nbytes, 1)
    with accumulator.lock:
        accumulator.reserve(size_bytes)
        left_bytes = size_bytes
        try:
            check_usable()
            if partition is not None:
                parts: Iterator[tuple[int, pa.RecordBatch]] = iter([(partition, records)])
            else:
                parts = _parts(route, records, given, config.batch_size, size_bytes)
            batches = []
            row_bytes = size_bytes / records.num_rows
            for number, rows in parts:
                for piece in _pieces(rows, row_bytes):
                    piece_bytes = min(left_bytes, int(piece.num_rows * row_bytes))
                    batch = ProducerBatch(
                        route.topic.name,
                        number,
                        created_ms=clock.monotonic_ms(),
                        reserved_bytes=piece_bytes,
                        table=piece,
                    )
                    left_bytes -= piece_bytes
                    batches.append(batch)
                    accumulator.add_batch(route.queues[number], batch)
        finally:
            accumulator.unreserve(left_bytes)
    return TableFuture(batches, clock)


def _check_sizes(records: pa.RecordBatch, limit_bytes: int) -> None:
    if records.nbytes <= limit_bytes:
        return
    sizes = record_sizes(records)
    largest = int(sizes.argmax())
    if sizes[largest] > limit_bytes:
        raise RecordTooLargeError(
            f"row {largest} of the table has {sizes[largest]} bytes (key, value and headers); "
            f"max.request.size and the topic's max.message.bytes allow {limit_bytes}: store large "
            f"values elsewhere and send where they are, or raise both",
            size_bytes=int(sizes[largest]),
            max_bytes=limit_bytes,
        )


def _parts(
    route: TopicRoute,
    records: pa.RecordBatch,
    given: np.ndarray | None,
    batch_size: int,
    size_bytes: int,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in order."""
    partitions = len(route.queues)
    if partitions == 1 and given is None:
        yield 0, records
        return
    chosen = route.chooser.choose_rows(records.column("key"), partitions)
    if given is not None:
        chosen = np.full(records.num_rows, -1, np.int32) if chosen is None else chosen
        chosen = np.where(given >= 0, given, chosen)
    if chosen is None:
        for number, start, end in _sticky_runs(route, records.num_rows, batch_size, size_bytes):
            yield number, records.slice(start, end - start)
        return
    without = np.flatnonzero(chosen < 0)
    for number, start, end in _sticky_runs(
        route, len(without), batch_size, size_bytes * len(without) // records.num_rows
    ):
        chosen[without[start:end]] = number
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=partitions))
    sorted_rows = records.take(pa.array(order))
    for number, end in enumerate(ends.tolist()):
        start = int(ends[number - 1]) if number else 0
        if end > start:
            yield number, sorted_rows.slice(start, end - start)


def _sticky_runs(
    route: TopicRoute, rows: int, batch_size: int, size_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Yield runs of rows without a key, each with its partition, the sticky one first.

    A run has at least ``batch.size`` bytes, and no more runs than partitions are made.
    """
    if not rows:
        return
    partitions = len(route.queues)
    runs = max(1, min(partitions, rows, size_bytes // max(batch_size, 1)))
    assert route.sticky is not None
    first = route.sticky.partition
    for run in range(runs):
        yield (first + run) % partitions, rows * run // runs, rows * (run + 1) // runs
    route.move_on()


def _pieces(rows: pa.RecordBatch, row_bytes: float) -> Iterator[pa.RecordBatch]:
    """Cut rows into batches of about `_BATCH_BYTES`."""
    step = max(1, int(_BATCH_BYTES / max(row_bytes, 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
