"""Reads several partitions of a topic in turns: up to an end, or for as long as they grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.clock import Clock
from spark_log.consumer import Resolve
from spark_log.log import IsolationLevel, LogBatch, PartitionLog, ProbeInterval

ROUND_BYTES: Final = 1_048_576
"""Bytes that are read of one partition before the next partition's turn."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets to read from a partition.

    Attributes:
        start: first offset.
        end: offset to stop before; None: the partition is followed for ever.
    """

    start: int
    end: int | None = None


def read_partitions(
    logs: Mapping[int, PartitionLog],
    ranges: Mapping[int, OffsetRange],
    clock: Clock,
    timeout_ms: float | None = None,
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    resolve: Resolve | None = None,
) -> Iterator[FetchedRecords]:
    """Yield the records of partitions in turns, in offset order within a partition.

    It ends when every partition's end is reached, or when no record arrived for ``timeout_ms``.
    While there are no records it sleeps, and probes for each partition's next segment.

    Args:
        logs: logs by partition, not used by anyone else.
        ranges: offsets to read, by partition.
        clock: for waiting.
        timeout_ms: maximum time to wait for more records; None: no limit.
        isolation_level: ``read_committed`` for committed records alone.
        resolve: called when a transaction holds a partition up; None: it is waited for.

    Raises:
        OffsetOutOfRangeError: a position is before the start or after the end of the log.
        CorruptRecordError: with file and position.
    """
    cursors = [
        _Cursor(number, logs[number], wanted, isolation_level, resolve)
        for number, wanted in sorted(ranges.items())
    ]
    patience_ms = math.inf if timeout_ms is None else timeout_ms
    waiting_since_ms = clock.monotonic_ms()
    while cursors:
        has_records = False
        for cursor in cursors:
            for records in cursor.turn():
                has_records = True
                yield records
        cursors = [cursor for cursor in cursors if not cursor.is_done]
        if has_records:
            waiting_since_ms = clock.monotonic_ms()
            continue
        waited_ms = clock.monotonic_ms() - waiting_since_ms
        if waited_ms >= patience_ms:
            return
        if cursors:
            pause_ms = cursors[0].probes.pause_ms(waited_ms, partitions=len(cursors))
            clock.sleep_ms(min(pause_ms, patience_ms - waited_ms))


class _Cursor:
    """Position in one partition.

    One scan streams the records that the log holds at first. Later records are fetched: at the end
    of the log this costs one probe for the next segment, and no listing.
    """

    def __init__(
        self,
        partition: int,
        log: PartitionLog,
        wanted: OffsetRange,
        isolation_level: IsolationLevel,
        resolve: Resolve | None,
    ) -> None:
        self.is_done = False
        self.probes = ProbeInterval.of(log.files.store)
        self._partition = partition
        self._log = log
        self._follows = wanted.end is None
        self._position = wanted.start
        self._isolation_level = isolation_level
        self._resolve = resolve
        self._batches: Iterator[LogBatch] | None = log.scan(
            wanted.start, wanted.end, isolation_level=isolation_level
        )

    def turn(self) -> Iterator[FetchedRecords]:
        """Yield the next records, about `ROUND_BYTES` of them; none at the end of the log."""
        if self._batches is None:
            found, self._position = self._log.fetch_from(
                self._position, ROUND_BYTES, isolation_level=self._isolation_level
            )
            self._batches = iter(found)
            blocking = self._log.blocking_transaction
            if not found and blocking is not None and self._resolve is not None:
                self._resolve(blocking, self._log)
        taken_bytes = 0
        for batch in self._batches:
            records = FetchedRecords.of_batch(self._partition, batch)
            self._position = max(self._position, int(records.offsets[-1]) + 1)
            taken_bytes += batch.stored_bytes
            yield records
            if taken_bytes >= ROUND_BYTES:
                return
        # These were all records when the log was read. The next turn reads newer ones.
        self._batches = None
        self.is_done = not self._follows
