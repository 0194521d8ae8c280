"""Appends waiting records to their partitions, and retries (Kafka's ``Sender``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from spark_log.config import ProducerConfig
from spark_log.errors import (
    SparkLogError,
    StorageUnavailableError,
    StripesChangedError,
    UnknownOutcomeError,
)
from spark_log.producer.batch import NO_OFFSET, Accumulator, InFlightBatches, PartitionQueue
from spark_log.producer.send.append_errors import (
    DeleteDelayLoweredError,
    Reaction,
    TopicDeletedError,
    makes_outcome_unknown,
    reaction_to,
    unknown_outcome,
    unknown_topic,
)
from spark_log.producer.send.batch_completer import BatchCompleter
from spark_log.producer.send.client_throttle import ClientThrottle
from spark_log.producer.send.partition_appender import PartitionAppender
from spark_log.producer.send.producer_identity import ProducerIdentity
from spark_log.producer.send.turn import AppendResult, Turn
from spark_log.record import ProducerAppend
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors, retry_pause_ms

if TYPE_CHECKING:
    from spark_log.producer.transaction import TransactionalIdentity, TransactionManager

_log = logging.getLogger(__name__)

_OF_TOPIC: Final = (DeleteDelayLoweredError, StripesChangedError)
"""Errors after which an append is retried with the topic's present settings."""

_MAX_SEGMENT_FILL: Final = 0.9
"""Maximum share of ``segment.bytes`` that the records of one append take; the rest is framing."""


class Sender:
    """Appends the waiting batches of the partitions that are ready.

    One turn with a partition is `send_batches`, from top to bottom: drain the waiting batches,
    attempt the append, and complete the batches, or react to the error: retry, move or fail them. A
    thread acquires the partition before its turn, with `ReadyPartitions.take`, and releases it at
    the end. In a topic with stripes a turn is of all partitions of the stripe that have batches. A
    partition has one append at a time, and a retried append goes before later batches.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        appender: PartitionAppender,
        identity: ProducerIdentity | TransactionalIdentity,
        completer: BatchCompleter,
        throttle: ClientThrottle,
        config: ProducerConfig,
        clock: Clock,
        *,
        refresh: Callable[[str], object],
        suppressed: SuppressedErrors = IN_PROCESS,
        transaction: TransactionManager | None = None,
    ) -> None:
        """Create a sender; nothing is read or written yet.

        `refresh` reads a topic's metadata again; `suppressed` counts its failures when no append
        depends on it. `transaction` is None, unless the producer is transactional.
        """
        self._accumulator = accumulator
        self._appender = appender
        self._identity = identity
        self._completer = completer
        self._metrics = completer.metrics
        self._throttle = throttle
        self._config = config
        self._clock = clock
        self._refresh = refresh
        self._suppressed = suppressed
        self._transaction = transaction
        self._random = Random()

    def run_once(self) -> bool:
        """Have one turn with a ready partition; return whether one was ready.

        This is for a producer without threads, as Kafka's ``Sender.runOnce``. Threads do the same
        in `SenderThreads`, where they wait for a partition.
        """
        self._completer.fail_expired()
        with self._accumulator.lock:
            queue = self._accumulator.ready.take(self._clock.monotonic_ms())
        if queue is not None:
            self.send_batches(queue)
        return queue is not None

    def send_batches(self, queue: PartitionQueue) -> None:
        """Make one attempt to append the batches of an acquired partition, and release it.

        The other partitions of its stripe that have batches are taken, too: all share a put.
        """
        turns: list[Turn] = []
        if not self._throttle.check():
            with self._accumulator.lock:
                others = self._accumulator.take_of_stripe(queue)
            left_bytes = self._max_append_bytes(queue)
            for each in (queue, *others):
                with self._guarded(each):
                    in_flight = self._drain(each, left_bytes) if left_bytes > 0 else None
                    if in_flight is None:
                        self._release(each)
                        continue
                    left_bytes -= in_flight.reserved_bytes
                    turns.append(Turn(each, in_flight))
        else:
            self._release(queue)
        began_ms = self._clock.monotonic_ms()
        self._append(turns)
        retry_ms: dict[int, float] = {}
        is_refreshed = False
        # Those that were appended first: an error of another partition may fail all that wait.
        for turn in sorted(turns, key=lambda each: isinstance(each.outcome, Exception)):
            with self._guarded(turn.queue):
                outcome, attempts = turn.outcome, turn.in_flight.attempts
                assert outcome is not None
                if isinstance(outcome, AppendResult):
                    self._complete(turn.queue, turn.in_flight, outcome, began_ms)
                    continue
                if isinstance(outcome, _OF_TOPIC) and not is_refreshed:
                    is_refreshed = True  # for all partitions of the turn
                    self._refresh_quietly(turn.queue.topic)
                if attempts not in retry_ms:  # partitions that shared a put share the next one
                    retry_ms[attempts] = self._next_retry_ms(attempts)
                turn.in_flight.retry_ms = retry_ms[attempts]
                self._react(turn.queue, turn.in_flight, outcome)

    @contextmanager
    def _guarded(self, queue: PartitionQueue) -> Iterator[None]:
        """Fail a partition's records after an error of the program, and release it."""
        try:
            yield
        except Exception as error:  # even a bug must not leave futures waiting
            _log.exception("appending to %s failed", queue)
            self._completer.fail_partition(queue, error)
            queue.forget_log()
            self._release(queue)

    # --- the steps of a turn ---------------------------------------------------------------------

    def _max_append_bytes(self, queue: PartitionQueue) -> int:
        """Return the size of the batches of one put."""
        max_bytes = int(_MAX_SEGMENT_FILL * queue.route.segment_bytes)
        if queue.route.stripes:
            from spark_log.log.stripe import MAX_GROUP_BYTES  # late: few topics have stripes

            max_bytes = min(max_bytes, MAX_GROUP_BYTES)
        return min(max_bytes, self._throttle.max_append_bytes)

    def _drain(self, queue: PartitionQueue, max_bytes: int) -> InFlightBatches | None:
        """Return the batches to retry, or put waiting ones in flight; None without batches."""
        with self._accumulator.lock:
            if queue.in_flight is not None and queue.in_flight.is_done:  # all have expired
                self._completer.drop_in_flight(queue)
            in_flight = self._accumulator.drain(queue, max_bytes)
        if in_flight is not None and not in_flight.attempts:
            _log.debug("%s: put in flight: %s", queue, in_flight)
            if self._config.acks == "0":
                for batch in in_flight.batches:
                    batch.acknowledge(NO_OFFSET)
        return in_flight

    def _append(self, turns: Sequence[Turn]) -> None:
        """Make one attempt of an append, and set the outcome of each partition."""
        ready: list[Turn] = []
        for turn in turns:
            try:
                self._identify(turn.queue, turn.in_flight)
                ready.append(turn)
            except Exception as error:
                turn.outcome = error
        if ready:
            self._appender.append(ready)

    def _identify(self, queue: PartitionQueue, in_flight: InFlightBatches) -> None:
        """Give an append the identity that the log recognizes it by."""
        in_flight.attempts += 1
        if self._completer.fatal_error is not None:
            raise self._completer.fatal_error
        if queue.route.is_deleted:
            raise TopicDeletedError
        if self._transaction is not None:
            self._transaction.check_can_append()
        if self._identity.is_idempotent and not in_flight.is_outcome_unknown:
            in_flight.producer = self._next_identity(queue, in_flight)

    def _next_identity(self, queue: PartitionQueue, in_flight: InFlightBatches) -> ProducerAppend:
        try:
            producer = self._identity.next_append(queue)
        except UnknownOutcomeError as error:
            # The registration may have happened, but not the append: a retry begins anew.
            raise StorageUnavailableError(f"not appended: {error}", path=error.path) from error
        if self._transaction is not None:
            # Batches that expired meanwhile may be of an earlier transaction than this identity.
            in_flight.drop_done_batches()
            if not in_flight.batches:
                raise self._transaction.refusal()
        return producer

    def _complete(
        self,
        queue: PartitionQueue,
        in_flight: InFlightBatches,
        appended: AppendResult,
        began_ms: float,
    ) -> None:
        """Acknowledge the batches of a successful append, and fail the refused records."""
        errors = in_flight.refused_errors()
        records = in_flight.complete(appended.info, appended.log_append_times_us)
        now_ms = self._clock.monotonic_ms()
        throttle_ms = 0.0
        if appended.image is not None:
            throttle_ms = self._throttle.record(appended.size_bytes, appended.image, now_ms)
        self._metrics.count_failed_records(len(errors))
        self._metrics.count_append(
            now_ms,
            records=records,
            size_bytes=appended.size_bytes,
            batches=len(in_flight.batches),
            latency_ms=now_ms - began_ms,
            queued_ms=began_ms - in_flight.batches[0].created_ms,
            throttle_ms=throttle_ms,
        )
        with self._accumulator.lock:
            queue.end_append()
        if errors:
            self._completer.fail_transaction(errors[0])
        self._completer.complete(in_flight.batches)
        for batch in in_flight.batches:
            batch.release_records()
        self._appender.catch_up(queue)
        self._release(queue)

    # --- after a failed attempt ------------------------------------------------------------------

    def _react(self, queue: PartitionQueue, in_flight: InFlightBatches, error: Exception) -> None:
        """Do what `reaction_to` decides: retry, move or fail the batches in flight."""
        if not isinstance(error, TopicDeletedError):
            self._note_failure(in_flight, error)
        match reaction_to(
            error,
            is_transactional=self._transaction is not None,
            is_outcome_unknown=in_flight.is_outcome_unknown,
            is_retriable=self._appender.is_retriable,
        ):
            case Reaction.MOVE:
                self._move(queue, in_flight)
            case Reaction.FAIL:
                self._fail(queue, in_flight, error)
            case Reaction.FAIL_TRANSACTION:
                assert self._transaction is not None
                self._fail(queue, in_flight, self._transaction.abortable_after(error))
            case Reaction.FENCE:
                self._fence(queue, in_flight, error)
                self._fail(queue, in_flight, self._completer.fatal_error or error)
            case Reaction.RETRY_IN_NEW_EPOCH:
                _log.warning("%s; the producer continues in a new epoch", error)
                self._identity.bump_epoch(queue)
                self._retry(queue, in_flight, error)
            case Reaction.RETRY:
                self._retry(queue, in_flight, error)

    def _note_failure(self, in_flight: InFlightBatches, error: Exception) -> None:
        in_flight.error = error
        self._metrics.count_failed_append(error)
        if makes_outcome_unknown(error):
            in_flight.is_outcome_unknown = True

    def _retry(self, queue: PartitionQueue, in_flight: InFlightBatches, error: Exception) -> None:
        """Have the batches appended again at ``retry_ms``; fail them if no attempt is left."""
        queue.forget_log()  # its memory may be of a root that is unmounted, or of a lost answer
        if in_flight.is_done or not self._may_retry(in_flight):
            self._fail(queue, in_flight, self._completer.fatal_error or error)
            return
        _log.log(
            logging.INFO if in_flight.attempts == 1 else logging.DEBUG,
            "%s: attempt %d of an append failed, retry in %d ms%s: %s",
            queue,
            in_flight.attempts,
            in_flight.retry_ms - self._clock.monotonic_ms(),
            " (outcome unknown)" if in_flight.is_outcome_unknown else "",
            error,
        )
        self._metrics.count_retry()
        self._release(queue)

    def _next_retry_ms(self, attempts: int) -> float:
        return self._clock.monotonic_ms() + retry_pause_ms(
            attempts,
            initial_ms=self._config.retry_backoff_ms,
            max_ms=self._config.retry_backoff_max_ms,
            random=self._random,
        )

    def _may_retry(self, in_flight: InFlightBatches) -> bool:
        return (
            self._completer.fatal_error is None
            and self._config.acks != "0"
            and in_flight.attempts <= self._config.retries
            and (self._transaction is None or self._transaction.appends)
        )

    def _fail(self, queue: PartitionQueue, in_flight: InFlightBatches, error: Exception) -> None:
        """Fail the batches in flight, and retry them no more."""
        queue.forget_log()
        if in_flight.is_outcome_unknown:
            error = unknown_outcome(queue, error)
        _log.debug("%s: given up after attempt %d: %s", queue, in_flight.attempts, error)
        self._completer.fail(in_flight.batches, error)
        for batch in in_flight.batches:
            batch.release_records()
        with self._accumulator.lock:
            self._completer.drop_in_flight(queue)
            self._accumulator.release(queue)

    def _move(self, queue: PartitionQueue, in_flight: InFlightBatches) -> None:
        """Move the batches to the new topic of that name; fail them if no such topic exists."""
        try:
            if not queue.route.is_deleted:  # else another partition has refreshed it
                self._refresh(queue.topic)
        except Exception as error:
            self._react(queue, in_flight, error)
            return
        with self._accumulator.lock:
            route = self._accumulator.routes.get(queue.topic)
            partitions = 0 if route is None else len(route.queues)
            can_move = queue.partition < partitions
            batches = [*in_flight.batches, *queue.batches()]
            if can_move:
                self._accumulator.move(queue, in_flight.batches)
            else:
                self._accumulator.seal(batches)
        _log.debug("%s: the topic was deleted; a new one has %d partitions", queue, partitions)
        if can_move:
            return
        # Nobody reads the old topic's log, so that it does not matter if it has the records.
        self._completer.fail(batches, unknown_topic(queue.topic, queue.partition, partitions))
        with self._accumulator.lock:
            queue.end_append()
            self._accumulator.release(queue)

    def _fence(self, queue: PartitionQueue, in_flight: InFlightBatches, error: Exception) -> None:
        """Fail everything: a newer producer has taken over this one's id.

        The append that was refused is not in the log, unless an earlier attempt may have put it.
        """
        # Before the append fails: who sees its error may not use this producer any more.
        self._completer.refuse_records(error)
        with self._accumulator.lock:  # several threads may be fenced at once: the first one counts
            is_first = self._completer.fatal_error is None
            if is_first:
                self._completer.fatal_error = error
        if is_first:
            _log.info("%s: this producer is fenced, and accepts no more records: %s", queue, error)
        is_unknown = in_flight.is_outcome_unknown
        self._completer.fail(
            in_flight.batches, unknown_outcome(queue, error) if is_unknown else error
        )
        self._completer.fail_all(error)

    # --- helpers ---------------------------------------------------------------------------------

    def _refresh_quietly(self, topic: str) -> None:
        with self._suppressed.suppress("metadata refresh", topic, SparkLogError, OSError):
            self._refresh(topic)

    def _release(self, queue: PartitionQueue) -> None:
        with self._accumulator.lock:
            self._accumulator.release(queue)
