"""Appends waiting records to their partitions, and retries (Kafka's ``Sender``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    NotEnoughReplicasAfterAppendError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    SparkLogError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.producer.accumulator import Accumulator
from spark_log.producer.client_throttle import ClientThrottle
from spark_log.producer.delivery import Delivery
from spark_log.producer.partition_appender import (
    AppendResult,
    DeleteDelayLoweredError,
    PartitionAppender,
    TopicDeletedError,
    unknown_topic,
)
from spark_log.producer.producer_batch import NO_OFFSET, ProducerBatch
from spark_log.producer.producer_identity import ProducerIdentity
from spark_log.producer.producer_metrics import ProducerMetrics
from spark_log.producer.topic_route import PartitionQueue
from spark_log.producer.transaction_manager import APPENDING, State, TransactionManager
from spark_log.producer.transactional_identity import TransactionalIdentity
from spark_log.record import ProducerAppend, sequence_after
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors, retry_pause_ms

_logger = logging.getLogger(__name__)

_MAX_SEGMENT_FILL: Final = 0.9
"""Maximum share of ``segment.bytes`` that the records of one append take; the rest is framing."""


class Sender:
    """Appends the waiting batches of the partitions that are due.

    Order: a partition has one append at a time, and a retried delivery goes before later batches.

    Unknown outcomes: if ``delivery.timeout.ms`` passes while it is unknown whether an append is in
    the log, the next append of that partition begins a new producer epoch. The log then refuses the
    old epoch (KIP-360), so that the unknown append can neither leave a gap nor a duplicate.

    Transactions: the first failed record fails its transaction. Records that wait fail with it,
    and nothing more is appended or retried until the transaction is aborted.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        appender: PartitionAppender,
        identity: ProducerIdentity | TransactionalIdentity,
        config: ProducerConfig,
        clock: Clock,
        *,
        refresh: Callable[[str], object],
        on_batches_done: Callable[[Sequence[ProducerBatch]], None],
        suppressed: SuppressedErrors = IN_PROCESS,
        transaction: TransactionManager | None = None,
    ) -> None:
        """Create a sender; nothing is read or written yet.

        Args:
            accumulator: the waiting batches.
            appender: the appender, which makes one attempt of an append.
            identity: producer id and epochs of idempotent appends.
            config: the producer's settings.
            clock: the clock for retries and timeouts.
            refresh: reads a topic's metadata again.
            on_batches_done: called with batches that are acknowledged or failed, in order.
            suppressed: counter of the failures of work that no append depends on.
            transaction: the state of a transactional producer; None for any other.
        """
        self.metrics = ProducerMetrics()
        self.fatal_error: Exception | None = None
        self._accumulator = accumulator
        self._appender = appender
        self._identity = identity
        self._config = config
        self._clock = clock
        self._refresh = refresh
        self._on_batches_done = on_batches_done
        self._suppressed = suppressed
        self._transaction = transaction
        self._random = Random()
        self.throttle = ClientThrottle(accumulator, appender, config, clock)

    def serve(self, queue: PartitionQueue) -> None:
        """Make one attempt to append the batches of a busy partition, and release it."""
        try:
            delivery = None if self.throttle.check() else self._delivery_of(queue)
            if delivery is None:
                with self._accumulator.lock:
                    self._accumulator.release(queue)
                return
            self._try(queue, delivery)
        except Exception as error:  # even a bug must not leave futures waiting
            _logger.exception("appending to %s-%d failed", queue.topic, queue.partition)
            with self._accumulator.lock:
                batches = self._accumulator.unfinished_of(queue)
                self._accumulator.seal(batches)
                failures = self._failures(batches, error)
                if queue.delivery is not None:
                    queue.delivery.is_outcome_unknown = True
                    self._drop(queue, queue.delivery)
            self._fail_each(failures)
            with self._accumulator.lock:
                queue.log = None
                self._accumulator.release(queue)

    def fail_expired(self) -> None:
        """Fail the batches whose ``delivery.timeout.ms`` has passed, even during their append."""
        with self._accumulator.lock:
            expired = self._accumulator.expired(self._clock.monotonic_ms())
            errors = [(batch, self._expiry_error(batch, queue)) for batch, queue in expired]
            self._accumulator.seal(batch for batch, _ in expired)
        self._fail_each(errors)

    def fail_all(self, error: Exception) -> int:
        """Fail all unfinished batches, and return their number of records.

        Batches that may be in the log fail with `UnknownOutcomeError`.
        """
        with self._accumulator.lock:
            batches = self._accumulator.unfinished()
            self._accumulator.seal(batches)
            failures = self._failures(batches, error)
        return self._fail_each(failures)

    def fail_transaction(self, error: Exception) -> None:
        """Fail the open transaction after an error of the producer, or of one of its records.

        The transaction can then only be aborted. An error that fences the producer, or is fatal,
        fails all records, and no more are accepted. Without a transactional producer, do nothing.
        """
        transaction = self._transaction
        if transaction is None:
            return
        with self._accumulator.lock:
            if not transaction.fail(error):
                return
            self._accumulator.refuse_records()
            is_fatal = transaction.state is State.FATAL_ERROR
            if is_fatal:
                self.fatal_error = error
            refusal = transaction.refusal()
        _logger.info("transactional id %r: %s", transaction.transactional_id, error)
        if is_fatal:
            self.fail_all(refusal)
        else:
            self.fail_waiting(refusal)

    def fail_waiting(self, error: Exception) -> None:
        """Fail all batches except those of an append in progress; drop deliveries to be retried."""
        with self._accumulator.lock:
            waiting = self._accumulator.waiting()
            batches = [batch for batch, _ in waiting]
            self._accumulator.seal(batches)
            failures = self._failures(batches, error)
            for queue in {queue for _, queue in waiting}:
                if queue.delivery is not None and not queue.is_busy:
                    self._drop(queue, queue.delivery)
                    self._accumulator.schedule(queue)
        self._fail_each(failures)

    # --- one delivery ----------------------------------------------------------------------------

    def _delivery_of(self, queue: PartitionQueue) -> Delivery | None:
        """Return the delivery to retry, or a new one of waiting batches; None without batches."""
        with self._accumulator.lock:
            delivery = queue.delivery
            if delivery is not None and delivery.is_done:
                self._drop(queue, delivery)
                delivery = None
            if delivery is not None:
                delivery.drop_done_batches()
                return delivery
            max_bytes = int(_MAX_SEGMENT_FILL * queue.route.segment_bytes)
            max_bytes = min(max_bytes, self.throttle.max_append_bytes)
            batches = self._accumulator.drain(queue, max_bytes)
            if not batches:
                return None
            queue.delivery = delivery = Delivery(batches)
        if self._config.acks == "0":
            for batch in batches:
                batch.acknowledge(NO_OFFSET)
        return delivery

    def _try(self, queue: PartitionQueue, delivery: Delivery) -> None:
        began_ms = self._clock.monotonic_ms()
        delivery.tries += 1
        try:
            if self.fatal_error is not None:
                raise self.fatal_error
            if queue.route.is_deleted:
                raise TopicDeletedError
            if self._transaction is not None:
                self._transaction.check_can_append()
            if self._identity.is_idempotent and not delivery.is_outcome_unknown:
                delivery.producer = self._next_append(queue, delivery)
            appended = self._appender.append(queue, delivery, delivery.producer)
        except TopicDeletedError:
            self._on_topic_deleted(queue, delivery)
        except Exception as error:
            self._on_error(queue, delivery, error)
        else:
            self._on_success(queue, delivery, appended, began_ms)

    def _next_append(self, queue: PartitionQueue, delivery: Delivery) -> ProducerAppend:
        try:
            producer = self._identity.next_append(queue)
        except UnknownOutcomeError as error:
            # The registration may have happened, but not the append: a retry begins anew.
            raise StorageUnavailableError(f"not appended: {error}", path=error.path) from error
        if self._transaction is not None:
            # Batches that expired meanwhile may be of an earlier transaction than this identity.
            delivery.drop_done_batches()
            if not delivery.batches:
                raise self._transaction.refusal()
        return producer

    def _on_success(
        self, queue: PartitionQueue, delivery: Delivery, appended: AppendResult, began_ms: float
    ) -> None:
        if delivery.producer is not None and appended.info is not None:
            count = appended.info.last_offset - appended.info.base_offset + 1
            queue.epoch = delivery.producer.producer_epoch
            queue.sequence = sequence_after(delivery.producer.base_sequence, count)
        errors = [
            error for each in delivery.batches if not each.is_done for _, error in each.refused()
        ]
        if appended.info is not None:
            records = delivery.acknowledge(appended.info, appended.log_append_times_us)
        else:
            records = 0
            for batch in delivery.batches:
                batch.fail(batch.refused()[0][1])
        now_ms = self._clock.monotonic_ms()
        with self._accumulator.lock:
            throttle_ms = 0.0
            if appended.image is not None:
                throttle_ms = self.throttle.record(appended.size_bytes, appended.image, now_ms)
            self.metrics.failed(len(errors))
            self.metrics.appended(
                now_ms,
                records=records,
                size_bytes=appended.size_bytes,
                batches=len(delivery.batches),
                latency_ms=now_ms - began_ms,
                queued_ms=began_ms - delivery.batches[0].created_ms,
                throttle_ms=throttle_ms,
            )
            queue.delivery = None
        if errors:
            self.fail_transaction(errors[0])
        self._end(delivery.batches)
        for batch in delivery.batches:
            batch.release_records()
        self._appender.catch_up(queue)
        with self._accumulator.lock:
            self._accumulator.release(queue)

    def _on_error(self, queue: PartitionQueue, delivery: Delivery, error: Exception) -> None:
        delivery.error = error
        with self._accumulator.lock:
            self.metrics.append_failed(error)
        if isinstance(error, UnknownOutcomeError | NotEnoughReplicasAfterAppendError):
            delivery.is_outcome_unknown = True
        if isinstance(error, DeleteDelayLoweredError):
            with self._suppressed.suppress("metadata refresh", queue.topic, SparkLogError, OSError):
                self._refresh(queue.topic)
        if self._transaction is not None and isinstance(error, InvalidProducerEpochError):
            self._give_up(queue, delivery, self._transaction.ended_by_others(error))
            return
        if self._transaction is not None and isinstance(error, InvalidTxnStateError):
            # A late record of an earlier epoch, which the log had forgotten: our marker ends it.
            abortable = self._transaction.abortable(f"call abort_transaction: {error}")
            self._give_up(queue, delivery, abortable)
            return
        may_bump_epoch = not delivery.is_outcome_unknown and self._transaction is None
        if isinstance(error, OutOfOrderSequenceError) and may_bump_epoch:
            # The log lost or expired this producer's earlier appends. This one is not in the log,
            # so it may begin a new epoch (`TransactionManager.requestIdempotentEpochBump`).
            _logger.warning("%s; the producer continues in a new epoch", error)
            self._identity.bump_epoch(queue)
        elif isinstance(error, InvalidProducerEpochError | ProducerFencedError):
            self._on_fenced(queue, delivery, error)
        elif not self._appender.is_retriable(error):
            self._give_up(queue, delivery, error)
            return
        queue.log = None  # its memory may be of a root that is unmounted, or of a lost answer
        now_ms = self._clock.monotonic_ms()
        is_last = (
            self.fatal_error is not None
            or self._config.acks == "0"
            or delivery.tries > self._config.retries
            or (self._transaction is not None and self._transaction.state not in APPENDING)
        )
        if is_last or delivery.is_done:
            self._give_up(queue, delivery, self.fatal_error or error)
            return
        _logger.info(
            "%s-%d: attempt %d of an append failed: %s",
            queue.topic,
            queue.partition,
            delivery.tries,
            error,
        )
        pause_ms = retry_pause_ms(
            delivery.tries,
            initial_ms=self._config.retry_backoff_ms,
            max_ms=self._config.retry_backoff_max_ms,
            random=self._random,
        )
        with self._accumulator.lock:
            self.metrics.retried()
            delivery.due_ms = now_ms + pause_ms
            self._accumulator.release(queue)

    def _give_up(self, queue: PartitionQueue, delivery: Delivery, error: Exception) -> None:
        queue.log = None
        if delivery.is_outcome_unknown:
            error = _unknown(queue, error)
        self._fail(delivery.batches, error)
        for batch in delivery.batches:
            batch.release_records()
        with self._accumulator.lock:
            self._drop(queue, delivery)
            self._accumulator.release(queue)

    def _drop(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Stop retrying a delivery; if it may be in the log, bump the partition's epoch."""
        queue.delivery = None
        if delivery.is_outcome_unknown and self._identity.is_idempotent:
            self._identity.bump_epoch(queue)

    def _on_topic_deleted(self, queue: PartitionQueue, delivery: Delivery) -> None:
        """Move the batches to the new topic of that name; fail them if no such topic exists."""
        try:
            self._refresh(queue.topic)
        except Exception as error:
            self._on_error(queue, delivery, error)
            return
        with self._accumulator.lock:
            route = self._accumulator.routes.get(queue.topic)
            if route is not None and queue.partition < len(route.queues):
                self._accumulator.move(queue, delivery.batches)
                return
            batches = [*delivery.batches, *queue.batches()]
            self._accumulator.seal(batches)
        now = 0 if route is None else len(route.queues)
        # Nobody reads the old topic's log, so that it does not matter if it has the records.
        self._fail(batches, unknown_topic(queue.topic, queue.partition, now))
        with self._accumulator.lock:
            queue.delivery = None
            self._accumulator.release(queue)

    def _on_fenced(self, queue: PartitionQueue, delivery: Delivery, error: SparkLogError) -> None:
        """Fail everything: a newer producer has taken over this one's id.

        The append that was refused is not in the log, unless an earlier attempt may have put it.
        """
        is_unknown = delivery.is_outcome_unknown
        self._fail(delivery.batches, _unknown(queue, error) if is_unknown else error)
        self.fail_transaction(error)
        with self._accumulator.lock:
            if self.fatal_error is None:
                self.fatal_error = error
        self.fail_all(error)

    # --- finishing batches -----------------------------------------------------------------------

    def _failures(
        self, batches: Sequence[ProducerBatch], error: Exception
    ) -> list[tuple[ProducerBatch, Exception]]:
        """Return each batch with its error; the lock is held.

        A record whose future has failed with another error than `UnknownOutcomeError` is not in the
        log, and never will be: no append takes its batch any more.
        """
        failures = []
        for batch, queue in self._accumulator.queues_of(batches):
            batch.is_given_up = not _may_be_in_log(batch, queue)
            failures.append((batch, error if batch.is_given_up else _unknown(queue, error)))
        return failures

    def _fail_each(self, failures: Sequence[tuple[ProducerBatch, Exception]]) -> int:
        return sum(self._fail([batch], error) for batch, error in failures)

    def _fail(self, batches: Sequence[ProducerBatch], error: Exception) -> int:
        failed = [batch for batch in batches if batch.fail(error)]
        records = sum(batch.record_count for batch in failed)
        with self._accumulator.lock:
            self.metrics.failed(records)
        if failed:
            self.fail_transaction(error)
        self._end(batches)
        return records

    def _end(self, batches: Sequence[ProducerBatch]) -> None:
        with self._accumulator.lock:
            ended = self._accumulator.claim(batches)
        self._on_batches_done(ended)
        with self._accumulator.lock:
            self._accumulator.finish(ended)

    def _expiry_error(self, batch: ProducerBatch, queue: PartitionQueue) -> SparkLogError:
        """Return the error of an expired batch, by the rule of `_failures`; the lock is held."""
        delivery = queue.delivery
        is_unknown = _may_be_in_log(batch, queue)
        batch.is_given_up = not is_unknown
        if delivery is None or batch not in delivery.batches:
            became = "it was not appended: the batch before it is not done"
        elif is_unknown:
            became = "whether it is in the log is not known: read the partition's end to see"
        else:
            became = "it was not appended"
        cause = f"; the last error was: {delivery.error}" if delivery and delivery.error else ""
        cause += self.throttle.describe()
        return (UnknownOutcomeError if is_unknown else KafkaTimeoutError)(
            f"{batch.topic}-{batch.partition}: a batch of {batch.record_count} records is not "
            f"acknowledged after delivery.timeout.ms ({self._config.delivery_timeout_ms}); "
            f"{became}{cause}"
        )


def _may_be_in_log(batch: ProducerBatch, queue: PartitionQueue) -> bool:
    """Return whether an append of a batch is in progress, or has an unknown outcome."""
    delivery = queue.delivery
    if delivery is None or batch not in delivery.batches:
        return False
    return delivery.is_outcome_unknown or queue.is_busy


def _unknown(queue: PartitionQueue, error: Exception) -> UnknownOutcomeError:
    if isinstance(error, UnknownOutcomeError):
        return error
    unknown = UnknownOutcomeError(
        f"{queue.topic}-{queue.partition}: an append may be in the log or not, and it was given "
        f"up: {error}"
    )
    unknown.__cause__ = error
    return unknown
