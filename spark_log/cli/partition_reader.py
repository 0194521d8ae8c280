"""Several partitions of a topic, read side by side: up to an end, or on and on as they grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.clock import Clock
from spark_log.log import LogBatch, PartitionLog

ROUND_BYTES: Final = 1_048_576
"""So much is read of one partition before it is the next one's turn."""

_FIRST_PAUSE_MS = 10
_LONGEST_PAUSE_MS = 100


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What to read of a partition.

    Attributes:
        start: the first offset.
        end: the offset to stop before; None: never.
    """

    start: int
    end: int | None = None


def read_partitions(
    logs: Mapping[int, PartitionLog],
    ranges: Mapping[int, OffsetRange],
    clock: Clock,
    timeout_ms: float | None = None,
) -> Iterator[FetchedRecords]:
    """Yield records, in offset order within a partition, the partitions in turns.

    Ends when every partition's end is reached, or when nothing came for ``timeout_ms``. While
    there is nothing it sleeps, up to 100 ms at a time.

    Args:
        logs: by partition.
        ranges: by partition.
        clock: for waiting.
        timeout_ms: how long to wait for more; None: for ever.

    Raises:
        OffsetOutOfRangeError: a position is outside of what the log holds.
        CorruptRecordError: with file and position.
    """
    cursors = [_Cursor(number, logs[number], wanted) for number, wanted in sorted(ranges.items())]
    patience_ms = math.inf if timeout_ms is None else timeout_ms
    waiting_since_ms = clock.monotonic_ms()
    pause_ms = _FIRST_PAUSE_MS
    while cursors:
        came = False
        for cursor in cursors:
            for records in cursor.turn():
                came = True
                yield records
        cursors = [cursor for cursor in cursors if not cursor.is_done]
        if came:
            waiting_since_ms = clock.monotonic_ms()
            pause_ms = _FIRST_PAUSE_MS
            continue
        left_ms = patience_ms - (clock.monotonic_ms() - waiting_since_ms)
        if left_ms <= 0:
            return
        if cursors:
            clock.sleep_ms(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)


class _Cursor:
    """A position in one partition."""

    def __init__(self, partition: int, log: PartitionLog, wanted: OffsetRange) -> None:
        self.is_done = False
        self._partition = partition
        self._log = log
        self._position = wanted.start
        self._end = wanted.end
        self._batches: Iterator[LogBatch] | None = None

    def turn(self) -> Iterator[FetchedRecords]:
        """Yield what comes next, about `ROUND_BYTES` of it; nothing at the log's end."""
        taken_bytes = 0
        while taken_bytes < ROUND_BYTES:
            if self._batches is None:
                self._batches = self._log.scan(self._position, self._end)
            batch = next(self._batches, None)
            if batch is None:
                # That was all when the scan began. Another one sees what came since.
                self._batches = None
                self.is_done = self._end is not None
                return
            records = FetchedRecords.of_batch(self._partition, batch)
            self._position = int(records.offsets[-1]) + 1
            taken_bytes += batch.stored_bytes
            yield records
