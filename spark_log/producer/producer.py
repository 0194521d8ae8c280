"""`Producer`: sends records to topics. No JVM, no server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Self, Unpack

from spark_log.cluster import Cluster, open_cluster
from spark_log.errors import SerializationError, SparkLogError
from spark_log.metrics import ClientMetrics, MetricsReporters, ReporterOrFactory, definitions
from spark_log.producer._runtime import ProducerRuntime
from spark_log.producer.batch import (
    RECORD_OVERHEAD_BYTES,
    Partitioner,
    PartitionerName,
    RecordFuture,
    TopicPartitioner,
    partitioner_factory,
    refused_future,
)
from spark_log.producer.interceptors import Interceptors, ProducerRecord
from spark_log.producer.validation import (
    Headers,
    as_bytes,
    checked_config,
    checked_headers,
    checked_timestamp_ns,
    serialized,
    serializer_of,
)
from spark_log.storage import StorageOptions
from spark_log.util import SYSTEM_CLOCK, Clock, ForeignMethods

if TYPE_CHECKING:
    import pyarrow as pa
    from prometheus_client import CollectorRegistry

    from spark_log.config import BrokerOptions, ProducerSettings
    from spark_log.producer.batch import TableFuture
    from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

Serializer = Callable[[Any], bytes | None]

_instances = count(1)


class Producer(ForeignMethods):
    """Sends records to topics, with the methods and behaviour of kafka-python's ``KafkaProducer``.

    `send` puts a record into memory and returns at once. The producer's own threads append the
    waiting records, with one append at a time per partition. A record is acknowledged when it is in
    the log, as durable as the topic's ``flush.on.append`` makes it. By default the producer is
    idempotent: retries duplicate no record, and the records of a partition keep the order in which
    one thread sent them.

    A producer with a ``transactional.id`` sends in transactions only: call `init_transactions`
    once, then `transaction` or `begin_transaction` for each of them. Readers of committed records
    see a transaction whole or not at all, in all partitions.

    A producer is thread-safe, and one shared producer is faster than several. A forked child cannot
    use its parent's producer; make a new one in the child. Close a producer with `close` or a
    ``with`` block. At a regular end of the process and on SIGTERM, open producers send their
    waiting records, unless ``flush.on.exit`` is false.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        storage_options: StorageOptions | None = None,
        broker_storage_options: BrokerOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        key_serializer: Serializer | object | None = None,
        value_serializer: Serializer | object | None = None,
        partitioner: PartitionerName | Partitioner = "default",
        interceptors: Sequence[object] = (),
        metric_reporters: Sequence[ReporterOrFactory] = (),
        metrics_port: int | None = None,
        metrics_registry: CollectorRegistry | None = None,
        **config: Unpack[ProducerSettings],
    ) -> None:
        """Return a producer for the topics of a root; nothing is written yet.

        Args:
            root: a path or URL; required.
            storage_options: options and credentials of the file system; never shown.
            broker_storage_options: storage options of each broker's root, by broker id. A broker
                without them has ``storage_options``, if its URL has the same scheme as the root.
                Never shown.
            clock: the clock for timestamps, lingering, retries and timeouts.
            key_serializer: a function that turns a key into bytes, or an object with kafka-python's
                ``serialize(topic, key)``. None: keys are bytes.
            value_serializer: a function or an object that turns a value into bytes, like the key
                serializer.
            partitioner: ``default`` (murmur2 of the key, as in Kafka's clients; records without a
                key go to one partition until it has received ``batch.size`` bytes, then to another,
                KIP-480 and KIP-794), ``sticky`` (the same, but keys are ignored), ``round_robin``,
                ``random``, or a function (key, all partitions, available partitions) → partition.
            interceptors: objects with any of ``on_send(record)``, ``close()`` and
                ``on_acknowledgement(metadata, exception)``.
            metric_reporters: objects with the methods of kafka-python's
                ``AbstractMetricsReporter``, or classes and functions that return one. They get the
                values of `metrics`.
            metrics_port: port on 127.0.0.1 at which Prometheus can read the metrics until `close`
                (docs/metrics.md). Clients of one process may have the same port.
            metrics_registry: a prometheus_client registry that the metrics are registered in until
                `close`.
            **config: keys of `ProducerConfig` in snake_case, or dotted from a ``dict[str, Any]``.

        Raises:
            InvalidConfigurationError: an unknown key, a bad value, or values that contradict.
            RootNotFoundError: no root exists at this address.
            InvalidRootError: the root is damaged, or of another format version.
            UnsupportedStoreError: the file system cannot store a log.
            KafkaTimeoutError: the storage does not answer within ``max.block.ms``, or
                ``request.timeout.ms`` if that is longer; try again.
        """
        self.config = checked_config(config)
        self.client_id = self.config.client_id or f"producer-{next(_instances)}"
        new_partitioner = partitioner_factory(
            partitioner, ignore_keys=self.config.partitioner_ignore_keys
        )
        self._serialize_key = serializer_of("key_serializer", key_serializer)
        self._serialize_value = serializer_of("value_serializer", value_serializer)
        self._interceptors = Interceptors(interceptors)
        self._reporters = MetricsReporters(metric_reporters)
        self._client_metrics = ClientMetrics(metrics_port, metrics_registry)
        self._needs_preparation = bool(
            self._serialize_key or self._serialize_value or self._interceptors.has_on_send
        )
        self._clock = clock
        self._time_ns: Callable[[], int] = getattr(clock, "time_ns", lambda: clock.time_us() * 1000)
        # A producer whose `send` shall not wait (max.block.ms=0) can be made, too.
        timeout_ms, setting = max(
            (self.config.max_block_ms, "max.block.ms"),
            (self.config.request_timeout_ms, "request.timeout.ms"),
        )
        self._cluster = open_cluster(
            root,
            storage_options,
            clock=clock,
            timeout_ms=timeout_ms,
            setting=setting,
            request_timeout_ms=self.config.request_timeout_ms,
            broker_options=broker_storage_options,
        )
        self._runtime = self._new_runtime(self._cluster, new_partitioner)
        self._accumulator = self._runtime.accumulator
        self._lock = self._accumulator.lock
        self._routes = self._accumulator.routes
        self._router = self._runtime.router
        self._check_can_send = self._runtime.send_check()
        self._batcher = self._runtime.batcher
        self._client_metrics.open(
            self.client_id,
            self._cluster.store,
            self._cluster.suppressed,
            definitions.PRODUCER,
            self._runtime.reading,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer root={self._cluster.root!r} client_id={self.client_id!r}>"

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

        If a serializer refuses a record, or if the record is too large, its future fails. A wrong
        argument, or a state in which no record can be sent, raises an error here.

        Args:
            topic: the topic's name.
            value: the value, which the value serializer gets; without a serializer, bytes. None is
                a tombstone.
            key: the key, which the key serializer gets; without a serializer, bytes.
            headers: the headers: ``[(name, bytes or None), …]``.
            partition: the partition's number; None: the partitioner chooses.
            timestamp_ms: milliseconds since the epoch; None: now.

        Returns:
            A future of `RecordMetadata`.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            InvalidPartitionsError: the topic has no such partition.
            BufferExhaustedError: the buffer was full for ``max.block.ms``; nothing was sent.
            KafkaTimeoutError: the topic could not be looked up within ``max.block.ms``; nothing was
                sent.
            SerializationError: without a serializer, the key or value is not bytes.
            InvalidRecordError: the headers are not pairs of a text and bytes, or the timestamp is
                not in milliseconds.
            InvalidProducerEpochError, ProducerFencedError: a newer producer has fenced this one.
            TransactionAbortableError: the transaction can only be aborted.
            IllegalStateError: the producer is closed, or this process is a fork of the one that
                made it; or the producer is transactional, and no transaction is open.
        """
        if self._needs_preparation:
            return self._send_prepared(
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
        if key is None or partition is not None:
            # The fast path of most records, whose partition has an open batch with room. It repeats
            # the end of `RecordBatcher.add`, without its calls and the checks that are made when a
            # batch begins: 0.9 µs of processor time per record, not 2.2. Change both together.
            with self._lock:
                route = self._routes.get(topic)
                if route is not None:
                    queue = route.sticky
                    if partition is not None:
                        is_number = type(partition) is int and 0 <= partition < len(route.queues)
                        queue = route.queues[partition] if is_number else None
                    batch = None if queue is None else queue.open
                    if batch is not None and size_bytes <= batch.room_bytes:
                        records = batch.records
                        records += (key, value, headers, time_ns)
                        batch.room_bytes -= size_bytes
                        return RecordFuture((batch, len(records)))
        future = self._batcher.add(topic, (key, value, headers, time_ns), size_bytes, partition)
        self._runtime.start()
        return future

    def send_table(
        self, topic: str, table: pa.Table | pa.RecordBatch, partition: int | None = None
    ) -> TableFuture:
        """Send the rows of an Arrow table as records, without copying them where possible.

        The rows of a partition keep their order. The buffer takes the table as a whole: the call
        waits until the buffer has room for all rows, or is empty.

        Args:
            topic: the topic's name.
            table: a table with the columns ``key`` and ``value`` (binary or text), ``headers``,
                ``timestamp`` and ``partition`` (int). Any column may be missing, but not both
                ``key`` and ``value``. Serializers and ``on_send`` are not called.
            partition: the partition of all rows; None: the column ``partition`` or the partitioner
                decides.

        Returns:
            A `TableFuture`, whose result is a `RecordRange` of offsets per partition.

        Raises:
            InvalidRecordError: the columns cannot be records; nothing was sent.
            RecordTooLargeError: a row is larger than a record may be; nothing was sent.
            SparkLogError: the same errors as `send` raises; nothing was sent.
        """
        from spark_log.producer.batch import check_is_table, send_table

        check_is_table(table)
        self._check_can_send()
        route = self._router.route(topic)
        future = send_table(
            route,
            table,
            partition,
            self._accumulator,
            self.config,
            self._clock,
            self._check_can_send,
        )
        self._runtime.start()
        return future

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaTimeoutError: the topic could not be looked up within ``max.block.ms``.
        """
        self._runtime.check_usable()
        return set(range(len(self._router.route(topic).queues)))

    def flush(self, timeout: float | None = None) -> None:
        """Append all waiting records without lingering, and wait until each is done.

        A failed record raises nothing here; its future has the error.

        Args:
            timeout: seconds; None: until all are done, at most about ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: not all records were done in time.
            IllegalStateError: called from a callback, which would wait for itself.
        """
        self._runtime.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Append all waiting records, accept no more, and end the threads.

        Closing a closed producer does nothing. An open transaction is aborted.

        Args:
            timeout: seconds to append the waiting records; None: until all are done, at most about
                ``delivery.timeout.ms``. Records that are not done then fail with
                `IllegalStateError`.
        """
        if not self._runtime.is_of_parent_process:
            self._runtime.close(timeout)
            self._client_metrics.close()
            self._cluster.release()

    # --- transactions ----------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Begin as the one producer of ``transactional.id``; once, before the first transaction.

        An earlier producer of this id is fenced. A transaction that it left open is aborted, or
        finished if its outcome was decided, so that readers of committed records do not wait for
        its records.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the call has not ended in this time, and continues: call it again.
            IllegalStateError: the producer has no ``transactional.id``, was initialized before, or
                is closed.
            SparkLogError: the state of the transactional id cannot be read or written.
        """
        transactions = self._runtime.transactional("init_transactions")
        transactions.wait_for(transactions.initialize(), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: records may be sent, until it is committed or aborted.

        Reads and writes nothing. ``transaction.timeout.ms`` counts from here.

        Raises:
            ProducerFencedError: another producer with this ``transactional.id`` has taken over.
            IllegalStateError: another call is expected, which the message names.
        """
        self._runtime.transactional("begin_transaction").begin()

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Append all waiting records, then commit: all records of the transaction are visible.

        On return the outcome is decided, and will not change, whatever happens to this process.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the call has not ended in this time, and continues; it is not known
                whether the transaction will be committed. Call it again for the outcome; no other
                call is possible.
            TransactionAbortableError: nothing is committed: a record failed, or
                ``transaction.timeout.ms`` has passed. Call `abort_transaction`.
            ProducerFencedError: another producer with this ``transactional.id`` has taken over, and
                has aborted the transaction; or has finished it, if a note of the error says that an
                answer was lost. Close this one.
            UnknownOutcomeError: an answer was lost, and the storage failed before the outcome was
                looked up. Call `abort_transaction`: it raises `InvalidTxnStateError` if the
                transaction is committed.
            IllegalStateError: another call is expected, which the message names.
        """
        transactions = self._runtime.transactional("commit_transaction")
        transactions.wait_for(transactions.commit(), timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: readers of committed records never see its records.

        Records that wait are not appended; their futures fail with `TransactionAbortedError`.
        Appends in progress are waited for.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the call has not ended in this time, and continues: call it again.
            ProducerFencedError: another producer with this ``transactional.id`` has taken over, and
                has aborted the transaction. Close this one.
            IllegalStateError: another call is expected, which the message names.
            SparkLogError: the transaction is not aborted yet: call again, or close the producer.
        """
        transactions = self._runtime.transactional("abort_transaction")
        transactions.wait_for(transactions.abort(), timeout)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Add a consumer group's offsets to the transaction (KIP-447).

        They are committed with the records of the transaction, or not at all. Turn the consumer's
        ``enable.auto.commit`` off. After an abort seek the consumer to its committed offsets.

        Args:
            offsets: the offset of the next record to read, by partition. A later call replaces the
                offsets of the same partitions.
            group_metadata: ``consumer.group_metadata()``.
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the storage did not answer in this time; call again, or abort.
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            InvalidGroupIdError: the consumer has no group.
            CommitFailedError: the consumer has left the group, the group has a newer generation, or
                another member has a partition. Abort; the records are read again.
            TransactionAbortableError: the transaction can only be aborted.
            ProducerFencedError: another producer with this ``transactional.id`` has taken over.
            IllegalStateError: no transaction is open.
        """
        transactions = self._runtime.transactional("send_offsets_to_transaction")
        transactions.send_offsets(offsets, group_metadata, timeout)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context that is one transaction: ``with producer.transaction(): …``.

        The transaction is committed at the end of the block. If the block raises an error, the
        transaction is aborted, and the error is raised. If the commit raises an error with
        ``abortable``, the transaction is aborted before that error is raised. After an error the
        next transaction can begin, unless the error is `KafkaTimeoutError` (call
        `commit_transaction` again for the outcome) or has ``fenced`` or ``fatal`` (close the
        producer).

        Raises:
            SparkLogError: the errors of `begin_transaction` and `commit_transaction`.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._abort_after(error)
            raise
        try:
            self.commit_transaction()
        except SparkLogError as error:
            if error.abortable:
                self._abort_after(error)
            raise

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``{group: {name: value}}`` under Kafka's names; the main group: producer-metrics.

        Times are in milliseconds, rates per second over the last 30 seconds. The group
        ``suppressed-errors`` counts the failures of work that no append depends on, such as writing
        an index or merging segments: in total, and by kind of work. Each cause is logged once.
        """
        return self._runtime.metrics()

    def _abort_after(self, error: BaseException) -> None:
        """Abort after an error; an error of the abort becomes a note of the first error."""
        try:
            self.abort_transaction()
        except Exception as second:
            error.add_note(f"abort_transaction failed: {second}")

    def _new_runtime(
        self, cluster: Cluster, new_partitioner: Callable[[], TopicPartitioner]
    ) -> ProducerRuntime:
        return ProducerRuntime(
            cluster,
            self.config,
            self.client_id,
            new_partitioner=new_partitioner,
            interceptors=self._interceptors,
            reporters=self._reporters,
            on_fork=self._on_fork,
        )

    def _send_prepared(self, given: ProducerRecord) -> RecordFuture:
        """Call the interceptors and serializers for a record, and send the result."""
        record = self._interceptors.on_send(given)
        topic = record.topic
        try:
            key = serialized(topic, "key", record.key, self._serialize_key)
            value = serialized(topic, "value", record.value, self._serialize_value)
        except SerializationError as error:
            self._check_can_send()
            self._runtime.completer.fail_transaction(error)
            self._interceptors.on_acknowledgement(None, error)
            return refused_future(topic, -1, error)
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
        future = self._batcher.add(topic, made, size_bytes, record.partition)
        if future.was_refused:
            self._interceptors.on_acknowledgement(None, future.exception())
        else:
            self._runtime.start()
        return future

    def _on_fork(self) -> None:
        """Route every `send` to `_send_prepared`, which raises without taking a lock."""
        self._routes = {}
        self._needs_preparation = True
        self._interceptors = Interceptors(())
        self._serialize_key = self._serialize_value = None
