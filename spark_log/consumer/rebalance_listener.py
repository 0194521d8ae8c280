"""`ConsumerRebalanceListener`, and the class that calls a user's listener."""

from __future__ import annotations

from collections.abc import Callable, Collection

from spark_log.consumer.latency import Latency
from spark_log.types import TopicPartition


class ConsumerRebalanceListener:
    """Callbacks for changes of a subscribed consumer's assignment (kafka-python's class; KIP-429).

    `Consumer.poll` calls them, with the changed partitions only. For a member of a group
    `Consumer.unsubscribe` and `Consumer.close` call them too, for the partitions that the consumer
    gives up. A callback may use the consumer: to commit revoked partitions, or to seek in assigned
    ones.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions are about to be taken away; they can still be committed."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partitions were added; no record of them was returned yet."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Partitions were taken away and cannot be committed any more.

        Either their topic was deleted, or the group expired this consumer, and other members may
        already read them. By default calls `on_partitions_revoked`.
        """
        self.on_partitions_revoked(lost)


class ConsumerRebalanceListenerInvoker:
    """Calls a listener in the thread that polls, and measures the duration of its callbacks.

    Attributes:
        latencies: the latencies of the callbacks, by ``revoked``, ``assigned`` and ``lost``.
    """

    def __init__(
        self,
        now_ms: Callable[[], float],
        run_in_caller: Callable[[Callable[[], object]], object],
    ) -> None:
        """Start without a listener.

        Args:
            now_ms: the function that returns monotonic time in milliseconds.
            run_in_caller: the function that runs another one in the thread that polls.
        """
        self._run_in_caller = run_in_caller
        self.latencies = {name: Latency(now_ms) for name in ("revoked", "assigned", "lost")}

    def revoked(
        self, listener: ConsumerRebalanceListener | None, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_partitions_revoked``."""
        if listener is not None:
            self._invoke("revoked", listener.on_partitions_revoked, partitions)

    def assigned(
        self, listener: ConsumerRebalanceListener | None, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_partitions_assigned``."""
        if listener is not None:
            self._invoke("assigned", listener.on_partitions_assigned, partitions)

    def lost(
        self, listener: ConsumerRebalanceListener | None, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_partitions_lost``."""
        if listener is not None:
            self._invoke("lost", listener.on_partitions_lost, partitions)

    def _invoke(
        self,
        name: str,
        method: Callable[[set[TopicPartition]], object],
        partitions: Collection[TopicPartition],
    ) -> None:
        def call() -> None:
            with self.latencies[name].measure():
                method(set(partitions))

        self._run_in_caller(call)
