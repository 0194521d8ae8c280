"""Durations of one kind of call, for metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_log.metrics import Histogram


class Latency:
    """Count, sum, maximum and histogram of the durations of one kind of call.

    Averages and maxima cover the lifetime of the object, not a time window; the difference of two
    readings of the histogram covers the time between them. One thread records, any thread reads.

    Attributes:
        count: the number of calls.
        histogram: the histogram of their durations.
        max_ms: the longest duration.
        last_ms: the monotonic time at which the last call ended; None before the first.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        """Start with no calls.

        Args:
            now_ms: the function that returns monotonic time in milliseconds.
        """
        self._now_ms = now_ms
        self.count = 0
        self.histogram = Histogram()
        self.max_ms = 0.0
        self.last_ms: float | None = None

    def record(self, duration_ms: float) -> None:
        """Record one call that ends now."""
        self.count += 1
        self.histogram.record(duration_ms)
        self.max_ms = max(self.max_ms, duration_ms)
        self.last_ms = self._now_ms()

    @property
    def total_ms(self) -> float:
        """Sum of the durations."""
        return self.histogram.total_ms

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Record the duration of the ``with`` block, unless the block raises."""
        began_ms = self._now_ms()
        yield
        self.record(self._now_ms() - began_ms)

    def metrics(self, name: str) -> dict[str, float]:
        """Return ``<name>-avg`` and ``<name>-max`` in milliseconds, 0 without any call."""
        return {
            f"{name}-avg": self.total_ms / self.count if self.count else 0.0,
            f"{name}-max": self.max_ms,
        }

    def seconds_ago(self) -> float:
        """Return the seconds since the last call ended, -1 without any call."""
        return seconds_since(self.last_ms, self._now_ms())


def seconds_since(then_ms: float | None, now_ms: float) -> float:
    """Return the seconds between two monotonic times in milliseconds, -1 if ``then_ms`` is None."""
    return -1.0 if then_ms is None else max(0.0, now_ms - then_ms) / 1000
