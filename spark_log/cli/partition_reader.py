"""Several partitions of a topic, read side by side: up to an end, or on and on as they grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_log.clock import Clock
from spark_log.log import LogBatch, PartitionLog

ROUND_BYTES: Final = 1_048_576
"""So much is read of one partition before it is the next one's turn."""

_FIRST_POLL_MS = 10
_SLOWEST_POLL_MS = 100


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
) -> Iterator[tuple[int, LogBatch]]:
    """Yield partition and batch, in offset order within a partition, in turns between them.

    Ends when every partition's end is reached, or when nothing came for ``timeout_ms``. While it
    waits it sleeps, up to 100 ms at a time.

    Args:
        logs: by partition.
        ranges: by partition.
        clock: for waiting.
        timeout_ms: how long to wait for more; None: for ever.

    Raises:
        OffsetOutOfRangeError: a start, or by now a position, is outside of what the log holds.
        CorruptRecordError: with file and position.
    """
    cursors = [_Cursor(number, logs[number], ranges[number]) for number in sorted(ranges)]
    waited_since_ms = clock.monotonic_ms()
    pause_ms = float(_FIRST_POLL_MS)
    while cursors:
        came = False
        for cursor in cursors:
            for batch in cursor.turn():
                came = True
                yield cursor.partition, batch
        cursors = [cursor for cursor in cursors if not cursor.is_done]
        if came:
            waited_since_ms, pause_ms = clock.monotonic_ms(), _FIRST_POLL_MS
        elif cursors:
            left_ms = pause_ms
            if timeout_ms is not None:
                left_ms = timeout_ms - (clock.monotonic_ms() - waited_since_ms)
            if left_ms <= 0:
                return
            clock.sleep_ms(min(pause_ms, left_ms))
            pause_ms = min(2 * pause_ms, _SLOWEST_POLL_MS)


@dataclass(slots=True)
class _Cursor:
    """A position in one partition."""

    partition: int
    log: PartitionLog
    range: OffsetRange
    is_done: bool = False
    _position: int = field(init=False)
    _batches: Iterator[LogBatch] | None = None

    def __post_init__(self) -> None:
        self._position = self.range.start

    def turn(self) -> Iterator[LogBatch]:
        """Yield what comes next, up to about `ROUND_BYTES`; nothing at the log's end."""
        taken_bytes = 0
        while taken_bytes < ROUND_BYTES:
            if self._batches is None:
                self._batches = self.log.scan(self._position, self.range.end)
            batch = next(self._batches, None)
            if batch is None:
                # All that was there when the scan began; a new one sees what came since.
                self._batches = None
                self.is_done = self.range.end is not None
                return
            self._position = int(batch.offsets()[-1]) + 1
            taken_bytes += batch.stored_bytes
            yield batch
