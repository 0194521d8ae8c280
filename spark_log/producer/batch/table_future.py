"""`TableFuture`: the future that `Producer.send_table` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from spark_log.errors import KafkaTimeoutError
from spark_log.producer.batch.producer_batch import NO_OFFSET, ProducerBatch
from spark_log.util import Clock


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

        def wait_for_rest() -> None:
            while rest and rest[-1].is_done:
                rest.pop()
            if rest:
                rest[-1].call_when_done(wait_for_rest)
            else:
                function(self)

        wait_for_rest()
