"""A histogram of durations that is fast enough for a hot path."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_MS: Final = (
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1_000.0,
    2_500.0,
    5_000.0,
    10_000.0,
    30_000.0,
    60_000.0,
)
"""The upper bounds of the buckets: from an append to a local disk to a storage that is lost."""


class Histogram:
    """Counts durations by buckets, and adds them up.

    It takes no lock: callers that record from several threads hold a lock of their own, or accept
    that a count is lost. Any thread may read; a read may lack the duration that is just recorded.
    """

    __slots__ = ("_counts", "total_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0.0

    def record(self, duration_ms: float) -> None:
        """Count a duration in milliseconds."""
        self._counts[bisect_left(BOUNDS_MS, duration_ms)] += 1
        self.total_ms += duration_ms

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return Prometheus' cumulative buckets: upper bound in seconds, count up to it."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound_ms, count in zip((*BOUNDS_MS, None), self._counts, strict=True):
            total += count
            found.append(("+Inf" if bound_ms is None else repr(bound_ms / 1000), total))
        return found
