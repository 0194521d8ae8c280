"""`Consumer`: reads topics as kafka-python's KafkaConsumer does. No JVM, no server."""

from __future__ import annotations

import os
import re
import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack

import pyarrow as pa

from spark_log.cluster import open_cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer._runtime import ConsumerRuntime
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.group import CommitCallback
from spark_log.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors, Records
from spark_log.consumer.key_reader import checked_key
from spark_log.consumer.position import checked_partitions, checked_times_us, shown_partitions
from spark_log.consumer.rebalance_listener import ConsumerRebalanceListener
from spark_log.consumer.record_factory import AnyDeserializer, checked_deserializers
from spark_log.consumer.single_thread import SingleThread
from spark_log.consumer.timed_calls import API_TIMEOUT, TimedCalls
from spark_log.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidGroupIdError,
    check_unicode,
)
from spark_log.metadata import MetadataImage
from spark_log.metrics import ClientMetrics, MetricsReporters, ReporterOrFactory, definitions
from spark_log.storage import StorageOptions
from spark_log.types import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from spark_log.util import SYSTEM_CLOCK, Clock, ForeignMethods

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from spark_log.config import BrokerOptions, ConsumerSettings

_MIN_PLAUSIBLE_MS: Final = 10.0
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

    A method that waits longer than its ``timeout_ms``, or than ``default.api.timeout.ms`` if it has
    none, raises `KafkaTimeoutError`; `poll` and `poll_table` return no records instead. A read or
    write of a local root is not interrupted: it lasts as long as the operating system needs.

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
            root: path or URL of the cluster root. It has to be given: None is refused.
            group_id: the group that commits offsets and shares the partitions of subscribed topics.
                None: no commits, and no sharing.
            storage_options: options of the file system; never logged or printed.
            broker_storage_options: broker id → storage options of its root. A broker without them
                has ``storage_options``, if its URL has the same scheme as the root. Never shown.
            clock: the clock for ages and intervals.
            key_deserializer: a function of a key's bytes, or an object with ``deserialize(topic,
                bytes)``. A null key stays None. `poll_table` does not use it.
            value_deserializer: a function of a value's bytes, or an object with
                ``deserialize(topic, bytes)``. A null value stays None. `poll_table` does not use
                it.
            interceptors: the interceptors, in the order of their calls; the errors that they raise
                are logged. `poll_table` does not call them.
            metric_reporters: objects with the methods of kafka-python's
                ``AbstractMetricsReporter``, or classes and functions that return one. They get the
                values of `metrics`.
            metrics_port: the port on 127.0.0.1 at which Prometheus can read the metrics until
                `close` (docs/metrics.md). Clients of one process may have the same port.
            metrics_registry: a registry of prometheus_client, which has the metrics until `close`.
            default_offset_commit_callback: the function that is called on another thread after each
                automatic commit, and after each `commit_async` without a callback. Its arguments
                are the offsets, and the error of the commit (None if it succeeded).
            config: the keys of `ConsumerConfig` in snake_case, or dotted from a ``dict[str, Any]``.

        Raises:
            InvalidConfigurationError: a key is unknown, or a value is not valid.
            InvalidGroupIdError: the group id is empty, or not Unicode text.
            RootNotFoundError: the root does not exist.
            InvalidRootError: the root's files are not those of a cluster.
            UnsupportedStoreError: the storage lacks a capability that the log needs.
            KafkaTimeoutError: the storage does not answer within ``default.api.timeout.ms``; try
                again.
        """
        self.config = settings = ConsumerConfig.parse(config)
        self.group_id = _checked_group_id(group_id)
        self._reporters = MetricsReporters(metric_reporters)
        self._client_metrics = ClientMetrics(metrics_port, metrics_registry)
        deserializers = checked_deserializers(key_deserializer, value_deserializer)
        if topics and isinstance(topics[0], Mapping):
            raise InvalidConfigurationError(
                "settings are keyword arguments, not a dict: "
                "Consumer('topic', root='/data/log', group_id='…', auto_offset_reset='earliest')"
            )
        self._cluster = cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=settings.default_api_timeout_ms,
            setting=API_TIMEOUT,
            request_timeout_ms=settings.request_timeout_ms,
            broker_options=broker_storage_options,
            client_rack=settings.client_rack,
        )
        self._commit_callback = default_offset_commit_callback
        self._thread = SingleThread()
        self._is_closed = False
        self._runtime = ConsumerRuntime(
            cluster,
            settings,
            group_id=self.group_id,
            deserializers=deserializers,
            interceptors=ConsumerInterceptors(interceptors),
            commit_callback=default_offset_commit_callback,
        )
        # A consumer that is garbage-collected without `close` leaves no thread. The finalizer keeps
        # its arguments alive, so they must not refer to the consumer, as the user's listener may.
        self._finalizer = weakref.finalize(
            self, _end_threads, self._runtime.fetcher, self._runtime.calls
        )
        if topics:
            self.subscribe(topics)
        metrics = self._runtime.metrics
        self._reporters.open(
            metrics.metrics, settings, settings.client_id, clock, cluster.suppressed
        )
        self._client_metrics.open(
            settings.client_id,
            cluster.store,
            cluster.suppressed,
            definitions.CONSUMER,
            metrics.reading,
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
            self._runtime.finish_polling("assign")
            self._runtime.calls.run("assign", lambda: self._runtime.coordinator.assign(wanted))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions; those of a subscription are assigned by `poll`."""
        with self._acquire():
            return set(self._runtime.subscription.partitions)

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
            listener: the listener that is called when the assignment changes.

        Raises:
            IllegalStateError: partitions are assigned, or topics and a pattern are given.
            ValueError: neither topics nor a pattern is given, or the pattern is no regular
                expression.
            TypeError: an argument has the wrong type.
            InvalidTopicError: a name is not valid for a topic.
        """
        with self._acquire():
            self._runtime.finish_polling("subscribe")
            self._runtime.coordinator.subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """Return the names of the subscribed topics, None without a subscription."""
        with self._acquire():
            if not self._runtime.subscription.is_subscribed:
                return None
            exclude = self.config.exclude_internal_topics
            image = self._image("subscription")
            return set(self._runtime.subscription.topics(image, exclude_internal=exclude))

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group. With auto-commit, commits the positions first.

        The listener is called before the consumer leaves. The place of a static member is kept
        (KIP-345).
        """
        with self._acquire():
            self._runtime.finish_polling("unsubscribe")
            unsubscribe = self._runtime.coordinator.unsubscribe
            self._runtime.calls.run("unsubscribe", unsubscribe, is_repeated=False)

    # --- records ---------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return the next records; wait for them if there are none.

        As in Kafka, the first poll starts to read ahead: with ``timeout_ms=0`` it mostly returns
        nothing. On an object store, joining the group and finding positions may take longer than
        ``timeout_ms``. They then continue in the background, and the next poll waits for them.

        Args:
            timeout_ms: the maximum time to wait, in milliseconds. After that the result is empty,
                also if the storage does not answer. As in Kafka, an empty result is returned
                earlier if positions have moved past offsets without records: transaction markers,
                aborted or compacted records. A float below 10 causes a warning, because it is
                probably meant in seconds.
            max_records: the maximum number of records; None for ``max.poll.records``.

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
            return self._runtime.poller.poll(timeout_ms, limit)

    def poll_table(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        leader_epochs: bool = False,
    ) -> pa.Table:
        """Return the next records as an Arrow table; wait for them if there are none.

        Keys, values, timestamps and headers are not copied. They are memory-mapped if the root is
        local and the segments are not compressed.

        Args:
            timeout_ms: the maximum time to wait, in milliseconds. After that the table is empty; an
                empty table is returned earlier if positions have moved past offsets without
                records.
            max_records: the maximum number of rows; None for all rows that were fetched ahead
                (``fetch.max.bytes``).
            leader_epochs: whether the table has one more column, leaderEpoch: int32, the leader
                epoch in which the batch of the record was written.

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
            return self._runtime.poller.poll_table(
                timeout_ms, max_records, leader_epochs=leader_epochs
            )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record.

        Iteration ends after ``consumer.timeout.ms`` without a record, and when the consumer is
        closed.
        """
        if self._is_closed:
            raise StopIteration
        with self._acquire():
            record = self._runtime.poller.next_record()
            if record is None:
                raise StopIteration
            return record

    def wakeup(self) -> None:
        """Let the current poll, or the next one, raise `WakeupError`. Any thread may call this."""
        self._runtime.calls.wakeup()
        self._runtime.fetcher.wake()

    def _forget_wakeup(self) -> None:
        """Undo a `wakeup` that has raised no error yet."""
        self._runtime.calls.forget_wakeup()

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
            self._runtime.stop_polling("seek")
            self._runtime.positions.seek(partition, offset)

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
            timeout_ms: the maximum time to wait for the storage, and for a transaction that commits
                an offset; None for ``default.api.timeout.ms``.

        Raises:
            IllegalStateError: the partition is not assigned.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            KafkaTimeoutError: the storage did not answer, or the transaction was not decided,
                within the timeout.
            WakeupError: `wakeup` was called meanwhile.
        """
        checked_partitions([partition])
        with self._acquire():
            runtime = self._runtime
            known = runtime.subscription.state(partition).position
            if known is not None:
                return known
            find = runtime.until_stable(
                "position", lambda: runtime.positions.position(partition), timeout_ms
            )
            return runtime.calls.run("position", find, timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned.

        A rebalance does not end the pause of a partition that stays assigned, with any assignment
        strategy. A partition that is revoked, or whose topic is created again, is not paused when
        it is assigned again.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            self._runtime.stop_polling("pause")
            self._runtime.positions.pause(checked)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            self._runtime.stop_polling("resume")
            self._runtime.positions.resume(checked)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._acquire():
            return self._runtime.subscription.paused()

    def _seek_to(
        self, policy: Literal["earliest", "latest"], partitions: Sequence[TopicPartition]
    ) -> None:
        checked = checked_partitions(partitions)
        with self._acquire():
            self._runtime.stop_polling("seek")
            chosen = checked or list(self._runtime.subscription.partitions)
            if not chosen:
                raise IllegalStateError("no partitions are assigned to this consumer")
            self._runtime.positions.reset(chosen, policy)

    # --- committed offsets -----------------------------------------------------------------------

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, None if there is none.

        Args:
            partition: the partition; it need not be assigned.
            metadata: whether to return an `OffsetAndMetadata` instead of the offset.
            timeout_ms: the maximum time to wait for the storage, and for a transaction that commits
                an offset; None for ``default.api.timeout.ms``.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            StorageError: the table of offsets cannot be read.
            KafkaTimeoutError: the storage did not answer, or the transaction was not decided,
                within the timeout.
            WakeupError: `wakeup` was called meanwhile.
        """
        checked_partitions([partition])
        with self._acquire():
            committer = self._runtime.group.required_committer()
            read = self._runtime.until_stable(
                "committed", lambda: committer.committed([partition]), timeout_ms
            )
            found = self._runtime.calls.run_stateless("committed", read, timeout_ms).get(partition)
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
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

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
        self._runtime.group.wait_for(self._commit(offsets, None), limit_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[None]:
        """Commit offsets without waiting, after all earlier commits.

        Args:
            offsets: by partition, the offset of the next record to read; None: the positions of
                all assigned partitions.
            callback: the function that is called with the offsets, and with None or the error, on
                another thread; None for the ``default_offset_commit_callback``.

        Returns:
            A future that is done when the offsets are durable; its errors are those of `commit`.

        Raises:
            InvalidGroupIdError: the consumer has no group.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        return self._commit(offsets, callback or self._commit_callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership in its group (KIP-447).

        The generation is that of the assignment that the last `poll` applied, so it changes only
        inside of `poll`. Before the first `poll`, and for assigned partitions, the member id is
        empty. Reads nothing from the storage.
        """
        with self._acquire():
            return self._runtime.group.membership.group_metadata()

    def _commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> Future[None]:
        with self._acquire():
            return self._runtime.group.commit(offsets, callback, lambda: self._image("commit"))

    # --- topics and logs -------------------------------------------------------------------------

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics."""
        with self._acquire():
            return {topic.name for topic in self._image("topics", timeout_ms).topics()}

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic; an empty set if the topic does not exist."""
        with self._acquire():
            found = self._image("partitions_for_topic", timeout_ms).find(topic)
            return set() if found is None else set(found.partitions)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. The partitions need not be assigned.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            views = self._runtime.calls.run(
                "beginning_offsets",
                lambda: self._runtime.offset_fetcher.views(checked),
                timeout_ms,
            )
            return {tp: view.log_start_offset for tp, view in views.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the next record that is appended to each partition.

        With ``isolation.level=read_committed`` it is the last stable offset: the first offset of
        the oldest transaction that is still open. The partitions need not be assigned.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            return self._runtime.calls.run(
                "end_offsets",
                lambda: self._runtime.offset_fetcher.end_offsets(checked),
                timeout_ms,
            )

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, by partition; None if there is none.

        Args:
            timestamps: milliseconds since the epoch, by partition. The partitions need not be
                assigned.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

        Raises:
            ValueError: a time is negative.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        times_us = checked_times_us(timestamps)
        with self._acquire():
            return self._runtime.calls.run(
                "offsets_for_times",
                lambda: self._runtime.offset_fetcher.offsets_for_times(times_us),
                timeout_ms,
            )

    def get(
        self,
        topic: str,
        key: bytes,
        *,
        partition: int | None = None,
        timeout_ms: float | None = None,
    ) -> ConsumerRecord | None:
        """Return the newest record of a key; None if it was never written, or was deleted.

        The answer is exact: the last record of the key at the log's end; with
        ``isolation.level=read_committed`` the last before the first transaction that is open. The
        topic need not be subscribed to, and positions do not change.

        The Parquet segments of a table (``table.format``) have an index of their keys, so a few
        small reads find a record. The keys of all other segments are read by the first look-up in a
        partition, and kept in memory (8 bytes for each record, up to 128 MB in a process): for a
        long log without a table the first look-up takes as long as reading it, and later ones read
        only what was appended since.

        Args:
            topic: the topic's name.
            key: the key's bytes, as the producer's ``key_serializer`` makes them.
            partition: the partition's number; None for the one that the default partitioner chooses
                for the key.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

        Raises:
            UnknownTopicOrPartitionError: the topic or the partition does not exist.
            InvalidRecordError: the key is not bytes.
            RecordDeserializationError: a deserializer refused the key or the value.
            CorruptRecordError: a segment is damaged; has file and position.
            KafkaTimeoutError: the storage did not answer within the timeout.
        """
        wanted = checked_key(key)
        with self._acquire():
            return self._runtime.calls.run(
                "get", lambda: self._runtime.key_reader.get(topic, wanted, partition), timeout_ms
            )

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and current end, by partition.

        Records that were deleted before they were read do not count, because they cannot be read.
        The end is the result of `end_offsets`: markers and records of aborted transactions count.

        Args:
            partitions: assigned partitions; empty for all assigned partitions.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        checked = checked_partitions(partitions)
        with self._acquire():
            return self._runtime.calls.run("lag", lambda: self._runtime.positions.lag(checked))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the log end offset that the fetcher read last, None before its first read.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        checked_partitions([partition])
        with self._acquire():
            self._runtime.subscription.state(partition)
            return self._runtime.fetcher.high_watermark(partition)

    # --- metrics and end -------------------------------------------------------------------------

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by group and name, as in Kafka.

        Totals, averages and maxima cover the lifetime of the consumer; latencies are in
        milliseconds. ``records-lag-max`` uses the log end offsets that the fetcher read last. The
        group ``suppressed-errors`` counts failures despite which the consumer continued, such as a
        damaged index: a total, and a count for each kind that occurred. Each cause is logged once.
        """
        with self._acquire():
            return self._runtime.metrics.metrics()

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
        if timeout_ms is None and self._runtime.calls.is_limited:
            timeout_ms = self.config.default_api_timeout_ms
        with self._acquire():
            try:
                self._runtime.leave(timeout_ms, commits=autocommit)
            finally:
                self._is_closed = True
                self._finalizer()
                self._runtime.close(waits=timeout_ms is None)
                self._reporters.close()
                self._client_metrics.close()
                self._cluster.release()

    def __repr__(self) -> str:
        group = "" if self.group_id is None else f" group_id={self.group_id!r}"
        held = list(self._runtime.subscription.partitions)
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

    def _acquire(self) -> SingleThread:
        if self._is_closed:
            raise IllegalStateError("the consumer is closed; create another one")
        return self._thread

    def _image(self, name: str, timeout_ms: float | None = None) -> MetadataImage:
        return self._runtime.calls.run_stateless(name, self._cluster.image, timeout_ms)


def _checked_group_id(group_id: str | None) -> str | None:
    if group_id is not None:
        if not isinstance(group_id, str) or not group_id:
            raise InvalidGroupIdError(f"group_id is {group_id!r}; give a name, or None")
        check_unicode("group_id", group_id, InvalidGroupIdError)
    return group_id


def _end_threads(fetcher: Fetcher, calls: TimedCalls) -> None:
    """End the threads of a consumer; a thread that waits for the storage ends with its request."""
    calls.close()
    fetcher.close()


def _warn_of_seconds(timeout_ms: float) -> None:
    """Warn, once per process, about a timeout that was probably meant in seconds."""
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
