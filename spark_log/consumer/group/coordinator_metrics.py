"""Kafka's ``consumer-coordinator-metrics`` of one consumer.

Averages and maxima cover the lifetime of the consumer, not a time window. There are no rates: two
readings of a total and the time between them give the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_log.consumer.latency import Latency


class CoordinatorMetrics:
    """Counts joins, rebalances and commits.

    A rebalance begins when a poll notices that the group has changed. It ends when this consumer
    has all its partitions and no partition of the group moves any more. The callbacks of the
    consumer's listener are part of it.

    Attributes:
        commits: the latencies of commits that took effect.
        joins: the latencies of joins that took effect.
        rebalances: the latencies of rebalances that ended.
        failed_rebalances: the number of attempts that failed and are repeated.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        """Start with all counts at 0."""
        self._now_ms = now_ms
        self._began_ms: float | None = None
        self._generation = 0
        self.commits = Latency(now_ms)
        self.joins = Latency(now_ms)
        self.rebalances = Latency(now_ms)
        self.failed_rebalances = 0

    def begin_rebalance(self) -> None:
        """Record that the group may have changed; does nothing during a rebalance."""
        if self._began_ms is None:
            self._began_ms = self._now_ms()

    def end_rebalance(self, generation: int, *, is_settled: bool) -> None:
        """Record that the consumer has all its partitions of a generation.

        Args:
            generation: the group's generation. If it is the same as before, no rebalance happened.
            is_settled: whether no partition is moving between members any more.
        """
        if generation != self._generation:
            if not is_settled:
                return
            if self._began_ms is not None:
                self.rebalances.record(self._now_ms() - self._began_ms)
        self._generation = generation
        self._began_ms = None

    def metrics(self, callbacks: Mapping[str, Latency]) -> dict[str, float]:
        """Return all metrics by Kafka's names.

        Args:
            callbacks: the latencies of the listener's callbacks, by ``revoked``, ``assigned``,
                ``lost``.
        """
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
        for name, latency in callbacks.items():
            found |= latency.metrics(f"partition-{name}-latency")
        return found
