"""Limits on the size of micro-batches: maximum, minimum, and maximum delay."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from spark_log.datasource.options import ReadOptions
from spark_log.types import TopicPartition
from spark_log.util import Clock


def default_read_limit(options: ReadOptions) -> ReadLimit:
    """Return the limit that Spark passes to the source unless the trigger overrides it.

    ``Trigger.Once`` overrides it. A Python source cannot return two limits, so the maximum takes
    precedence over the minimum.
    """
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


def limit_rate(
    max_offsets: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end of a batch of about ``max_offsets`` offsets.

    The offsets are distributed in proportion to each partition's size, like
    ``KafkaMicroBatchStream`` does: each part is rounded down, but a partition with new records gets
    at least one offset. The total may therefore be slightly more than ``max_offsets``.

    Args:
        max_offsets: number of offsets.
        start: start of the batch, for each partition of ``end``.
        end: end of the batch without a limit.
    """
    sizes = {tp: max(0, offset - start[tp]) for tp, offset in end.items()}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = {}
    for tp, size in sizes.items():
        part = max_offsets * (size / total)
        whole = math.ceil(part) if part < 1 else math.floor(part)
        limited[tp] = min(end[tp], start[tp] + whole) if size else end[tp]
    return limited


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between ``start`` and ``end``.

    Args:
        start: first offsets; it has every partition of ``end``.
        end: offsets after the last.
    """
    return sum(max(0, offset - start[tp]) for tp, offset in end.items())


class TriggerDelay:
    """Delays a batch until there are enough offsets or the maximum delay has passed.

    The first batch of a run is never delayed, as with the connector.
    """

    def __init__(self, min_offsets: int, max_delay_ms: int, clock: Clock) -> None:
        """Start without a batch.

        Args:
            min_offsets: number of offsets that is enough.
            max_delay_ms: maximum delay since the last batch.
            clock: clock for the delay.
        """
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._clock = clock
        self._last_ms: float | None = None

    def should_wait(self, new_offsets: int) -> bool:
        """Return whether to wait for more offsets; if not, the delay starts again."""
        now_ms = self._clock.monotonic_ms()
        if self._last_ms is not None:
            waited_ms = now_ms - self._last_ms
            if new_offsets == 0 or (
                new_offsets < self._min_offsets and waited_ms < self._max_delay_ms
            ):
                return True
        self._last_ms = now_ms
        return False
