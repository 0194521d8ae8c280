"""What a consumer counts of its group: Kafka's ``consumer-coordinator-metrics``.

Averages and maxima are of all since the consumer was made, not of a window; without any they are 0.
Rates are not kept: two looks at a total, and the time between them, tell one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Latency:
    """How long something took, each time. Written by one thread, read by any."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        """Args: now_ms: a monotonic clock."""
        self._now_ms = now_ms
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0
        self.last_ms: float | None = None

    def record(self, took_ms: float) -> None:
        """It was done once more, just now."""
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)
        self.last_ms = self._now_ms()

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Measure what is done inside; what fails is left out."""
        began_ms = self._now_ms()
        yield
        self.record(self._now_ms() - began_ms)

    def metrics(self, name: str) -> dict[str, float]:
        """Return average and maximum under Kafka's names, in milliseconds."""
        return {
            f"{name}-avg": self.total_ms / self.count if self.count else 0.0,
            f"{name}-max": self.max_ms,
        }

    def seconds_ago(self) -> float:
        """Return how long ago the last one was, -1 without one."""
        return seconds_since(self.last_ms, self._now_ms())


class CoordinatorMetrics:
    """Joins, rebalances, callbacks and commits of one consumer.

    A rebalance begins when the consumer notices in a poll that its group has changed, and ends when
    it has everything that it is to have, and so have all others. Its listener's callbacks are in
    it.

    Attributes:
        commits, joins: that took effect.
        rebalances: that came to their end.
        callbacks: of its listener: ``revoked``, ``assigned``, ``lost``.
        failed_rebalances: tries that failed, and are made again.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        """Args: now_ms: a monotonic clock."""
        self._now_ms = now_ms
        self._began_ms: float | None = None
        self._generation = 0
        self.commits = Latency(now_ms)
        self.joins = Latency(now_ms)
        self.rebalances = Latency(now_ms)
        self.callbacks = {what: Latency(now_ms) for what in ("revoked", "assigned", "lost")}
        self.failed_rebalances = 0

    def begin_rebalance(self) -> None:
        """The group may have changed; harmless when it has not, or when one is under way."""
        if self._began_ms is None:
            self._began_ms = self._now_ms()

    def end_rebalance(self, generation: int, *, is_settled: bool) -> None:
        """The consumer has what it is to have in a generation.

        Args:
            generation: which; one that was told before is no rebalance.
            is_settled: nothing is on its way between members any more.
        """
        if generation != self._generation:
            if not is_settled:
                return
            if self._began_ms is not None:
                self.rebalances.record(self._now_ms() - self._began_ms)
        self._generation = generation
        self._began_ms = None

    def metrics(self) -> dict[str, float]:
        """Return all of it, under Kafka's names."""
        found: dict[str, float] = {
            "commit-total": self.commits.count,
            **self.commits.metrics("commit-latency"),
            "join-total": self.joins.count,
            **self.joins.metrics("join-time"),
            "rebalance-total": self.rebalances.count,
            **self.rebalances.metrics("rebalance-latency"),
            "rebalance-latency-total": self.rebalances.total_ms,
            "failed-rebalance-total": self.failed_rebalances,
            "last-rebalance-seconds-ago": self.rebalances.seconds_ago(),
        }
        for what, latency in self.callbacks.items():
            found |= latency.metrics(f"partition-{what}-latency")
        return found


def seconds_since(then_ms: float | None, now_ms: float) -> float:
    """Return seconds between two monotonic times, -1 where the first never was."""
    return -1.0 if then_ms is None else max(0.0, now_ms - then_ms) / 1000
