"""Completes batches: each of them is acknowledged or failed, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from spark_log.config import ProducerConfig
from spark_log.errors import KafkaTimeoutError, SparkLogError, UnknownOutcomeError
from spark_log.producer.batch import Accumulator, PartitionQueue, ProducerBatch
from spark_log.producer.send.append_errors import unknown_outcome
from spark_log.producer.send.producer_identity import ProducerIdentity
from spark_log.producer.send.producer_metrics import ProducerMetrics
from spark_log.util import Clock

if TYPE_CHECKING:
    from spark_log.producer.transaction import TransactionalIdentity, TransactionManager

_log = logging.getLogger(__name__)

_QueuedBatch = tuple[ProducerBatch, PartitionQueue]
"""A batch and the partition that it waits in."""


class BatchCompleter:
    """Completes batches, tells the interceptors, and frees the memory. Safe to use from any thread.

    A record whose future has failed with another error than `UnknownOutcomeError` is not in the
    log, and never will be: no append takes its batch any more.

    Transactions: the first failed record fails its transaction. Records that wait fail with it,
    and nothing more is appended or retried until the transaction is aborted.

    Attributes:
        metrics: the counters of the producer.
        fatal_error: the error after which the producer is unusable: it was fenced, for example.
            None without one.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        identity: ProducerIdentity | TransactionalIdentity,
        config: ProducerConfig,
        clock: Clock,
        metrics: ProducerMetrics,
        *,
        on_batches_done: Callable[[Sequence[ProducerBatch]], None],
        throttle_note: Callable[[], str],
        transaction: TransactionManager | None = None,
    ) -> None:
        """Create a completer; no batch is complete yet.

        `on_batches_done` is called with batches that are acknowledged or failed, in order.
        `throttle_note` returns the quota that slows the producer down, as the end of an error
        message. `transaction` is None, unless the producer is transactional.
        """
        self.metrics = metrics
        self.fatal_error: Exception | None = None
        self._accumulator = accumulator
        self._identity = identity
        self._config = config
        self._clock = clock
        self._on_batches_done = on_batches_done
        self._throttle_note = throttle_note
        self._transaction = transaction
        # Partitions whose batches expire, since their last successful append: they were warned of.
        self._overdue: set[tuple[str, int]] = set()

    # --- batches of an append --------------------------------------------------------------------

    def complete(self, batches: Sequence[ProducerBatch]) -> None:
        """Finish batches that were acknowledged or failed, unless another thread does so."""
        with self._accumulator.lock:
            claimed = self._accumulator.claim(batches)
        if self._overdue:
            self._overdue -= {_partition_of(batch) for batch in claimed if batch.error is None}
        self._on_batches_done(claimed)
        with self._accumulator.lock:
            self._accumulator.finish(claimed)

    def fail(self, batches: Sequence[ProducerBatch], error: Exception) -> int:
        """Fail batches, and their transaction; return the number of records that failed."""
        failed = [batch for batch in batches if batch.fail(error)]
        records = sum(batch.record_count for batch in failed)
        self.metrics.count_failed_records(records)
        if failed:
            self.fail_transaction(error)
        self.complete(batches)
        return records

    def drop_in_flight(self, queue: PartitionQueue) -> None:
        """Stop retrying an append; the lock is held.

        If it may be in the log, the next append of the partition begins a new producer epoch. The
        log then refuses the old epoch (KIP-360), so that the unknown append can leave neither a gap
        nor a duplicate.
        """
        in_flight = queue.in_flight
        queue.end_append()
        if in_flight is not None and in_flight.is_outcome_unknown and self._identity.is_idempotent:
            self._identity.bump_epoch(queue)

    # --- waiting batches -------------------------------------------------------------------------

    def fail_expired(self) -> None:
        """Fail the batches whose ``delivery.timeout.ms`` has passed, even during their append."""
        with self._accumulator.lock:
            expired = self._accumulator.incomplete.expired(self._clock.monotonic_ms())
            failures = self._with_errors(expired, self._expiry_error)
        for batch, error in failures:
            if not batch.is_done:
                self._log_expiry(batch, error)
        self._fail_each(failures)

    def fail_partition(self, queue: PartitionQueue, error: Exception) -> None:
        """Fail all batches of a partition after a fault of the program."""
        with self._accumulator.lock:
            batches = self._accumulator.incomplete.of_queue(queue)
            failures = self._with_errors(batches, lambda batch, queue: error)
            if queue.in_flight is not None:
                queue.in_flight.is_outcome_unknown = True
                self.drop_in_flight(queue)
        self._fail_each(failures)

    def fail_waiting(self, error: Exception) -> None:
        """Fail all batches except those of an append in progress; drop appends to be retried."""
        with self._accumulator.lock:
            waiting = self._accumulator.incomplete.waiting()
            failures = self._with_errors(waiting, lambda batch, queue: error)
            for queue in {queue for _, queue in waiting}:
                if queue.in_flight is not None and not queue.is_busy:
                    self.drop_in_flight(queue)
                    self._accumulator.schedule(queue)
        self._fail_each(failures)

    def fail_all(self, error: Exception) -> int:
        """Fail all incomplete batches, and return their number of records.

        Batches that may be in the log fail with `UnknownOutcomeError`.
        """
        with self._accumulator.lock:
            batches = self._accumulator.incomplete.items()
            failures = self._with_errors(batches, lambda batch, queue: error)
        return self._fail_each(failures)

    def fail_transaction(self, error: Exception) -> None:
        """Fail the open transaction after an error of the producer, or of one of its records.

        The transaction can then only be aborted. An error that fences the producer, or is fatal,
        fails all records, and no more are accepted. Without a transactional producer, do nothing.
        """
        refusal = self.refuse_records(error)
        if refusal is None:
            return
        if self.fatal_error is not None:
            self.fail_all(refusal)
        else:
            self.fail_waiting(refusal)

    def refuse_records(self, error: Exception) -> Exception | None:
        """Change the open transaction's state after an error, and let it have no more records.

        Returns:
            The error of the records that wait. None if nothing has changed, or the producer is not
            transactional.
        """
        transaction = self._transaction
        if transaction is None:
            return None
        with self._accumulator.lock:
            if not transaction.fail(error):
                return None
            self._accumulator.refuse_records()
            if transaction.is_unusable:
                self.fatal_error = error
            refusal = transaction.refusal()
        _log.info("transactional id %r: %s", transaction.transactional_id, error)
        return refusal

    # --- helpers ---------------------------------------------------------------------------------

    def _with_errors(
        self,
        batches: Sequence[_QueuedBatch],
        error_of: Callable[[ProducerBatch, PartitionQueue], Exception],
    ) -> list[tuple[ProducerBatch, Exception]]:
        """Close batches that are about to fail, and return each with its error; the lock is held.

        A batch that is not in an append is given up: an append that begins now does not take it.
        """
        self._accumulator.seal(batch for batch, _ in batches)
        failures = []
        for batch, queue in batches:
            error = error_of(batch, queue)
            batch.is_given_up = not _may_be_in_log(batch, queue)
            failures.append((batch, error if batch.is_given_up else unknown_outcome(queue, error)))
        return failures

    def _fail_each(self, failures: Iterable[tuple[ProducerBatch, Exception]]) -> int:
        return sum(self.fail([batch], error) for batch, error in failures)

    def _expiry_error(self, batch: ProducerBatch, queue: PartitionQueue) -> SparkLogError:
        is_unknown = _may_be_in_log(batch, queue)
        if not queue.has_in_flight(batch):
            outcome = "it was not appended: the batch before it is not done"
        elif is_unknown:
            outcome = "whether it is in the log is not known: read the partition's end to see"
        else:
            outcome = "it was not appended"
        last_error = queue.in_flight.error if queue.in_flight is not None else None
        cause = f"; the last error was: {last_error}" if last_error is not None else ""
        return (UnknownOutcomeError if is_unknown else KafkaTimeoutError)(
            f"{queue}: a batch of {batch.record_count} records is not acknowledged after "
            f"delivery.timeout.ms ({self._config.delivery_timeout_ms}); {outcome}{cause}"
            f"{self._throttle_note()}"
        )

    def _log_expiry(self, batch: ProducerBatch, error: Exception) -> None:
        """Warn of the first batch of a partition that expires since its last successful append."""
        if _partition_of(batch) in self._overdue:
            _log.debug("%s", error)
            return
        self._overdue.add(_partition_of(batch))
        _log.warning(
            "%s. Further expired batches of this partition are logged at debug level, until an "
            "append to it succeeds",
            error,
        )


def _partition_of(batch: ProducerBatch) -> tuple[str, int]:
    return batch.topic, batch.partition


def _may_be_in_log(batch: ProducerBatch, queue: PartitionQueue) -> bool:
    """Return whether an append of a batch is in progress, or has an unknown outcome."""
    in_flight = queue.in_flight
    if in_flight is None or batch not in in_flight.batches:
        return False
    return in_flight.is_outcome_unknown or queue.is_busy
