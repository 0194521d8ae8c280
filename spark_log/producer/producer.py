"""`Producer`: sends records to topics. No JVM, no server."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.errors import (
    IllegalStateError,
    InvalidPartitionsError,
    KafkaTimeoutError,
    SerializationError,
    SparkLogError,
)
from spark_log.metadata import MetadataImage
from spark_log.metadata.cluster import open_cluster
from spark_log.producer import process_exit
from spark_log.producer.accumulator import RECORD_OVERHEAD_BYTES, Accumulator
from spark_log.producer.interceptors import Interceptors, ProducerRecord
from spark_log.producer.partition_appender import PartitionAppender
from spark_log.producer.partitioner import Partitioner, PartitionerName, partitioner_factory
from spark_log.producer.producer_batch import ProducerBatch, Record
from spark_log.producer.producer_identity import ProducerIdAndEpoch, ProducerIdentity
from spark_log.producer.record_future import RecordFuture, failed_future
from spark_log.producer.sender import Sender
from spark_log.producer.sender_threads import SenderThreads
from spark_log.producer.topic_route import PartitionQueue, TopicRoute
from spark_log.producer.topic_router import TopicRouter
from spark_log.producer.validation import (
    Headers,
    as_bytes,
    checked_config,
    checked_headers,
    checked_timestamp_ns,
    serialized,
    serializer_of,
    too_large,
)
from spark_log.storage import StorageOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_log.producer.table_sender import TableFuture

_logger = logging.getLogger(__name__)

Serializer = Callable[[Any], bytes | None]

_JOIN_S: Final = 5.0
_instances = count(1)


class Producer:
    """Sends records to topics; names and meaning as in kafka-python's ``KafkaProducer``.

    `send` puts a record into memory and returns at once; threads of the producer's own append what
    has gathered, one append per partition at a time. A record is acknowledged when it is in the log
    as durable as the topic's ``flush.on.append`` makes it. By default the producer is idempotent:
    whatever it tries again, each acknowledged record is in the log once, and the records of a
    partition are in the order in which they were sent (from one thread).

    Safe to use from several threads; quicker than several producers. Not usable in a forked child:
    make one there. `close` it, use it as a context manager, or see `process_exit` for what happens
    at the end of a process that does neither.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        storage_options: StorageOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        key_serializer: Serializer | object | None = None,
        value_serializer: Serializer | object | None = None,
        partitioner: PartitionerName | Partitioner = "default",
        interceptors: Sequence[object] = (),
        identity: ProducerIdAndEpoch | None = None,
        starts_threads: bool = True,
        **config: object,
    ) -> None:
        """Open the root; nothing is written.

        Args:
            root: a path or URL; has to be given.
            storage_options: for the file system; never shown.
            clock: for timestamps, lingering, retries and timeouts.
            key_serializer: makes bytes of a key: a function, or an object with kafka-python's
                ``serialize(topic, key)``. None: keys are bytes.
            value_serializer: the same for values.
            partitioner: ``default`` (murmur2 of the key as in Kafka's clients; without a key one
                partition until it has had ``batch.size`` bytes, then another, KIP-480 and KIP-794),
                ``sticky`` (as if there were no keys), ``round_robin``, ``random``, or a function
                (key, all partitions, available partitions) → partition.
            interceptors: objects with any of ``on_send(record)``, ``close()`` and
                ``on_acknowledgement(metadata, exception)``.
            identity: internal: the identity of a producer that this one takes the place of, with a
                newer epoch. The other one is fenced where this one writes.
            starts_threads: internal: False leaves `run_once` to the caller.
            **config: keys of `ProducerConfig`, in snake_case.

        Raises:
            InvalidConfigurationError: an unknown key, a bad value, or values that contradict.
            RootNotFoundError, InvalidRootError, UnsupportedStoreError: see `Cluster`.
            KafkaTimeoutError, StorageUnavailableError: the storage does not answer, or not within
                ``request.timeout.ms``; try again.
        """
        self._threads: SenderThreads | None = None
        settings = checked_config(config)
        self.config = settings
        self.client_id = settings.client_id or f"producer-{next(_instances)}"
        new_partitioner = partitioner_factory(
            partitioner, ignore_keys=settings.partitioner_ignore_keys
        )
        self._serialize_key = serializer_of("key_serializer", key_serializer)
        self._serialize_value = serializer_of("value_serializer", value_serializer)
        self._interceptors = Interceptors(interceptors)
        self._needs_preparation = bool(
            self._serialize_key or self._serialize_value or self._interceptors.has_on_send
        )
        self._clock = clock
        self._time_ns: Callable[[], int] = getattr(clock, "time_ns", lambda: clock.time_us() * 1000)
        self._cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=settings.request_timeout_ms,
            setting="request.timeout.ms",
            request_timeout_ms=settings.request_timeout_ms,
        )
        self._accumulator = Accumulator(settings, clock)
        self._lock = self._accumulator.lock
        self._routes = self._accumulator.routes
        self._identity = ProducerIdentity(
            self._cluster, is_idempotent=settings.enable_idempotence, given=identity
        )
        self._router = TopicRouter(
            self._cluster,
            self._accumulator,
            settings,
            clock,
            new_partitioner=new_partitioner,
            first_epoch=self._identity.first_epoch,
            on_image=self._update_quota,
        )
        self._sender = Sender(
            self._accumulator,
            PartitionAppender(self._cluster, settings, self.client_id),
            self._identity,
            settings,
            clock,
            refresh=self._router.refresh,
            on_batches_done=self._notify_interceptors,
            suppressed=self._cluster.suppressed,
        )
        self._state_error: SparkLogError | None = None
        self._is_closed = False
        if starts_threads:
            self._threads = SenderThreads(
                self._accumulator,
                self._sender,
                clock,
                name=f"spark-log-{self.client_id}",
                max_appends=settings.max_in_flight_requests_per_connection,
            )
        process_exit.register(self, flushes=settings.flush_on_exit and starts_threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # --- sending ---------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Send a record; return at once, unless the buffer is full.

        What the record itself is to blame for (a serializer that does not take it, its size) fails
        its future; what is wrong with the call, or keeps every record back, is raised.

        Args:
            topic: its name.
            value: what the value serializer takes; bytes without one. None is a tombstone.
            key: what the key serializer takes; bytes without one.
            headers: ``[(name, bytes or None), …]``.
            partition: its number; None: the partitioner chooses.
            timestamp_ms: milliseconds since the epoch; None: now.

        Returns:
            A future of `RecordMetadata`.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            InvalidPartitionsError: the topic has no such partition.
            BufferExhaustedError: the buffer was full for ``max.block.ms``; not taken.
            KafkaTimeoutError: the topic could not be looked up within ``max.block.ms``; not taken.
            SerializationError: there is no serializer, and the key or value is not bytes.
            InvalidRecordError: the headers are not pairs of a text and bytes.
            InvalidProducerEpochError: the producer was fenced by a newer one.
            IllegalStateError: it is closed, or this process is a fork of the one that made it.
        """
        if self._needs_preparation:
            return self._prepare(
                ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            )
        size_bytes = RECORD_OVERHEAD_BYTES
        if value is not None:
            if type(value) is not bytes:
                value = as_bytes(topic, "value", value)
            size_bytes += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes(topic, "key", key)
            size_bytes += len(key)
        if headers is not None:
            headers, headers_bytes = checked_headers(headers)
            size_bytes += headers_bytes
        time_ns = self._time_ns() if timestamp_ms is None else checked_timestamp_ns(timestamp_ms)
        if partition is None and key is None:
            # The way of most records; what else there is to do is done where a batch begins.
            with self._lock:
                route = self._routes.get(topic)
                if route is not None and (queue := route.sticky) is not None:
                    batch = queue.open
                    if batch is not None and size_bytes <= batch.room_bytes:
                        records = batch.records
                        records += (None, value, headers, time_ns)
                        batch.room_bytes -= size_bytes
                        return RecordFuture((batch, len(records)))
        return self._add(topic, (key, value, headers, time_ns), size_bytes, partition)

    def send_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, partition: int | None = None
    ) -> TableFuture:
        """Send the rows of a table; without copying them where that is possible.

        The rows of a partition keep their order. The table is one write for the buffer: it waits
        until there is room for all of it, or for an empty buffer.

        Args:
            topic: its name.
            table: columns ``key`` and ``value`` (binary or text), ``headers``, ``timestamp`` and
                ``partition`` (int); any may be missing, but not both of the first two. Serializers
                and ``on_send`` are not called.
            partition: for all rows; None: the column says, or the partitioner chooses.

        Returns:
            A future of where the rows are: see `TableFuture`.

        Raises:
            InvalidRecordError: columns that cannot be records; nothing was sent.
            RecordTooLargeError: a row is larger than a record may be; nothing was sent.
            SparkLogError: as `send`; nothing was sent.
        """
        from spark_log.producer.record_arrays import check_is_table
        from spark_log.producer.table_sender import send_table

        check_is_table(table)
        self._check_usable()
        route = self._router.route(topic)
        future = send_table(
            route, table, partition, self._accumulator, self.config, self._clock, self._check_usable
        )
        self._start()
        return future

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: it could not be looked up within ``max.block.ms``.
        """
        self._check_usable()
        return set(range(len(self._router.route(topic).queues)))

    def flush(self, timeout: float | None = None) -> None:
        """Send what waits without lingering, and return when all sent before has ended.

        What became of each record is told by its future: this raises nothing for one that failed.

        Args:
            timeout: seconds; None: as long as it takes, at most about ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: not all has ended in this time.
            IllegalStateError: called from a callback, which would wait for itself.
        """
        self._check_not_forked()
        if self._threads is not None and self._threads.includes_current_thread:
            raise IllegalStateError(
                "flush was called in a callback or an interceptor, and would wait for itself: "
                "call it in a thread of your own"
            )
        if not self._accumulator.wait_until_finished(timeout):
            with self._lock:
                left = self._accumulator.unfinished_records()
            raise KafkaTimeoutError(
                f"flush: {left} records are not acknowledged after {timeout} s; they are still on "
                f"their way"
            )

    def close(self, timeout: float | None = None) -> None:
        """Send what waits, take nothing more, and end the threads; again it does nothing.

        Args:
            timeout: seconds to send what waits; None: as long as it takes, at most about
                ``delivery.timeout.ms``. What has not ended then fails with `IllegalStateError`.
        """
        if self._state_error is not None and not self._is_closed:
            return  # a fork's
        self._close(timeout)

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return what was counted: ``{"producer-metrics": {name: value}}``, with Kafka's names.

        Times are in milliseconds, rates per second over the last 30 seconds. The group
        ``suppressed-errors`` counts failures that kept nothing from being done, such as of an index
        or a merge behind an append: all of them, and by what failed, what ever did. Each cause was
        logged once.
        """
        with self._lock:
            values = self._sender.metrics.values(self._clock.monotonic_ms())
            values |= {
                "buffer-total-bytes": self.config.buffer_memory,
                "buffer-available-bytes": max(
                    0, self.config.buffer_memory - self._accumulator.used_bytes
                ),
                "buffer-exhausted-wait-time-total": self._accumulator.blocked_ms,
                "waiting-threads": self._accumulator.waiting_threads,
                "records-in-flight": self._accumulator.unfinished_records(),
            }
        suppressed = self._cluster.suppressed.figures()
        return {"producer-metrics": values, "suppressed-errors": suppressed}

    def run_once(self) -> bool:
        """Serve what is due now, in this thread; return whether anything was. For tests."""
        self._sender.fail_expired()
        with self._lock:
            queue = self._accumulator.take_due(self._clock.monotonic_ms())
        if queue is not None:
            self._sender.serve(queue)
        return queue is not None

    def next_due_ms(self) -> float:
        """Return when `run_once` will have something to do, on the monotonic clock; inf: never."""
        with self._lock:
            return min(self._accumulator.next_due_ms(), self._accumulator.next_expiry_ms())

    def _update_quota(self, image: MetadataImage) -> None:
        self._sender.update_quota(image)

    # --- one record ------------------------------------------------------------------------------

    def _add(
        self, topic: str, record: Record, size_bytes: int, partition: int | None
    ) -> RecordFuture:
        """Add a record that is not the usual one: with a key, or the first of a batch."""
        accumulator = self._accumulator
        reserved = 0
        chosen: tuple[TopicRoute, PartitionQueue | None] | None = None
        try:
            while True:
                self._check_usable()
                route = self._router.route(topic)
                limit_bytes = min(self.config.max_request_size, route.max_record_bytes)
                if size_bytes - RECORD_OVERHEAD_BYTES > limit_bytes:
                    error = too_large(size_bytes - RECORD_OVERHEAD_BYTES, limit_bytes)
                    return failed_future(topic, -1 if partition is None else partition, error)
                with self._lock:
                    if self._routes.get(topic) is not route or accumulator.is_closing:
                        continue
                    if chosen is None or chosen[0] is not route:  # a partitioner is asked once
                        chosen = route, self._queue(route, record[0], partition)
                    queue = chosen[1] or self._sticky(route, size_bytes)
                    batch = queue.open
                    if batch is None or size_bytes > batch.room_bytes:
                        if not reserved:
                            needed = accumulator.reserve_for(size_bytes)
                            if accumulator.reserve(needed):  # others had the lock meanwhile
                                reserved = needed
                                continue
                        batch = accumulator.new_batch(
                            queue, size_bytes, limit_bytes + RECORD_OVERHEAD_BYTES
                        )
                        reserved = 0
                    batch.records += record
                    batch.room_bytes -= size_bytes
                    future = RecordFuture((batch, len(batch.records)))
                break
        finally:
            if reserved:
                with self._lock:
                    accumulator.unreserve(reserved)
        self._start()
        return future

    def _queue(
        self, route: TopicRoute, key: bytes | None, partition: int | None
    ) -> PartitionQueue | None:
        """Return where a record goes; None: to the sticky partition."""
        by = "asked for"
        if partition is None:
            partition, by = (
                route.partitioner.choose(key, len(route.queues)),
                "the partitioner chose",
            )
            if partition is None:
                return None
        is_number = isinstance(partition, int | np.integer) and not isinstance(partition, bool)
        if is_number and 0 <= partition < len(route.queues):
            return route.queues[partition]
        raise InvalidPartitionsError(
            f"topic {route.topic.name!r} has {len(route.queues)} partitions, numbered from 0: "
            f"{by} {partition!r}"
        )

    def _sticky(self, route: TopicRoute, size_bytes: int) -> PartitionQueue:
        """Return the sticky partition; another one when it has had its share (KIP-794)."""
        queue = route.sticky
        assert queue is not None
        is_full = queue.open is not None and size_bytes > queue.open.room_bytes
        if is_full or route.sticky_bytes >= self.config.batch_size:
            route.switch_sticky_partition()
            queue = route.sticky
            assert queue is not None
        return queue

    # --- what comes before -----------------------------------------------------------------------

    def _prepare(self, given: ProducerRecord) -> RecordFuture:
        """Let interceptors see a record, serialize it, and send it."""
        record = self._interceptors.on_send(given)
        topic = record.topic
        try:
            key = serialized(topic, "key", record.key, self._serialize_key)
            value = serialized(topic, "value", record.value, self._serialize_value)
        except SerializationError as error:
            self._check_usable()
            if self._interceptors.has_on_acknowledgement:
                self._interceptors.on_acknowledgement(None, error)
            return failed_future(topic, -1, error)
        key = key if key is None or type(key) is bytes else as_bytes(topic, "key", key)
        value = value if value is None or type(value) is bytes else as_bytes(topic, "value", value)
        headers, size_bytes = (
            (None, 0) if record.headers is None else checked_headers(record.headers)
        )
        size_bytes += RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        time_ns = (
            self._time_ns()
            if record.timestamp_ms is None
            else checked_timestamp_ns(record.timestamp_ms)
        )
        made = (key, value, headers, time_ns)
        future = self._add(topic, made, size_bytes, record.partition)
        if (
            future.failed()
            and self._interceptors.has_on_acknowledgement
            and future[0].created_ms == 0
        ):
            self._interceptors.on_acknowledgement(None, future.exception())
        return future

    def _notify_interceptors(self, batches: Sequence[ProducerBatch]) -> None:
        if not self._interceptors.has_on_acknowledgement:
            return
        for batch in batches:
            for row in range(batch.record_count):
                error = batch.error_of(row)
                metadata = None if error is not None else batch.metadata_of(row)
                self._interceptors.on_acknowledgement(metadata, error)

    # --- beginning and end -----------------------------------------------------------------------

    def _start(self) -> None:
        if self._threads is not None and not self._threads.is_started:
            with self._lock:
                starts, self._is_starting = not self._is_starting, True
            if starts:
                self._threads.start()

    _is_starting = False

    def _check_usable(self) -> None:
        self._check_not_forked()
        if self._accumulator.is_closing:
            raise IllegalStateError(f"{self.client_id} is closed: make another producer")
        if self._sender.fatal_error is not None:
            raise self._sender.fatal_error

    def _check_not_forked(self) -> None:
        if self._state_error is not None:
            raise self._state_error

    def _close(self, timeout: float | None) -> int:
        """Close, and return how many records failed meanwhile."""
        with self._lock:
            failed_before = self._sender.metrics.failed_records
            if self._is_closed:
                return 0
            self._is_closed = True
            self._accumulator.close()
        threads = self._threads
        if threads is None:
            self._run_to_end(timeout)
        elif not threads.includes_current_thread:
            self._accumulator.wait_until_finished(timeout)
        elif timeout is None:
            _logger.warning("%s: closed in a callback, which waits for nothing", self.client_id)
        with self._lock:
            self._accumulator.is_aborted = True
            left = self._accumulator.unfinished_records()
        if left:
            self._sender.fail_all(
                IllegalStateError(
                    f"{self.client_id} was closed before the record was acknowledged; whether it "
                    f"is in the log is not known: give close() more time"
                )
            )
            _logger.warning("%s: %d records were not acknowledged at close", self.client_id, left)
        if threads is not None:
            threads.stop()
            threads.join(_JOIN_S if not left else 0.1)
        self._interceptors.close()
        process_exit.unregister(self)
        with self._lock:
            return self._sender.metrics.failed_records - failed_before

    def _run_to_end(self, timeout: float | None) -> None:
        """Serve what is left in this thread, up to what is not due."""
        until_ms = math.inf if timeout is None else self._clock.monotonic_ms() + timeout * 1000
        while self._clock.monotonic_ms() <= until_ms and self.run_once():
            pass

    # --- see process_exit ------------------------------------------------------------------------

    def flush_at_exit(self) -> None:
        """Close within ``delivery.timeout.ms``, and warn of what was lost."""
        lost = self._close(self.config.delivery_timeout_ms / 1000)
        if lost:
            _logger.warning(
                "%s: %d records were lost at the end of the process: they could not be appended "
                "within delivery.timeout.ms (%d). Call close() or flush(), and look at the futures",
                self.client_id,
                lost,
                self.config.delivery_timeout_ms,
            )

    def forget_parent(self) -> None:
        """Refuse everything: this process is a fork of the one that made the producer."""
        error = IllegalStateError(
            f"{self.client_id} belongs to the parent process, whose records and threads are not "
            f"here: make a producer in the child, after the fork"
        )
        self._state_error = error
        # Whoever held a lock is not here any more, so that none is taken.
        self._routes = {}
        self._needs_preparation = True
        self._interceptors = Interceptors(())
        self._serialize_key = self._serialize_value = None
        for batch in self._accumulator.unfinished():
            batch.fail_in_child(error)
