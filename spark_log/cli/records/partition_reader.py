"""Reads several partitions of a topic in turns: up to an end, or for as long as they grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_log.consumer import Resolve
from spark_log.errors import SparkLogError
from spark_log.log import FetchedRecords, IsolationLevel, LogBatch, PartitionLog, ProbeInterval
from spark_log.storage import OutageWait, is_unavailable
from spark_log.threads import Deadline
from spark_log.util import Clock

ROUND_BYTES: Final = 1_048_576
"""Bytes that are read of one partition before the next partition's turn."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets to read from a partition.

    Attributes:
        start: the first offset.
        end: the offset to stop before; None to follow the partition for ever.
    """

    start: int
    end: int | None = None


def read_partitions(
    logs: Mapping[int, PartitionLog],
    ranges: Mapping[int, PartitionRange],
    clock: Clock,
    timeout_ms: float | None = None,
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    resolve: Resolve | None = None,
) -> Iterator[FetchedRecords]:
    """Yield the records of partitions in turns, in offset order within a partition.

    The iterator ends when every partition's end is reached, or after ``timeout_ms`` without a
    record. While no records arrive it sleeps, and probes for each partition's next segment. It also
    waits while the storage does not answer, as Kafka's console consumer does.

    Args:
        logs: the logs by partition, which are used only here.
        ranges: the offsets to read, by partition.
        clock: the clock that measures waits.
        timeout_ms: the maximum time to wait for more records; None for no limit.
        isolation_level: the isolation level; ``read_committed`` for committed records alone.
        resolve: the function that is called when a transaction blocks a partition; None to only
            wait for the transaction's end.

    Raises:
        OffsetOutOfRangeError: a position is before the start or after the end of the log.
        CorruptRecordError: stored bytes are damaged; the error has the file and the position.
    """
    cursors = [
        _Cursor(number, logs[number], wanted, isolation_level, resolve)
        for number, wanted in sorted(ranges.items())
    ]
    patience_ms = math.inf if timeout_ms is None else timeout_ms
    outage = OutageWait(lambda: Deadline("reading", "", math.inf, clock), clock)
    waiting_since_ms = clock.monotonic_ms()
    while cursors:
        has_records, failure = False, None
        for cursor in cursors:
            try:
                for records in cursor.turn():
                    has_records = True
                    yield records
            except SparkLogError as error:
                if not is_unavailable(error):
                    raise
                failure = failure or error
                cursor.begin_again()
        cursors = [cursor for cursor in cursors if not cursor.is_done]
        if has_records:
            waiting_since_ms = clock.monotonic_ms()
        waited_ms = clock.monotonic_ms() - waiting_since_ms
        if waited_ms >= patience_ms and not has_records:
            return
        if failure is not None:
            outage.check(failure)
            outage.pause()
            continue
        outage.end()
        if cursors and not has_records:
            pause_ms = cursors[0].probes.pause_ms(waited_ms, partitions=len(cursors))
            clock.sleep_ms(min(pause_ms, patience_ms - waited_ms))


class _Cursor:
    """The position in one partition, and the read that is in progress.

    A read streams the records up to the log's end. The next read begins at its last position: at
    the end of the log it costs one probe for the next segment, and no listing.
    """

    def __init__(
        self,
        partition: int,
        log: PartitionLog,
        wanted: PartitionRange,
        isolation_level: IsolationLevel,
        resolve: Resolve | None,
    ) -> None:
        self.is_done = False
        self.probes = ProbeInterval.of(log.files.store)
        self._partition = partition
        self._log = log
        self._end = math.inf if wanted.end is None else wanted.end
        self._position = self._begin = wanted.start
        self._isolation_level = isolation_level
        self._resolve = resolve
        self._batches: Iterator[tuple[LogBatch | None, int]] | None = None

    def turn(self) -> Iterator[FetchedRecords]:
        """Yield the next records, about `ROUND_BYTES` of them; none at the end of the log."""
        taken_bytes = 0
        while self._position < self._end:
            if self._batches is None:
                self._begin = self._position
                self._batches = self._log.stream(
                    self._position, isolation_level=self._isolation_level
                )
            for batch, next_offset in self._batches:
                self._position = next_offset
                if batch is not None and not batch.is_control:
                    taken_bytes += batch.stored_bytes
                    records = FetchedRecords.of_batch(self._partition, batch)
                    if batch.end_offset > self._end:
                        records = records.where(records.offsets < self._end)
                    if records:
                        yield records
                if taken_bytes >= ROUND_BYTES or next_offset >= self._end:
                    break
            else:
                self._batches = None
                if self._position == self._begin:
                    self._on_log_end()
                    return
            if taken_bytes:
                break
        self.is_done = self._position >= self._end

    def begin_again(self) -> None:
        """Begin the next read at the position, after an error."""
        self._batches = None

    def _on_log_end(self) -> None:
        self.is_done = self._end < math.inf
        blocking = self._log.blocking_transaction
        if not self.is_done and blocking is not None and self._resolve is not None:
            self._resolve(blocking, self._log)
