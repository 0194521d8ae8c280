"""Several partitions of a topic, read side by side: up to an end, or on and on as they grow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.clock import Clock
from spark_log.log import LogBatch, PartitionLog
from spark_log.log.tail_reader import ProbeInterval

ROUND_BYTES: Final = 1_048_576
"""So much is read of one partition before it is the next one's turn."""


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
    there is nothing it sleeps, and looks for each partition's next segment as `TailReader` does.

    Args:
        logs: by partition; for this reader alone.
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
    while cursors:
        came = False
        for cursor in cursors:
            for records in cursor.turn():
                came = True
                yield records
        cursors = [cursor for cursor in cursors if not cursor.is_done]
        if came:
            waiting_since_ms = clock.monotonic_ms()
            continue
        waited_ms = clock.monotonic_ms() - waiting_since_ms
        if waited_ms >= patience_ms:
            return
        if cursors:
            pause_ms = cursors[0].probes.pause_ms(waited_ms, partitions=len(cursors))
            clock.sleep_ms(min(pause_ms, patience_ms - waited_ms))


class _Cursor:
    """A position in one partition.

    What the log holds at first is streamed by one scan, what comes then is fetched: at the end of
    the log this costs one look for the next segment, and no listing.
    """

    def __init__(self, partition: int, log: PartitionLog, wanted: OffsetRange) -> None:
        self.is_done = False
        self.probes = ProbeInterval.of(log.files.store)
        self._partition = partition
        self._log = log
        self._follows = wanted.end is None
        self._position = wanted.start
        self._batches: Iterator[LogBatch] | None = log.scan(wanted.start, wanted.end)

    def turn(self) -> Iterator[FetchedRecords]:
        """Yield what comes next, about `ROUND_BYTES` of it; nothing at the log's end."""
        if self._batches is None:
            found, self._position = self._log.fetch_from(self._position, ROUND_BYTES)
            self._batches = iter(found)
        taken_bytes = 0
        for batch in self._batches:
            records = FetchedRecords.of_batch(self._partition, batch)
            self._position = max(self._position, int(records.offsets[-1]) + 1)
            taken_bytes += batch.stored_bytes
            yield records
            if taken_bytes >= ROUND_BYTES:
                return
        # That was all when the log was looked at. The next look sees what came since.
        self._batches = None
        self.is_done = not self._follows
