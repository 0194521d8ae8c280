"""`Consumer`: reads topics as kafka-python's KafkaConsumer does. No JVM, no server."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack

import pyarrow as pa

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.config import ConsumerConfig
from spark_log.consumer.commit_request_manager import CommitRequestManager
from spark_log.consumer.consumer_metrics import ConsumerMetrics
from spark_log.consumer.consumer_records import (
    AnyDeserializer,
    RecordFactory,
    checked_deserializers,
)
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.fetch_positions import FetchPositions
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
from spark_log.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors, Records
from spark_log.consumer.offset_fetcher import OffsetFetcher
from spark_log.consumer.rebalance_listener import (
    ConsumerRebalanceListener,
    ConsumerRebalanceListenerInvoker,
)
from spark_log.consumer.record_poller import RecordPoller
from spark_log.consumer.single_thread import SingleThread
from spark_log.consumer.storage_executor import API_TIMEOUT, StorageExecutor
from spark_log.consumer.subscription_state import (
    SubscriptionState,
    checked_partitions,
    shown_partitions,
)
from spark_log.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    KafkaTimeoutError,
    check_unicode,
)
from spark_log.foreign_methods import ForeignMethods
from spark_log.metadata import MetadataImage
from spark_log.metadata.cluster import open_cluster
from spark_log.metadata.metadata_log import DIRECTORY as METADATA_DIRECTORY
from spark_log.metrics_reporters import MetricsReporters, ReporterOrFactory
from spark_log.storage import StorageOptions
from spark_log.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    from spark_log.config.settings import ConsumerSettings

_log = logging.getLogger(__name__)

_MIN_PLAUSIBLE_MS = 10.0
"""A float timeout below this is probably meant in seconds."""

_has_warned_of_seconds = False


class Consumer(ForeignMethods):
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
        clock: Clock = SYSTEM_CLOCK,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        metric_reporters: Sequence[ReporterOrFactory] = (),
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
            KafkaTimeoutError, StorageUnavailableError: the storage does not answer, or not within
                ``default.api.timeout.ms``; try again.
        """
        self.config = ConsumerConfig.parse(config)
        self.group_id = _checked_group_id(group_id)
        self._reporters = MetricsReporters(metric_reporters)
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        if topics and isinstance(topics[0], Mapping):
            raise InvalidConfigurationError(
                "settings are keyword arguments, not a dict: "
                "Consumer('topic', root='/data/log', group_id='…', auto_offset_reset='earliest')"
            )
        self._cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=self.config.default_api_timeout_ms,
            setting=API_TIMEOUT,
            request_timeout_ms=self.config.request_timeout_ms,
        )
        self._clock = clock
        self._thread = SingleThread()
        self._is_closed = False
        self._deserializers = deserializers
        self._interceptors = ConsumerInterceptors(interceptors)
        self._commit_callback = default_offset_commit_callback
        self._connect_parts()
        # A consumer that is garbage-collected without `close` leaves no thread.
        self._finalizer = weakref.finalize(self, _end_threads, self._fetcher, self._executor)
        if topics:
            self.subscribe(topics)
        self._reporters.open(
            self._metrics.metrics,
            self.config,
            self.config.client_id,
            clock,
            self._cluster.suppressed,
        )

    def _connect_parts(self) -> None:
        """Create the objects to which the methods delegate."""
        cluster, config, clock = self._cluster, self.config, self._clock
        self._executor = StorageExecutor(
            cluster.root, clock, config.default_api_timeout_ms, is_mapped=cluster.store.is_mapped
        )
        self._subscription = SubscriptionState()
        self._offset_fetcher = OffsetFetcher(cluster)
        self._fetcher = Fetcher(
            cluster.store, config, also_watched=METADATA_DIRECTORY, now_ms=clock.monotonic_ms
        )
        coordinator_metrics = CoordinatorMetrics(clock.monotonic_ms)
        self._membership: Membership = StandaloneMembership()
        self._committer = None
        if self.group_id is not None:
            self._membership = GroupMembership(
                cluster, self.group_id, config, self._fetcher.wake, coordinator_metrics
            )
            self._committer = Committer(
                cluster,
                self.group_id,
                self._membership,
                self._subscription,
                coordinator_metrics.commits,
            )
        self._auto_commit = AutoCommit(
            self._subscription,
            self._committer if config.enable_auto_commit else None,
            config.auto_commit_interval_ms,
            clock,
            self._commit_callback,
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
            RecordFactory(*self._deserializers),
            self._interceptors,
            self._metrics,
        )
        self._commits = CommitRequestManager(
            cluster,
            self._subscription,
            self._committer,
            self._auto_commit,
            self._executor,
            self._interceptors,
        )

    # --- subscription ----------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, instead of those assigned before.

        The consumer does not become a member of its group. Partitions that stay assigned keep their
        positions.

        Args:
            partitions: the partitions; an empty list means `unsubscribe`.

        Raises:
            IllegalStateError: the consumer subscribes to topics, or is closed.
            UnknownTopicOrPartitionError: a partition does not exist; nothing is changed.
        """
        wanted = checked_partitions(partitions)
        with self._acquire():
            if not wanted:
                self.unsubscribe()
                return
            self._finish_polling("assign")
            self._executor.run("assign", lambda: self._coordinator.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions; those of a subscription are assigned by `poll`."""
        with self._acquire():
            return set(self._subscription.partitions)

    def subscribe(
        self,
        topics: Collection[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read topics, instead of those subscribed before.

        The next `poll` assigns the partitions. Partitions and topics that are created later are
        assigned by a later poll. The partitions of a deleted topic leave the assignment; a topic
        that is created again under the same name is a new topic.

        With a ``group_id`` the next `poll` joins the group. Partitions are assigned and revoked
        only inside of `poll`, and no partition is read by two members at a time. A member that does
        not poll for ``max.poll.interval.ms``, or whose process is silent for
        ``session.timeout.ms``, loses its partitions.

        Args:
            topics: names of topics. A topic that does not exist is logged as a warning.
            pattern: a regular expression instead of names; it matches from the start of a name.
            listener: called when the assignment changes.

        Raises:
            IllegalStateError: partitions are assigned, or topics and a pattern are given.
            ValueError: neither topics nor a pattern is given, or the pattern is no regular
                expression.
            TypeError: an argument has the wrong type.
            InvalidTopicError: a name is not valid for a topic.
        """
        with self._acquire():
            self._finish_polling("subscribe")
            self._subscription.subscribe(topics, pattern, listener)
            self._coordinator.request_update()

    def subscription(self) -> set[str] | None:
        """Return the names of the subscribed topics, None without a subscription."""
        with self._acquire():
            if not self._subscription.is_subscribed:
                return None
            exclude = self.config.exclude_internal_topics
            image = self._image("subscription")
            return set(self._subscription.topics(image, exclude_internal=exclude))

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group. With auto-commit, commits the positions first.

        The listener is called before the consumer leaves. The place of a static member is kept
        (KIP-345).
        """
        with self._acquire():
            self._finish_polling("unsubscribe")
            self._executor.run("unsubscribe", self._coordinator.unsubscribe)

    # --- polling ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return the next records; wait for them if there are none.

        As in Kafka, the first poll starts to read ahead: with ``timeout_ms=0`` it mostly returns
        nothing. On an object store, joining the group and finding positions may take longer than
        ``timeout_ms``. They then continue in the background, and the next poll waits for them.

        Args:
            timeout_ms: how long to wait, in milliseconds. After that the result is empty, also if
                the storage does not answer. A float below 10 causes a warning, because it is
                probably meant in seconds.
            max_records: maximum number of records; None: ``max.poll.records``.

        Returns:
            Lists of records in offset order, by partition.

        Raises:
            RecordDeserializationError: a record cannot be deserialized. The records before it were
                returned; the position stays at the record until a seek.
            OffsetOutOfRangeError: the position is not in the log, and ``auto.offset.reset`` is
                ``none``.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            LogTruncatedError: offsets that were read or committed lie after the log's end.
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            CorruptRecordError: stored bytes are damaged; seek to skip them.
            WakeupError: `wakeup` was called.
            FencedInstanceIdError: another process took over the ``group.instance.id``.
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group refuses the consumer.
            IllegalStateError: nothing is assigned or subscribed, or the consumer is closed.
        """
        _warn_of_seconds(timeout_ms)
        limit = self.config.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._acquire():
            return self._poller.poll(timeout_ms, limit)

    def poll_table(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table:
        """Return the next records as an Arrow table; wait for them if there are none.

        Keys, values, timestamps and headers are not copied. They are memory-mapped if the root is
        local and the segments are not compressed.

        Args:
            timeout_ms: how long to wait, in milliseconds. After that the table is empty.
            max_records: maximum number of rows; None: all rows that were fetched ahead
                (``fetch.max.bytes``).

        Returns:
            A table with the columns of the Spark source (`TABLE_SCHEMA`): key, value: binary;
            topic: string; partition: int32; offset: int64; timestamp: timestamp[us, UTC];
            timestampType: int32; headers: list<struct<key: string, value: binary>>. Rows of one
            partition are in offset order.

        Raises:
            SparkLogError: the errors of `poll` except `RecordDeserializationError`.
        """
        _warn_of_seconds(timeout_ms)
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; give at least 1")
        with self._acquire():
            return self._poller.poll_table(timeout_ms, max_records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record.

        Iteration ends if there is none for ``consumer.timeout.ms``, and when the consumer is
        closed.
        """
        if self._is_closed:
            raise StopIteration
        with self._acquire():
            record = self._poller.next_record()
            if record is None:
                raise StopIteration
            return record

    # --- positions -------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at an offset.

        Raises:
            IllegalStateError: the partition is not assigned.
            TypeError: the offset is no int.
            ValueError: the offset is negative.
        """
        checked_partitions([partition])
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"offset {offset!r} is a {type(offset).__name__}; give an int")
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the first offset is 0")
        with self._acquire():
            self._stop_polling("seek")
            self._positions.seek(partition, offset)
            self._subscription.state(partition).is_sought = True

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue these partitions, or all, at their first offset, which the next poll finds.

        Raises:
            IllegalStateError: a partition is not assigned, or no partition is.
        """
        self._seek_to("earliest", partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue these partitions, or all, at their end, which the next poll finds.

        Raises:
            IllegalStateError: a partition is not assigned, or no partition is.
        """
        self._seek_to("latest", partitions)

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that is returned.

        Args:
            partition: an assigned partition.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            IllegalStateError: the partition is not assigned.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked_partitions([partition])
        with self._acquire():
            known = self._subscription.state(partition).position
            if known is not None:
                return known
            return self._executor.run(
                "position", lambda: self._positions.position(partition), timeout_ms
            )

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._for_each("pause", partitions, self._positions.pause)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._for_each("resume", partitions, self._positions.resume)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._acquire():
            return self._subscription.paused()

    def _seek_to(
        self, policy: Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> None:
        checked = checked_partitions(partitions)
        with self._acquire():
            self._stop_polling("seek")
            chosen = checked or list(self._subscription.partitions)
            if not chosen:
                raise IllegalStateError("no partitions are assigned to this consumer")
            for tp in chosen:
                self._subscription.state(tp)
            for tp in chosen:
                self._positions.reset(tp, policy)

    def _for_each(
        self,
        name: str,
        partitions: Sequence[TopicPartition],
        call: Callable[[TopicPartition], None],
    ) -> None:
        """Call a function for each partition, if all of them are assigned."""
        checked = checked_partitions(partitions)
        with self._acquire():
            self._stop_polling(name)
            for tp in checked:
                self._subscription.state(tp)
            for tp in checked:
                call(tp)

    # --- topics and logs -------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: need not be assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            views = self._executor.run(
                "beginning_offsets", lambda: self._offset_fetcher.views(checked), timeout_ms
            )
            return {tp: view.log_start_offset for tp, view in views.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the next record that is appended to each partition.

        Args:
            partitions: need not be assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            views = self._executor.run(
                "end_offsets", lambda: self._offset_fetcher.views(checked), timeout_ms
            )
            return {tp: view.log_end_offset for tp, view in views.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, by partition; None if there is none.

        Args:
            timestamps: milliseconds since the epoch, by partition. The partitions need not be
                assigned.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            ValueError: a time is negative.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        times_us = {}
        for tp, timestamp_ms in timestamps.items():
            checked_partitions([tp])
            if timestamp_ms < 0:
                raise ValueError(f"{tp}: time {timestamp_ms} is negative; give ms since 1970")
            times_us[tp] = int(timestamp_ms) * 1000
        with self._acquire():
            return self._executor.run(
                "offsets_for_times",
                lambda: self._offset_fetcher.offsets_for_times(times_us),
                timeout_ms,
            )

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and current end, by partition.

        Args:
            partitions: assigned partitions; none: all assigned partitions.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            return self._executor.run("lag", lambda: self._lag(checked))

    def _lag(self, checked: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        chosen = checked or list(self._subscription.partitions)
        positions = {tp: self._positions.position(tp) for tp in chosen}
        views = self._offset_fetcher.views(chosen)
        return {tp: max(0, views[tp].log_end_offset - positions[tp]) for tp in chosen}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the log end offset that the fetcher read last, None before its first read.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        checked_partitions([partition])
        with self._acquire():
            self._subscription.state(partition)
            return self._fetcher.end_offset(partition)

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int] | None:
        """Return the partition numbers of a topic, None if the topic does not exist.

        Args:
            topic: name of the topic.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        with self._acquire():
            found = self._image("partitions_for_topic", timeout_ms).find(topic)
            return None if found is None else set(found.partitions)

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics.

        Args:
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        with self._acquire():
            return {topic.name for topic in self._image("topics", timeout_ms).topics()}

    # --- committed offsets -----------------------------------------------------------------------

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, None if there is none.

        Args:
            partition: need not be assigned.
            metadata: whether to return an `OffsetAndMetadata` instead of the offset.
            timeout_ms: how long to wait for an object store; None: ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            StorageError: the table of offsets cannot be read.
            KafkaTimeoutError: an object store did not answer within the timeout.
        """
        checked_partitions([partition])
        with self._acquire():
            found = self._commits.committed(partition, timeout_ms)
            return found if found is None or metadata else found.offset

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets, all or none. They are durable when the method returns.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            timeout_ms: how long to wait; None: ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            InvalidConfigurationError: the metadata of an offset is not Unicode text; nothing was
                committed.
            UnknownTopicOrPartitionError: a topic or partition does not exist; nothing was
                committed.
            CommitFailedError: the commit failed. For a member of a group this may mean that it lost
                one of the partitions, and that others may read the records again. For a consumer
                with assigned partitions it may mean that the group has members.
            UnknownOutcomeError: it is not known whether the commit took effect; commit again.
            KafkaTimeoutError: the topics could not be read; nothing was committed.
        """
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        with self._acquire():
            future = self._commits.submit(offsets, None)
        self._commits.wait(future, limit_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """Commit offsets without waiting, after all earlier commits.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            callback: called with the offsets, and with None or the error, on another thread. None:
                the ``default_offset_commit_callback``.

        Returns:
            A future that is done when the offsets are durable; its errors are those of `commit`.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        with self._acquire():
            return self._commits.submit(offsets, callback or self._commit_callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group (KIP-447).

        It is of the generation whose assignment the last `poll` applied, so it changes only inside
        of `poll`. Before the first `poll`, and for assigned partitions, it has no member id. Reads
        nothing from the storage.
        """
        with self._acquire():
            return self._membership.group_metadata()

    # --- wakeup, metrics, end --------------------------------------------------------------------

    def wakeup(self) -> None:
        """Let the current poll, or the next one, raise `WakeupError`. Any thread may call this."""
        self._executor.wakeup()
        self._fetcher.wake()

    def _forget_wakeup(self) -> None:
        """Undo a `wakeup` that raised no error yet."""
        self._executor.forget_wakeup()

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name, as in Kafka.

        Totals, averages and maxima cover the lifetime of the consumer; latencies are in
        milliseconds. ``records-lag-max`` uses the log end offsets that the fetcher read last. The
        group ``suppressed-errors`` counts failures without which the consumer could continue, such
        as of an index: a total, and a count for each kind that occurred. Each cause is logged once.
        """
        with self._acquire():
            return self._metrics.metrics()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit positions if auto-commit is enabled, leave the group, and release all resources.

        The other members get the partitions at once; those of a static member only after
        ``session.timeout.ms``. Does nothing if already closed.

        Args:
            autocommit: False: do not commit.
            timeout_ms: how long to wait for the commit and for leaving. None: without limit on a
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
        """Close. After an exception nothing is committed: a record may not be processed yet."""
        self.close(autocommit=kind is None)

    # --- helpers ---------------------------------------------------------------------------------

    def _acquire(self) -> SingleThread:
        if self._is_closed:
            raise IllegalStateError("the consumer is closed; create another one")
        return self._thread

    def _image(self, name: str, timeout_ms: float | None = None) -> MetadataImage:
        return self._executor.run_stateless(name, self._cluster.image, timeout_ms)

    def _stop_polling(self, name: str) -> None:
        """Wait until no call changes the positions, and drop records of an iteration."""
        self._executor.wait_until_idle(name)
        self._poller.discard_iterator()

    def _finish_polling(self, name: str) -> None:
        """Finish what the last poll began, and commit, before the assignment changes."""
        self._executor.finish_update(name)
        self._poller.discard_iterator()
        self._auto_commit.commit_now(self.config.default_api_timeout_ms)

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


def _warn_of_seconds(timeout_ms: float) -> None:
    """Warn once per process of a timeout that was probably meant in seconds."""
    global _has_warned_of_seconds  # noqa: PLW0603 - once per process
    if (
        isinstance(timeout_ms, float)
        and 0 < timeout_ms < _MIN_PLAUSIBLE_MS
        and not _has_warned_of_seconds
    ):
        _has_warned_of_seconds = True
        warnings.warn(
            f"poll({timeout_ms!r}) waits for {timeout_ms:g} milliseconds, as in kafka-python: for "
            f"seconds, as in confluent-kafka, give poll(timeout_ms={timeout_ms * 1000:g})",
            stacklevel=3,
        )


def _end_threads(fetcher: Fetcher, executor: StorageExecutor) -> None:
    """End the threads of a consumer; a thread that waits for the storage ends with its request."""
    executor.close()
    fetcher.close()
