"""The base of all subjects of `Consumer`: its parts, its one thread, and the end of a poll."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.consumer_metrics import ConsumerMetrics
from spark_log.consumer.fetch import Fetcher, resolver
from spark_log.consumer.group import (
    AutoCommit,
    CommitCallback,
    Committer,
    ConsumerCoordinator,
    CoordinatorMetrics,
    GroupMembership,
    Membership,
    StandaloneMembership,
)
from spark_log.consumer.interceptors import ConsumerInterceptors
from spark_log.consumer.position import FetchPositions, OffsetFetcher, SubscriptionState
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListenerInvoker
from spark_log.consumer.record_factory import AnyDeserializer, RecordFactory
from spark_log.consumer.record_poller import RecordPoller
from spark_log.consumer.single_thread import SingleThread
from spark_log.consumer.timed_calls import StorageExecutor
from spark_log.errors import IllegalStateError, KafkaTimeoutError, UnstableOffsetCommitError
from spark_log.metadata import METADATA_DIRECTORY, MetadataImage

_Result = TypeVar("_Result")


class ConsumerAccess:
    """Connects the parts of one consumer, and lets one thread at a time use them.

    In a poll, the `ConsumerCoordinator` updates the assignment from the metadata and the group,
    `FetchPositions` finds initial positions, the `Fetcher` reads ahead on a thread of its own, and
    the `RecordPoller` makes records of fetched rows. The `Committer` writes offsets on another
    thread, for commits of the user and of `AutoCommit`. The `StorageExecutor` limits the time that
    a method waits for an object store.

    Attributes:
        config: the settings.
        group_id: the group, or None.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        group_id: str | None,
        deserializers: tuple[AnyDeserializer | None, AnyDeserializer | None],
        interceptors: ConsumerInterceptors,
        commit_callback: CommitCallback | None,
    ) -> None:
        """Create the parts; nothing is read yet.

        Args:
            cluster: the opened root.
            config: the settings.
            group_id: the group, or None.
            deserializers: the deserializers of keys and of values.
            interceptors: the interceptors, which get returned records and committed offsets.
            commit_callback: the function that is called for commits without their own callback.
        """
        self.config = config
        self.group_id = group_id
        self._cluster = cluster
        self._clock = clock = cluster.clock
        self._deserializers = deserializers
        self._interceptors = interceptors
        self._commit_callback = commit_callback
        self._thread = SingleThread()
        self._is_closed = False
        self._executor = StorageExecutor(
            cluster.root, clock, config.default_api_timeout_ms, is_mapped=cluster.store.is_mapped
        )
        self._subscription = SubscriptionState()
        self._offset_fetcher = OffsetFetcher(cluster, config.isolation_level)
        reads_committed = config.isolation_level == "read_committed"
        self._fetcher = Fetcher(
            cluster.store,
            config,
            also_watched=METADATA_DIRECTORY,
            now_ms=clock.monotonic_ms,
            resolve=resolver(cluster) if reads_committed else None,
        )
        coordinator_metrics = CoordinatorMetrics(clock.monotonic_ms)
        self._membership: Membership = StandaloneMembership()
        self._committer = None
        if group_id is not None:
            self._membership = GroupMembership(
                cluster, group_id, config, self._fetcher.wake, coordinator_metrics
            )
            self._committer = Committer(
                cluster,
                group_id,
                self._membership,
                self._subscription,
                coordinator_metrics.commits,
                interceptors.on_commit,
            )
        self._auto_commit = AutoCommit(
            self._subscription,
            self._committer if config.enable_auto_commit else None,
            config.auto_commit_interval_ms,
            clock,
            commit_callback,
        )
        self._positions = FetchPositions(
            cluster,
            config,
            self._fetcher,
            self._offset_fetcher,
            self._subscription,
            self._membership,
            self._committer,
        )
        listener_invoker = ConsumerRebalanceListenerInvoker(
            clock.monotonic_ms, self._executor.run_in_caller
        )
        self._coordinator = ConsumerCoordinator(
            cluster,
            config,
            self._fetcher,
            self._offset_fetcher,
            self._positions,
            self._subscription,
            self._membership,
            self._committer,
            self._auto_commit,
            coordinator_metrics,
            listener_invoker,
        )
        self._metrics = ConsumerMetrics(
            cluster,
            self._subscription,
            self._fetcher,
            self._membership,
            coordinator_metrics,
            listener_invoker,
        )
        self._poller = RecordPoller(
            clock,
            config,
            self._subscription,
            self._fetcher,
            self._positions,
            self._coordinator,
            self._auto_commit,
            self._executor,
            RecordFactory(*deserializers),
            interceptors,
            self._metrics,
        )

    def _acquire(self) -> SingleThread:
        if self._is_closed:
            raise IllegalStateError("the consumer is closed; create another one")
        return self._thread

    def _image(self, name: str, timeout_ms: float | None = None) -> MetadataImage:
        return self._executor.run_stateless(name, self._cluster.image, timeout_ms)

    def _stable(
        self, name: str, call: Callable[[], _Result], timeout_ms: float | None
    ) -> Callable[[], _Result]:
        """Return a call that waits until the transactions that commit its offsets are decided.

        The call raises `KafkaTimeoutError` after its timeout, and `WakeupError` after a `wakeup`.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
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
                    self._executor.check_wakeup()
                    self._clock.sleep_ms(min(left_ms, self.config.retry_backoff_ms))

        return call_until_stable

    def _stop_polling(self, name: str) -> None:
        """Wait until no call changes the positions, and drop records of an iteration."""
        self._executor.wait_until_idle(name)
        self._poller.discard_iterator()

    def _finish_polling(self, name: str) -> None:
        """Finish what the last poll began, and commit, before the assignment changes."""
        self._executor.finish_update(name)
        self._poller.discard_iterator()
        self._auto_commit.commit_now(self.config.default_api_timeout_ms)
