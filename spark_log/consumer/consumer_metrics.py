"""The metrics of a `Consumer`, by Kafka's groups and names."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log.cluster import Cluster
from spark_log.consumer.fetch import BatchSlice, Fetcher
from spark_log.consumer.group import ConsumerGroup
from spark_log.consumer.position import SubscriptionState
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListenerInvoker
from spark_log.metrics import ClientReading, definitions


class ConsumerMetrics:
    """Counts polls and returned records, and collects the metrics of the consumer's parts."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        subscription: SubscriptionState,
        fetcher: Fetcher,
        group: ConsumerGroup,
        listener_invoker: ConsumerRebalanceListenerInvoker,
    ) -> None:
        """Start with all counts at 0."""
        self._cluster = cluster
        self._subscription = subscription
        self._fetcher = fetcher
        self._group = group
        self._listener_invoker = listener_invoker
        self._polls = 0
        self._records = 0
        self._bytes = 0

    def record_poll(self) -> None:
        """Count one poll."""
        self._polls += 1

    def record_rows(self, returned: Iterable[BatchSlice]) -> None:
        """Count returned rows and their bytes."""
        for rows in returned:
            self._records += rows.count
            self._bytes += rows.size_bytes

    def reading(self) -> ClientReading:
        """Return the metrics for Prometheus. Any thread may call it."""
        coordinator = self._group.metrics
        single = {
            definitions.FETCH_THROTTLE_DURATION: self._fetcher.throttle_times,
            definitions.COMMIT_DURATION: coordinator.commits,
            definitions.JOIN_DURATION: coordinator.joins,
            definitions.REBALANCE_DURATION: coordinator.rebalances,
        }
        callbacks = self._listener_invoker.latencies
        return ClientReading(
            self.metrics(),
            {
                **{definition: {(): each.histogram} for definition, each in single.items()},
                definitions.CALLBACK_DURATION: {
                    (name,): each.histogram for name, each in callbacks.items()
                },
            },
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return all metrics, by group and name."""
        lags = [
            max(0, end_offset - position)
            for tp, position in self._subscription.positions().items()
            if (end_offset := self._fetcher.end_offset(tp)) is not None
        ]
        return {
            "consumer-metrics": {"poll-total": self._polls},
            "consumer-fetch-manager-metrics": {
                "records-consumed-total": self._records,
                "bytes-consumed-total": self._bytes,
                **self._fetcher.metrics(),
                "records-lag-max": max(lags, default=0),
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": len(self._subscription.partitions),
                **self._group.metrics.metrics(self._listener_invoker.latencies),
                **self._group.membership.metrics(),
            },
            "suppressed-errors": self._cluster.suppressed.figures(),
        }
