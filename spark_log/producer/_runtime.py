"""The runtime of one `Producer`: its buffer, sender and threads, until it is closed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import IllegalStateError, KafkaTimeoutError, SparkLogError
from spark_log.metrics import (
    ClientReading,
    Histogram,
    MetricDefinition,
    MetricsReporters,
    definitions,
)
from spark_log.producer import process_exit
from spark_log.producer.batch import Accumulator, RecordBatcher, TopicPartitioner, TopicRouter
from spark_log.producer.interceptors import Interceptors
from spark_log.producer.send import (
    BatchCompleter,
    ClientThrottle,
    PartitionAppender,
    ProducerIdentity,
    ProducerMetrics,
    Sender,
    SenderThreads,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.threads import MergeThread

if TYPE_CHECKING:
    from spark_log.producer.transaction import (
        TransactionalIdentity,
        TransactionManager,
        Transactions,
    )

_log = logging.getLogger(__name__)

_JOIN_S: Final = 5.0


class ProducerRuntime:
    """The parts of one producer that live from its first record to `close`.

    Attributes:
        accumulator: the waiting records.
        router: the topics.
        batcher: the batcher, which adds records to batches.
        sender: the sender, which appends the waiting records.
        completer: the completer, which fails records.
        transactions: the transactions of a transactional producer; None for any other.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        client_id: str,
        *,
        new_partitioner: Callable[[], TopicPartitioner],
        interceptors: Interceptors,
        reporters: MetricsReporters,
        on_fork: Callable[[], None],
        identity: ProducerIdAndEpoch | None = None,
        starts_threads: bool = True,
    ) -> None:
        """Assemble the parts; no thread is started, and nothing is read or written.

        Args:
            cluster: the opened root.
            config: the producer's settings.
            client_id: the client id, for log lines, thread names and the quota.
            new_partitioner: makes the partitioner of one topic.
            interceptors: the interceptors, which get the outcome of each record.
            reporters: the reporters, which get the metrics, and are closed with the runtime.
            on_fork: called in a forked child, after the runtime has become unusable.
            identity: the producer id and epoch to use; None for a new id.
            starts_threads: whether threads append the records; if not, the caller calls
                `Sender.run_once`.
        """
        self._cluster = cluster
        self._config = config
        self._client_id = client_id
        self._clock = clock = cluster.clock
        self._interceptors = interceptors
        self._reporters = reporters
        self._on_fork = on_fork
        self.accumulator = Accumulator(config, clock)
        self._merge_thread = MergeThread(f"spark-log-{client_id}-merges")
        merges = self._merge_thread if starts_threads else None
        appender = PartitionAppender(cluster, config, merges)
        throttle = ClientThrottle(self.accumulator, cluster, config, client_id)
        self._metrics = ProducerMetrics()
        transaction: TransactionManager | None = None
        producer_identity: ProducerIdentity | TransactionalIdentity
        if config.transactional_id is None:
            producer_identity = ProducerIdentity(
                is_idempotent=config.enable_idempotence, given=identity
            )
        else:
            # Imported here: most producers have no transactions.
            from spark_log.coordinator import LazyTransactionalOffsets
            from spark_log.producer.transaction import TransactionalIdentity, TransactionManager
            from spark_log.transaction import TransactionCoordinator

            transaction = TransactionManager(
                config.transactional_id, config.transaction_timeout_ms, clock
            )
            group_offsets = LazyTransactionalOffsets(cluster)
            coordinator = TransactionCoordinator(
                cluster,
                config.transactional_id,
                open_log=self.accumulator.idle_log,
                commit_offsets=group_offsets.commit_offsets,
                completes_later=True,
            )
            producer_identity = TransactionalIdentity(transaction, coordinator, self.accumulator)
        self.router = TopicRouter(
            cluster,
            self.accumulator,
            config,
            new_partitioner=new_partitioner,
            first_epoch=producer_identity.first_epoch,
            on_image=throttle.update,
        )
        self.completer = BatchCompleter(
            self.accumulator,
            producer_identity,
            config,
            clock,
            self._metrics,
            on_batches_done=interceptors.on_batches_done,
            throttle_note=throttle.describe,
            transaction=transaction,
        )
        self.sender = Sender(
            self.accumulator,
            appender,
            producer_identity,
            self.completer,
            throttle,
            config,
            clock,
            refresh=self.router.refresh,
            suppressed=cluster.suppressed,
            transaction=transaction,
        )
        self._transaction = transaction
        self.transactions: Transactions | None = None
        if transaction is not None:
            from spark_log.producer.transaction import TransactionalIdentity, Transactions

            assert isinstance(producer_identity, TransactionalIdentity)
            self.transactions = Transactions(
                transaction,
                producer_identity,
                self.accumulator,
                self.completer,
                group_offsets,
                cluster,
                config,
                is_retriable=appender.is_retriable,
            )
        self.batcher = RecordBatcher(
            self.accumulator,
            self.router,
            config,
            self.send_check(),
            self.completer.fail_transaction,
        )
        self._fork_error: SparkLogError | None = None
        self._is_starting = False
        self._is_closed = False
        self._threads: SenderThreads | None = None
        if starts_threads:
            at_once = config.max_in_flight_requests_per_connection
            if transaction is not None:  # its partitions are written together, as in one request
                from spark_log.transaction import MARKERS_AT_ONCE

                at_once = max(at_once, MARKERS_AT_ONCE)
            self._threads = SenderThreads(
                self.accumulator,
                self.sender,
                self.completer,
                clock,
                name=f"spark-log-{client_id}",
                max_appends=at_once,
            )
        process_exit.register(self, flushes=config.flush_on_exit and starts_threads)
        reporters.open(self.metrics, config, client_id, clock, cluster.suppressed)
        _log.info(
            "%s: opened at %s: acks=%s, linger.ms=%d, delivery.timeout.ms=%d, transactional.id=%s",
            client_id,
            cluster.root,
            config.acks,
            config.linger_ms,
            config.delivery_timeout_ms,
            config.transactional_id,
        )

    def start(self) -> None:
        """Start the first thread, if none is started yet."""
        if self._threads is not None and not self._threads.is_started:
            with self.accumulator.lock:
                starts, self._is_starting = not self._is_starting, True
            if starts:
                self._threads.start()

    def check_usable(self) -> None:
        """Check that the producer can be used.

        Raises:
            IllegalStateError: the producer is closed, or belongs to the parent process.
            InvalidProducerEpochError, ProducerFencedError: the producer was fenced.
        """
        self.check_not_forked()
        if self.accumulator.is_closing:
            raise IllegalStateError(f"{self._client_id} is closed: make another producer")
        if self.completer.fatal_error is not None:
            raise self.completer.fatal_error

    def send_check(self) -> Callable[[], None]:
        """Return the function that checks whether a record may begin a batch.

        This is `check_usable`, unless the producer is transactional. The check of a transactional
        producer also raises `IllegalStateError` if no transaction is open, and
        `TransactionAbortableError` if the transaction can only be aborted. It needs no lock.
        """
        transaction = self._transaction
        if transaction is None:
            return self.check_usable

        def check() -> None:
            self.check_usable()
            transaction.check_begun("send")

        return check

    def transactional(self, call: str) -> Transactions:
        """Return the producer's transactions, for a call by the user.

        Args:
            call: the name of the user's call, for error messages.

        Raises:
            IllegalStateError: the producer is not transactional, it belongs to the parent process,
                or the call is made in one of its own threads.
        """
        self.check_not_forked()
        if self.transactions is None:
            raise IllegalStateError(
                f"{call}: the producer is not transactional: give Producer a transactional_id"
            )
        if self._threads is not None and self._threads.includes_current_thread:
            raise _in_callback(call)
        return self.transactions

    def check_not_forked(self) -> None:
        """Check that this process made the producer.

        Raises:
            IllegalStateError: the parent process made it.
        """
        if self._fork_error is not None:
            raise self._fork_error

    def flush(self, timeout: float | None) -> None:
        """Append the waiting records without lingering, and wait until they are done.

        Args:
            timeout: seconds; None: no limit of its own.

        Raises:
            KafkaTimeoutError: not all are done in time.
            IllegalStateError: called in one of the producer's own threads, or in a forked child.
        """
        self.check_not_forked()
        if self._threads is not None and self._threads.includes_current_thread:
            raise _in_callback("flush")
        if not self.accumulator.wait_until_finished(timeout):
            with self.accumulator.lock:
                unfinished = self.accumulator.incomplete.record_count()
            raise KafkaTimeoutError(
                f"flush: {unfinished} records are not acknowledged after {timeout} s; the producer "
                f"keeps trying to append them"
            )

    def close(self, timeout: float | None) -> int:
        """Append the waiting records, fail records that are not done in time, and end the threads.

        Args:
            timeout: seconds; None: no limit of its own.

        Returns:
            The number of records that failed meanwhile; 0 if the producer is closed already.
        """
        threads = self._threads
        with self.accumulator.lock:
            if self._is_closed:
                return 0
            self._is_closed = True
        if self.transactions is not None and not (threads and threads.includes_current_thread):
            self.transactions.close(timeout)
        failed_before = self._metrics.failed_records
        with self.accumulator.lock:
            self.accumulator.close()
        if threads is None:
            self._run_until_idle(timeout)
        elif not threads.includes_current_thread:
            self.accumulator.wait_until_finished(timeout)
        elif timeout is None:
            _log.warning(
                "%s: close() was called in a callback and does not wait for records",
                self._client_id,
            )
        with self.accumulator.lock:
            self.accumulator.is_aborted = True
            unfinished = self.accumulator.incomplete.record_count()
        if unfinished:
            self.completer.fail_all(
                IllegalStateError(
                    f"{self._client_id} was closed before the record was acknowledged: give "
                    f"close() more time"
                )
            )
            _log.warning(
                "%s: %d records were not acknowledged at close", self._client_id, unfinished
            )
        if threads is not None:
            threads.stop()
            threads.join(_JOIN_S if not unfinished else 0.1)
        self._merge_thread.close(_JOIN_S)
        self._interceptors.close()
        self._reporters.close()
        process_exit.unregister(self)
        _log.info(
            "%s: closed: %d records were acknowledged, %d failed",
            self._client_id,
            self._metrics.acknowledged_records,
            self._metrics.failed_records,
        )
        return self._metrics.failed_records - failed_before

    @property
    def is_of_parent_process(self) -> bool:
        """Whether this process is a fork of the one that made the producer."""
        return self._fork_error is not None

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics by group and name."""
        accumulator = self.accumulator
        pool = accumulator.pool
        values = self._metrics.values(self._clock.monotonic_ms())
        with accumulator.lock:
            values |= {
                "buffer-total-bytes": pool.total_bytes,
                "buffer-available-bytes": max(0, pool.total_bytes - pool.used_bytes),
                "buffer-exhausted-wait-time-total": pool.blocked_ms,
                "waiting-threads": pool.waiting_threads,
                "records-in-flight": accumulator.incomplete.record_count(),
            }
        suppressed = self._cluster.suppressed.figures()
        return {"producer-metrics": values, "suppressed-errors": suppressed}

    def reading(self) -> ClientReading:
        """Return the metrics for Prometheus. Any thread may call it."""
        errors: dict[tuple[str, ...], float] = {
            (name,): count for name, count in self._metrics.errors_by_name().items()
        }
        histograms: dict[MetricDefinition, dict[tuple[str, ...], Histogram]] = {
            definition: {(): values} for definition, values in self._metrics.histograms.items()
        }
        return ClientReading(self.metrics(), histograms, {definitions.APPEND_ERRORS: errors})

    # --- without threads -------------------------------------------------------------------------

    def next_ready_ms(self) -> float:
        """Return the monotonic time at which `Sender.run_once` will have work to do; inf: never."""
        accumulator = self.accumulator
        with accumulator.lock:
            return min(accumulator.ready.next_ready_ms(), accumulator.incomplete.next_expiry_ms())

    def _run_until_idle(self, timeout: float | None) -> None:
        until_ms = math.inf if timeout is None else self._clock.monotonic_ms() + timeout * 1000
        while self._clock.monotonic_ms() <= until_ms and self.sender.run_once():
            pass

    # --- called by process_exit ------------------------------------------------------------------

    def flush_at_exit(self) -> None:
        """Close within ``delivery.timeout.ms``, and log the number of lost records."""
        lost = self.close(self._config.delivery_timeout_ms / 1000)
        if lost:
            _log.warning(
                "%s: %d records were lost at the end of the process: they could not be appended "
                "within delivery.timeout.ms (%d). Call close() or flush(), and check the futures",
                self._client_id,
                lost,
                self._config.delivery_timeout_ms,
            )

    def on_forked(self) -> None:
        """Become unusable, and fail all records: this process is a forked child."""
        self._fork_error = IllegalStateError(
            f"{self._client_id} belongs to the parent process, whose records and threads are not "
            f"here: make a producer in the child, after the fork"
        )
        # No lock is taken: a thread that held one in the parent does not exist here.
        self._on_fork()
        for batch in list(self.accumulator.incomplete):
            batch.fail_in_child(self._fork_error)


def _in_callback(call: str) -> IllegalStateError:
    return IllegalStateError(
        f"{call} was called in a callback or an interceptor, and would wait for itself: call it in "
        f"a thread of your own"
    )
