"""`Consumer`: reads topics as kafka-python's KafkaConsumer does. No JVM, no server."""

from __future__ import annotations

import logging
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from spark_log.cluster import open_cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.group import CommitCallback
from spark_log.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors
from spark_log.consumer.operations import (
    CommitOperations,
    PollOperations,
    PositionOperations,
    SubscriptionOperations,
    TopicOperations,
)
from spark_log.consumer.position import shown_partitions
from spark_log.consumer.record_factory import AnyDeserializer, checked_deserializers
from spark_log.consumer.timed_calls import API_TIMEOUT, StorageExecutor
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    check_unicode,
)
from spark_log.metrics import ClientMetrics, MetricsReporters, ReporterOrFactory, definitions
from spark_log.storage import StorageOptions
from spark_log.util import SYSTEM_CLOCK, Clock, ForeignMethods

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from spark_log.config import BrokerOptions, ConsumerSettings

_log = logging.getLogger(__name__)


class Consumer(
    SubscriptionOperations,
    PollOperations,
    PositionOperations,
    TopicOperations,
    CommitOperations,
    ForeignMethods,
):
    """Reads records of one cluster root.

    Names, signatures and meaning are those of kafka-python's KafkaConsumer. Consumers that
    subscribe with the same ``group_id`` share the partitions. When a consumer of the group ends,
    the others continue its partitions at the last committed offsets. A consumer without a
    ``group_id`` reads every partition.

    The records of a partition are returned in offset order, without gaps and without duplicates.
    After a crash the position is lost; a consumer with a ``group_id`` continues at the last
    committed offset.

    One thread at a time may use a consumer. Only `wakeup` may be called by any thread.

    Attributes:
        config: the settings.
        group_id: the group, or None.
    """

    def __init__(
        self,
        *topics: str,
        root: str | os.PathLike[str] | None = None,
        group_id: str | None = None,
        storage_options: StorageOptions | None = None,
        broker_storage_options: BrokerOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        metric_reporters: Sequence[ReporterOrFactory] = (),
        metrics_port: int | None = None,
        metrics_registry: CollectorRegistry | None = None,
        default_offset_commit_callback: CommitCallback | None = None,
        **config: Unpack[ConsumerSettings],
    ) -> None:
        """Open a root, and subscribe to topics if any are given.

        Args:
            topics: names of topics to subscribe to, as by `subscribe`.
            root: path or URL of the cluster root; required.
            group_id: the group that commits offsets and shares the partitions of subscribed topics.
                None: no commits, and no sharing.
            storage_options: options of the file system; never logged or printed.
            broker_storage_options: broker id → storage options of its root. A broker without them
                has ``storage_options``, if its URL has the same scheme as the root. Never shown.
            clock: gives time for ages and intervals.
            key_deserializer: a function of a key's bytes, or an object with ``deserialize(topic,
                bytes)``. A null key stays None. `poll_table` does not use it.
            value_deserializer: a function of a value's bytes, or an object with
                ``deserialize(topic, bytes)``. A null value stays None. `poll_table` does not use
                it.
            interceptors: called in this order; the errors that they raise are logged. `poll_table`
                does not call them.
            metric_reporters: objects with the methods of kafka-python's
                ``AbstractMetricsReporter``, or classes and functions that return one. They are told
                of the values of `metrics`.
            metrics_port: port on 127.0.0.1 at which Prometheus can read the metrics until `close`
                (docs/metrics.md). Clients of one process may have the same port.
            metrics_registry: a registry of prometheus_client, which has the metrics until `close`.
            default_offset_commit_callback: called for each automatic commit, and for each
                `commit_async` without a callback, with the offsets, and with None or the error, on
                another thread.
            config: keys of `ConsumerConfig` in snake_case, or dotted from a ``dict[str, Any]``.

        Raises:
            InvalidConfigurationError: a key is unknown, or a value is not valid.
            InvalidGroupIdError: the group id is empty, or not Unicode text.
            RootNotFoundError: the root does not exist.
            InvalidRootError: the root's files are not those of a cluster.
            UnsupportedStoreError: the storage lacks a capability that the log needs.
            KafkaTimeoutError: the storage does not answer within ``default.api.timeout.ms``; try
                again.
        """
        settings = ConsumerConfig.parse(config)
        checked_group_id = _checked_group_id(group_id)
        self._reporters = MetricsReporters(metric_reporters)
        self._client_metrics = ClientMetrics(metrics_port, metrics_registry)
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        if topics and isinstance(topics[0], Mapping):
            raise InvalidConfigurationError(
                "settings are keyword arguments, not a dict: "
                "Consumer('topic', root='/data/log', group_id='…', auto_offset_reset='earliest')"
            )
        cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=settings.default_api_timeout_ms,
            setting=API_TIMEOUT,
            request_timeout_ms=settings.request_timeout_ms,
            broker_options=broker_storage_options,
            client_rack=settings.client_rack,
        )
        super().__init__(
            cluster,
            settings,
            checked_group_id,
            deserializers,
            ConsumerInterceptors(interceptors),
            default_offset_commit_callback,
        )
        # A consumer that is garbage-collected without `close` leaves no thread.
        self._finalizer = weakref.finalize(self, _end_threads, self._fetcher, self._executor)
        if topics:
            self.subscribe(topics)
        self._reporters.open(
            self._metrics.metrics, settings, settings.client_id, clock, cluster.suppressed
        )
        self._client_metrics.open(
            settings.client_id,
            cluster.store,
            cluster.suppressed,
            definitions.CONSUMER,
            self._metrics.reading,
        )

    def wakeup(self) -> None:
        """Let the current poll, or the next one, raise `WakeupError`. Any thread may call this."""
        self._executor.wakeup()
        self._fetcher.wake()

    def _forget_wakeup(self) -> None:
        """Undo a `wakeup` that has raised no error yet."""
        self._executor.forget_wakeup()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name, as in Kafka.

        Totals, averages and maxima cover the lifetime of the consumer; latencies are in
        milliseconds. ``records-lag-max`` uses the log end offsets that the fetcher read last. The
        group ``suppressed-errors`` counts failures despite which the consumer continued, such as a
        damaged index: a total, and a count for each kind that occurred. Each cause is logged once.
        """
        with self._acquire():
            return self._metrics.metrics()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit positions if auto-commit is enabled, leave the group, and release all resources.

        The other members get the partitions at once; those of a static member only after
        ``session.timeout.ms``. Does nothing if already closed.

        Args:
            autocommit: whether to commit positions if auto-commit is enabled.
            timeout_ms: the maximum time to wait for the commit and for leaving. None: no limit on a
                local root, ``default.api.timeout.ms`` on an object store. If the storage does not
                answer in this time, the group expires the consumer after ``session.timeout.ms``.
        """
        if self._is_closed:
            return
        if timeout_ms is None and self._executor.is_limited:
            timeout_ms = self.config.default_api_timeout_ms
        due_ms = math.inf if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        with self._acquire():
            try:
                self._leave(autocommit, due_ms)
            finally:
                self._is_closed = True
                self._finalizer()
                self._subscription.partitions.clear()
                if self._committer is not None:
                    self._committer.close(waits=timeout_ms is None)
                for deserializer in self._deserializers:
                    if callable(close := getattr(deserializer, "close", None)):
                        close()
                self._interceptors.close()
                self._reporters.close()
                self._client_metrics.close()
                self._cluster.release()

    def __repr__(self) -> str:
        group = "" if self.group_id is None else f" group_id={self.group_id!r}"
        held = list(self._subscription.partitions)
        assignment = f"assignment=[{shown_partitions(held) if held else ''}]"
        state = "closed" if self._is_closed else assignment
        return f"<Consumer root={self._cluster.root!r}{group} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Close. After an exception nothing is committed: some records may not be processed yet."""
        self.close(autocommit=kind is None)

    def _leave(self, autocommit: bool, due_ms: float) -> None:
        """Commit and leave the group until a deadline; after it both continue in the background."""

        def left_ms() -> float | None:
            if due_ms == math.inf:
                return None
            return max(0.0, due_ms - self._clock.monotonic_ms())

        try:
            self._executor.finish_update("close", left_ms())
        except KafkaTimeoutError as error:
            _log.warning("the consumer is closed, and leaves its group later: %s", error)
            self._executor.run_later(self._membership.leave)
            return
        self._poller.discard_iterator()
        try:
            if autocommit:
                self._auto_commit.commit_now(left_ms())
        finally:
            if not self._executor.run_while(lambda: self._coordinator.leave(left_ms()), left_ms):
                _log.warning("the consumer is closed, and leaves its group later")
            if self._committer is not None and due_ms < math.inf:
                self._committer.wait(left_ms())


def _checked_group_id(group_id: str | None) -> str | None:
    if group_id is not None:
        if not isinstance(group_id, str) or not group_id:
            raise InvalidGroupIdError(f"group_id is {group_id!r}; give a name, or None")
        check_unicode("group_id", group_id, InvalidGroupIdError)
    return group_id


def _end_threads(fetcher: Fetcher, executor: StorageExecutor) -> None:
    """End the threads of a consumer; a thread that waits for the storage ends with its request."""
    executor.close()
    fetcher.close()
