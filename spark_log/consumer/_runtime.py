"""The runtime of one `Consumer`: its parts, connected, until it is closed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TypeVar

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.consumer_metrics import ConsumerMetrics
from spark_log.consumer.fetch import Fetcher, resolver
from spark_log.consumer.group import CommitCallback, ConsumerCoordinator, ConsumerGroup
from spark_log.consumer.interceptors import ConsumerInterceptors
from spark_log.consumer.position import FetchPositions, OffsetFetcher, SubscriptionState
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListenerInvoker
from spark_log.consumer.record_factory import AnyDeserializer, RecordFactory
from spark_log.consumer.record_poller import RecordPoller
from spark_log.consumer.timed_calls import TimedCalls
from spark_log.errors import KafkaTimeoutError, UnstableOffsetCommitError
from spark_log.metadata import METADATA_DIRECTORY

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class ConsumerRuntime:
    """The parts of one consumer that live until `close`.

    In a poll, the `RecordPoller` lets the `ConsumerCoordinator` update the assignment from the
    metadata and the group, and `FetchPositions` find initial positions; then it makes records of
    the rows that the `Fetcher` has read ahead on a thread of its own. `ConsumerGroup` commits
    offsets on another thread. `TimedCalls` limits the time that a method waits for an object store.

    Attributes:
        calls: the calls that may wait for the storage.
        subscription: the subscription or assigned partitions, and the state of each partition.
        offset_fetcher: the lookup of offsets of logs.
        fetcher: the thread that reads ahead.
        group: the membership in the group, and the commits.
        positions: the positions of the assigned partitions.
        coordinator: the assignment.
        metrics: the metrics of all parts.
        poller: the loop of a poll.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        *,
        group_id: str | None,
        deserializers: tuple[AnyDeserializer | None, AnyDeserializer | None],
        interceptors: ConsumerInterceptors,
        commit_callback: CommitCallback | None,
    ) -> None:
        """Connect the parts; no thread is started, and nothing is read.

        Args:
            cluster: the opened root.
            config: the settings.
            group_id: the group, or None.
            deserializers: the deserializers of keys and of values.
            interceptors: the interceptors, which get returned records and committed offsets.
            commit_callback: the function that is called for each automatic commit.
        """
        clock = cluster.clock
        self._clock = clock
        self._config = config
        self._name = _log_name(config.client_id, group_id)
        self._deserializers = deserializers
        self._interceptors = interceptors
        self.calls = TimedCalls(
            cluster.root, clock, config.default_api_timeout_ms, is_local=cluster.store.is_local
        )
        self.subscription = SubscriptionState()
        self.offset_fetcher = OffsetFetcher(cluster, config.isolation_level)
        self.fetcher = Fetcher(
            cluster.store,
            config,
            also_watched=METADATA_DIRECTORY,
            now_ms=clock.monotonic_ms,
            resolve=resolver(cluster) if config.isolation_level == "read_committed" else None,
        )
        self.group = ConsumerGroup(
            cluster,
            config,
            group_id,
            self.subscription,
            on_change=self.fetcher.wake,
            on_commit=interceptors.on_commit,
            on_auto_commit=commit_callback,
        )
        committer = self.group.committer
        self.positions = FetchPositions(
            cluster,
            config,
            fetcher=self.fetcher,
            offset_fetcher=self.offset_fetcher,
            subscription=self.subscription,
            committed_offsets=None if committer is None else committer.initial_offsets,
        )
        listener_invoker = ConsumerRebalanceListenerInvoker(
            clock.monotonic_ms, self.calls.run_in_caller
        )
        self.coordinator = ConsumerCoordinator(
            cluster,
            config,
            name=self._name,
            fetcher=self.fetcher,
            positions=self.positions,
            subscription=self.subscription,
            group=self.group,
            listener_invoker=listener_invoker,
        )
        self.metrics = ConsumerMetrics(
            cluster,
            subscription=self.subscription,
            fetcher=self.fetcher,
            group=self.group,
            listener_invoker=listener_invoker,
        )
        self.poller = RecordPoller(
            clock,
            config,
            calls=self.calls,
            subscription=self.subscription,
            coordinator=self.coordinator,
            positions=self.positions,
            fetcher=self.fetcher,
            auto_commit=self.group.auto_commit,
            records=RecordFactory(*deserializers),
            interceptors=interceptors,
            metrics=self.metrics,
        )

    # --- between polls ---------------------------------------------------------------------------

    def stop_polling(self, name: str) -> None:
        """Wait until no call changes the positions, and drop records of an iteration.

        Args:
            name: the name of the consumer's method, for error messages.
        """
        self.calls.wait_until_idle(name)
        self.poller.discard_iterator()

    def finish_polling(self, name: str) -> None:
        """Finish what the last poll began, and commit, before the assignment changes.

        Args:
            name: the name of the consumer's method, for error messages.
        """
        self.calls.finish_update(name)
        self.poller.discard_iterator()
        self.group.auto_commit.commit_now(self._config.default_api_timeout_ms)

    def until_stable(
        self, name: str, call: Callable[[], _Result], timeout_ms: float | None
    ) -> Callable[[], _Result]:
        """Return a call that waits until the transactions that commit its offsets are decided.

        The call raises `KafkaTimeoutError` after its timeout, and `WakeupError` after a `wakeup`.

        Args:
            name: the name of the consumer's method, for error messages.
            call: the function; it raises `UnstableOffsetCommitError` until they are decided.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.
        """
        limit_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        until_ms = self._clock.monotonic_ms() + limit_ms

        def call_until_stable() -> _Result:
            while True:
                try:
                    return call()
                except UnstableOffsetCommitError as error:
                    left_ms = until_ms - self._clock.monotonic_ms()
                    if left_ms <= 0:
                        raise KafkaTimeoutError(
                            f"{name}: no committed offset within {limit_ms:g} ms: {error}"
                        ) from error
                    self.calls.check_wakeup()
                    self._clock.sleep_ms(min(left_ms, self._config.retry_backoff_ms))

        return call_until_stable

    # --- the end ---------------------------------------------------------------------------------

    def leave(self, timeout_ms: float | None, *, commits: bool) -> None:
        """Commit and leave the group until a deadline; after it both continue in the background.

        Args:
            timeout_ms: the maximum time to wait; None for no limit.
            commits: whether to commit positions if auto-commit is enabled.
        """
        due_ms = math.inf if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms

        def left_ms() -> float | None:
            if due_ms == math.inf:
                return None
            return max(0.0, due_ms - self._clock.monotonic_ms())

        try:
            self.calls.finish_update("close", left_ms())
        except KafkaTimeoutError as error:
            _log.warning("the consumer is closed, and leaves its group later: %s", error)
            self.calls.run_later(self.group.membership.leave)
            return
        self.poller.discard_iterator()
        try:
            if commits:
                self.group.auto_commit.commit_now(left_ms())
        finally:
            if not self.calls.run_while(lambda: self.coordinator.leave(left_ms()), left_ms):
                _log.warning("the consumer is closed, and leaves its group later")
            if self.group.committer is not None and due_ms < math.inf:
                self.group.committer.wait(left_ms())

    def close(self, *, waits: bool) -> None:
        """Release the resources of the parts, after the threads of the consumer were ended.

        Args:
            waits: whether to return only after the last commit has ended.
        """
        self.subscription.partitions.clear()
        if self.group.committer is not None:
            self.group.committer.close(waits=waits)
        for deserializer in self._deserializers:
            if callable(close := getattr(deserializer, "close", None)):
                close()
        self._interceptors.close()
        _log.info("%s: closed", self._name)


def _log_name(client_id: str, group_id: str | None) -> str:
    """Return the name of a consumer in log lines."""
    name = f"consumer {client_id}".rstrip()
    return name if group_id is None else f"{name} of group {group_id}"
