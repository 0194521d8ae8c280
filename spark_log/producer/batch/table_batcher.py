"""Adds the rows of Arrow tables to batches: the implementation of `Producer.send_table`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.config import ProducerConfig
from spark_log.errors import InvalidPartitionsError
from spark_log.producer.batch.accumulator import Accumulator
from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.producer.batch.record_arrays import partition_column, table_records
from spark_log.producer.batch.table_future import TableFuture
from spark_log.producer.batch.topic_route import TopicRoute
from spark_log.producer.validation import too_large
from spark_log.record import int_array, largest_above
from spark_log.util import Clock

_BATCH_BYTES: Final = 4_194_304
"""Approximate size of the Arrow batches into which the rows of a partition are cut."""


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
