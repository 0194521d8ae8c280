"""Sends Arrow tables: the implementation of `Producer.send_table`, and its future."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from spark_log.config import ProducerConfig
from spark_log.errors import InvalidPartitionsError, KafkaTimeoutError
from spark_log.producer.accumulator import Accumulator
from spark_log.producer.producer_batch import NO_OFFSET, ProducerBatch
from spark_log.producer.record_arrays import partition_column, table_records
from spark_log.producer.record_future import RecordFuture
from spark_log.producer.topic_route import TopicRoute
from spark_log.producer.validation import too_large
from spark_log.record import int_array, largest_above
from spark_log.util import Clock

_BATCH_BYTES: Final = 4_194_304
"""Approximate size of the Arrow batches into which the rows of a partition are cut."""


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Consecutive records of a partition.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        base_offset: offset of the first record; -1 with ``acks=0``.
        last_offset: offset of the last record; -1 with ``acks=0``.
        records: number of records.
    """

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    records: int


class TableFuture:
    """The outcome of one `Producer.send_table`; done when all rows are acknowledged or failed."""

    def __init__(self, batches: Sequence[ProducerBatch], clock: Clock) -> None:
        """Return the future of the batches of one table, ordered by partition."""
        self._batches = tuple(batches)
        self._counts = [batch.record_count for batch in self._batches]
        self._clock = clock

    def result(self, timeout: float | None = None) -> tuple[RecordRange, ...]:
        """Wait until all rows are acknowledged, and return their offsets, by partition.

        Args:
            timeout: seconds; None: until all rows are done, at most ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: not all rows are done in this time.
            SparkLogError: rows failed. Other rows may be in the log; `appended` returns their
                offsets.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self.appended()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait until all rows are done, and return the first error; None if no row failed.

        Args:
            timeout: seconds; None: until all rows are done, at most ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: not all rows are done in this time.
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
        """Return the offsets of the rows that are acknowledged by now."""
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

    def __repr__(self) -> str:
        if not self._batches:
            return "<TableFuture, no rows>"
        is_failed = any(batch.error is not None or batch.refused_count for batch in self._batches)
        state = "on its way" if not self.done() else "failed" if is_failed else "acknowledged"
        return f"<TableFuture {self._batches[0].topic}, {sum(self._counts)} records: {state}>"

    def done(self) -> bool:
        """Whether every row is acknowledged or has failed."""
        return all(batch.is_done for batch in self._batches)

    def add_done_callback(self, function: Callable[[Self], Any]) -> None:
        """Call ``function(self)`` when all rows are done, at once if they are done already."""
        rest = list(self._batches)

        def wait_for_rest(_: object) -> None:
            while rest and rest[-1].is_done:
                rest.pop()
            if rest:
                rest[-1].call_when_done(RecordFuture((rest[-1], 0)), wait_for_rest)
            else:
                function(self)

        wait_for_rest(None)


def send_table(
    route: TopicRoute,
    table: pa.Table | pa.RecordBatch,
    partition: int | None,
    accumulator: Accumulator,
    config: ProducerConfig,
    clock: Clock,
    check_can_send: Callable[[], None],
) -> TableFuture:
    """Put the rows of a table into the accumulator, and return their future.

    Args:
        route: the topic.
        table: the table, with the columns that `Producer.send_table` accepts.
        partition: the partition of all rows; None: the column ``partition`` or the partitioner
            decides.
        accumulator: the accumulator, which gets the batches.
        config: the producer's settings.
        clock: the clock for timestamps and timeouts.
        check_can_send: raises an error if the producer was closed meanwhile.

    Raises:
        SparkLogError: the errors of `Producer.send_table`; nothing was sent.
    """
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
        accumulator.pool.allocate(size_bytes)
        left_bytes = size_bytes
        try:
            check_can_send()
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
            accumulator.pool.deallocate(left_bytes)
    return TableFuture(batches, clock)


def _check_sizes(records: pa.RecordBatch, limit_bytes: int) -> None:
    if found := largest_above(records, limit_bytes):
        row, size_bytes = found
        raise too_large(size_bytes, limit_bytes, f"row {row} of the table")


def _parts(
    route: TopicRoute,
    records: pa.RecordBatch,
    given: np.ndarray | None,
    batch_size: int,
    size_bytes: int,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each partition, in the table's order."""
    partitions = len(route.queues)
    if partitions == 1 and given is None:
        yield 0, records
        return
    chosen = route.partitioner.choose_rows(records.column("key"), partitions)
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
    sorted_rows = records.take(int_array(order, pa.int64()))
    for number, end in enumerate(ends.tolist()):
        start = int(ends[number - 1]) if number else 0
        if end > start:
            yield number, sorted_rows.slice(start, end - start)


def _sticky_runs(
    route: TopicRoute, rows: int, batch_size: int, size_bytes: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (partition, start, end) for runs of rows without a key, the sticky partition first.

    A run has at least ``batch.size`` bytes, and the runs are at most as many as the partitions.
    """
    if not rows:
        return
    partitions = len(route.queues)
    runs = max(1, min(partitions, rows, size_bytes // max(batch_size, 1)))
    assert route.sticky is not None
    first = route.sticky.partition
    for run in range(runs):
        yield (first + run) % partitions, rows * run // runs, rows * (run + 1) // runs
    route.switch_sticky_partition()


def _pieces(rows: pa.RecordBatch, row_bytes: float) -> Iterator[pa.RecordBatch]:
    """Cut rows into batches of about `_BATCH_BYTES`."""
    step = max(1, int(_BATCH_BYTES / max(row_bytes, 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
