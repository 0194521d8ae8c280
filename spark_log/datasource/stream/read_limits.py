"""How much a micro-batch takes: at most so many offsets, at least so many, or after a while.

Pure but for `TriggerDelay`, which remembers when the last batch was let through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from spark_log.clock import Clock
from spark_log.datasource.options.options import ReadOptions
from spark_log.types import TopicPartition


def default_read_limit(options: ReadOptions) -> ReadLimit:
    """Return what Spark is told of the options, so that it can overrule them (``Trigger.Once``).

    A Python source cannot tell of two limits at once: the most goes before the least.
    """
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


def limit_rate(
    most: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where a batch of about ``most`` offsets ends, shared out by what each partition has.

    As ``KafkaMicroBatchStream`` shares them out: each part is rounded down, but a partition that
    has something gets one offset at least, so that none starves; all may be a few more than
    ``most``.

    Args:
        most: how many offsets.
        start: where the batch begins, for each partition of ``end``.
        end: where it would end without a limit.
    """
    sizes = {tp: max(0, offset - start[tp]) for tp, offset in end.items()}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = {}
    for tp, size in sizes.items():
        share = most * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(end[tp], start[tp] + whole) if size else end[tp]
    return limited


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets there are from ``start``, given for each of them, to ``end``."""
    return sum(max(0, offset - start[tp]) for tp, offset in end.items())


class TriggerDelay:
    """Holds a batch back until there are enough offsets, or the last one was long enough ago.

    The first batch of a run is never held back, as with the connector.
    """

    def __init__(self, least: int, longest_ms: int, clock: Clock) -> None:
        """Args: least: so many offsets are enough; longest_ms: so long a batch may be held back."""
        self._least = least
        self._longest_ms = longest_ms
        self._clock = clock
        self._last_ms: float | None = None

    def should_wait(self, new_offsets: int) -> bool:
        """Return whether to wait for more, with so many there; if not, the wait begins anew."""
        now_ms = self._clock.monotonic_ms()
        if self._last_ms is not None:
            waited_ms = now_ms - self._last_ms
            if new_offsets == 0 or (new_offsets < self._least and waited_ms < self._longest_ms):
                return True
        self._last_ms = now_ms
        return False
