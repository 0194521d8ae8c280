"""The transactions of one producer: the work of its public calls.

A call that takes long runs in a thread of its own, and its outcome is kept until the caller has it.
After a timeout or a cancellation, the caller repeats the call and waits for the same outcome, as in
Kafka (``TransactionManager.handleCachedTransactionRequestResult``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeVar

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.coordinator import LazyTransactionalOffsets
from spark_log.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    SparkLogError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.producer.batch import Accumulator
from spark_log.producer.transaction.transaction_manager import State, TransactionManager
from spark_log.producer.transaction.transaction_offsets import (
    Offsets,
    TransactionOffsets,
    checked_group,
)
from spark_log.producer.transaction.transactional_identity import TransactionalIdentity
from spark_log.record import ProducerIdAndEpoch
from spark_log.threads import in_new_thread
from spark_log.transaction import TransactionCoordinator, TransactionOffset
from spark_log.types import ConsumerGroupMetadata
from spark_log.util import retry_pause_ms

_log = logging.getLogger(__name__)

R = TypeVar("R")


class FailsRecords(Protocol):
    """The part of a producer's ``BatchCompleter`` that its transactions call."""

    def fail_transaction(self, error: Exception) -> None:
        """Fail the open transaction and its waiting records."""

    def fail_waiting(self, error: Exception) -> None:
        """Fail all records except those of an append in progress."""


@dataclass(frozen=True, slots=True)
class TransactionCall:
    """A call of `init_transactions`, `commit_transaction` or `abort_transaction` that has begun.

    Attributes:
        name: the name of the call.
        outcome: the result of the call, or its error.
    """

    name: str
    outcome: Future[None]


class Transactions:
    """Begins and ends the transactions of one producer. Safe to use from several threads."""

    def __init__(
        self,
        manager: TransactionManager,
        identity: TransactionalIdentity,
        accumulator: Accumulator,
        completer: FailsRecords,
        group_offsets: LazyTransactionalOffsets,
        cluster: Cluster,
        config: ProducerConfig,
        *,
        is_retriable: Callable[[Exception], bool],
    ) -> None:
        """Create the transactions of a producer; nothing is read yet.

        `is_retriable` tells whether a call that failed with this error may succeed later.
        """
        self._manager = manager
        self._identity = identity
        self._accumulator = accumulator
        self._completer = completer
        self._offsets = TransactionOffsets(cluster, identity, group_offsets)
        self._suppressed = cluster.suppressed
        self._config = config
        self._clock = cluster.clock
        self._is_retriable = is_retriable
        self._random = Random()
        self._pending: TransactionCall | None = None
        self._is_closed = False

    @property
    def offsets(self) -> tuple[TransactionOffset, ...]:
        """The offsets that are committed with the open transaction."""
        return tuple(self._manager.offsets.values())

    # --- calls -----------------------------------------------------------------------------------

    def initialize(self) -> TransactionCall:
        """Begin `init_transactions`, or return an earlier call whose outcome was not taken."""
        return self._start(
            "init_transactions", self._initialize, State.INITIALIZING, State.UNINITIALIZED
        )

    def begin(self) -> None:
        """Begin a transaction; nothing is read or written."""
        with self._accumulator.lock:
            self._check_call("begin_transaction", State.READY)
            self._manager.begin()
            self._accumulator.accepts_records = True

    def commit(self) -> TransactionCall:
        """Begin `commit_transaction`, or return an earlier call whose outcome was not taken."""
        return self._start(
            "commit_transaction", self._commit, State.COMMITTING_TRANSACTION, State.IN_TRANSACTION
        )

    def abort(self) -> TransactionCall:
        """Begin `abort_transaction`, or return an earlier call whose outcome was not taken."""
        return self._start(
            "abort_transaction",
            self._abort,
            State.ABORTING_TRANSACTION,
            State.IN_TRANSACTION,
            State.ABORTABLE_ERROR,
        )

    def wait_for(self, call: TransactionCall, timeout_s: float | None) -> None:
        """Wait until a call has ended, and take its outcome.

        Args:
            call: the call.
            timeout_s: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the call has not ended, and continues.
            SparkLogError: the error of the call.
        """
        timeout_s = self.timeout_s(timeout_s)
        wait([call.outcome], timeout_s)
        self.take(call, timeout_s)

    def timeout_s(self, given_s: float | None) -> float:
        """Return a call's timeout, which is ``max.block.ms`` if None is given."""
        return self._config.max_block_ms / 1000 if given_s is None else given_s

    def take(self, call: TransactionCall, timeout_s: float | None) -> None:
        """Take the outcome of a call that was waited for; the errors are those of `wait_for`."""
        if not call.outcome.done():
            raise KafkaTimeoutError(
                f"{call.name} has not ended after {timeout_s} s, and continues: call it again to "
                f"wait for its end, or close the producer"
            )
        with self._accumulator.lock:
            if self._pending is call:
                self._pending = None
        call.outcome.result()

    def send_offsets(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata, timeout_s: float | None
    ) -> None:
        """Add the offsets of a consumer group to the transaction; they count if it is committed.

        Args:
            offsets: the offset of the next record to read, by partition.
            group_metadata: the group metadata of the consumer that has read the records.
            timeout_s: seconds; None: ``max.block.ms``.

        Raises:
            KafkaTimeoutError: the storage did not answer in time; the offsets are not added.
            SparkLogError: the errors of `Producer.send_offsets_to_transaction`.
        """
        call = "send_offsets_to_transaction"
        checked_group(group_metadata)
        with self._accumulator.lock:
            self._check_call(call, State.IN_TRANSACTION)
        if not offsets:
            return
        until_ms = self._clock.monotonic_ms() + self.timeout_s(timeout_s) * 1000
        added = self._retry(lambda: self._offsets.check(offsets, group_metadata), call, until_ms)
        try:
            self._retry(lambda: self._offsets.register(added, group_metadata), call, until_ms)
        except SparkLogError as error:
            if not error.retriable:
                self._completer.fail_transaction(error)
            raise
        with self._accumulator.lock:
            self._manager.add_offsets(added)

    def close(self, timeout_s: float | None) -> None:
        """Wait for a call that has begun, or abort the open transaction; then retry nothing.

        A transaction that cannot be aborted now is aborted by others, after its timeout, or by the
        next `init_transactions`.

        Args:
            timeout_s: seconds; None: until the call has ended.
        """
        try:
            call = self._pending
            if call is None and self._manager.state in (
                State.IN_TRANSACTION,
                State.ABORTABLE_ERROR,
            ):
                call = self.abort()
            if call is not None:
                wait([call.outcome], timeout_s)
                self.take(call, timeout_s)
            wait([in_new_thread(self._complete, "spark-log-complete")], timeout_s)
        except Exception as error:
            _log.warning(
                "transactional id %r: the producer is closed, and its transaction may be open: %s",
                self._manager.transactional_id,
                error,
            )
        finally:
            self._is_closed = True

    # --- in a thread of its own ------------------------------------------------------------------

    def _initialize(self) -> None:
        timeout_ms = self._manager.timeout_ms
        producer = self._call_coordinator(
            "init_transactions", lambda coordinator: coordinator.initialize(timeout_ms)
        )
        self._end(producer)

    def _commit(self) -> None:
        name = "commit_transaction"
        self._accumulator.wait_until_finished(None)
        try:
            with self._accumulator.lock:
                self._manager.check(name, State.COMMITTING_TRANSACTION)
                self._manager.check_can_append()
                owner, is_begun = self._manager.producer, self._manager.is_begun
                offsets = self.offsets
        except TransactionAbortableError as error:
            self._completer.fail_transaction(error)
            raise
        assert owner is not None
        if is_begun:
            # The markers are put by the logs that the appends used, at the ends that these know.
            self._accumulator.wait_until_idle(self._manager.partitions)
            producer = self._call_coordinator(
                name, lambda coordinator: coordinator.commit(owner, offsets=offsets)
            )
            self._end(producer)
        else:
            self._end(owner)

    def _abort(self) -> None:
        with self._accumulator.lock:
            refusal = self._manager.refusal()
        self._completer.fail_waiting(refusal)
        self._accumulator.wait_until_finished(None)
        owner = self._manager.producer
        assert owner is not None
        if self._manager.is_begun:
            producer = self._call_coordinator(
                "abort_transaction", lambda coordinator: coordinator.abort(owner)
            )
            self._end(producer)
        else:
            self._end(owner)

    def _complete(self) -> None:
        """Complete the last transaction of this producer."""
        with (
            self._suppressed.suppress(
                "transaction end", self._manager.transactional_id, SparkLogError
            ),
            self._identity.coordinator() as coordinator,
        ):
            coordinator.record_completion()

    def _end(self, producer: ProducerIdAndEpoch) -> None:
        with self._accumulator.lock:
            if self._manager.state is not State.FATAL_ERROR:
                self._manager.end(producer)

    def _call_coordinator(self, name: str, call: Callable[[TransactionCoordinator], R]) -> R:
        unknown: UnknownOutcomeError | None = None

        def coordinate() -> R:
            nonlocal unknown
            try:
                with self._identity.coordinator() as coordinator:
                    return call(coordinator)
            except UnknownOutcomeError as error:
                unknown = error
                raise

        try:
            return self._retry(coordinate, name, math.inf)
        except Exception as failure:
            error = failure if unknown is None else _after_unknown(name, failure)
            with self._accumulator.lock:
                state = self._manager.state
                if state is State.INITIALIZING:
                    self._manager.change(State.UNINITIALIZED)
                elif state is State.ABORTING_TRANSACTION:
                    self._manager.change(State.ABORTABLE_ERROR, error)
            self._completer.fail_transaction(error)
            if error is failure:
                raise
            raise error from failure

    # --- helpers ---------------------------------------------------------------------------------

    def _start(
        self, name: str, work: Callable[[], None], state: State, *allowed: State
    ) -> TransactionCall:
        with self._accumulator.lock:
            if self._pending is not None and self._pending.name == name:
                return self._pending
            self._check_call(name, *allowed)
            # The thread waits for the lock first, so it sees the new state.
            outcome = in_new_thread(lambda: self._when_pending(work), f"spark-log-{name}")
            self._manager.change(state)
            self._accumulator.refuse_records()
            self._pending = TransactionCall(name, outcome)
            return self._pending

    def _when_pending(self, work: Callable[[], None]) -> None:
        with self._accumulator.lock:
            pass
        work()

    def _check_call(self, call: str, *allowed: State) -> None:
        """Check that the producer is open, and that a call is the one that is expected now."""
        if self._is_closed:
            raise IllegalStateError(f"{call}: the producer is closed: make another producer")
        pending = self._pending
        if pending is not None:
            raise IllegalStateError(
                f"{call}: {pending.name} has begun, and its outcome is not known yet: call "
                f"{pending.name} again first"
            )
        self._manager.check(call, *allowed)

    def _retry(self, call: Callable[[], R], name: str, until_ms: float) -> R:
        """Call a function until it succeeds, or fails with an error that is not retriable."""
        failures = 0
        while True:
            try:
                return call()
            except Exception as error:
                if self._is_closed or not self._is_retriable(error):
                    raise
                failures += 1
                _log.log(
                    logging.INFO if failures == 1 else logging.DEBUG,
                    "transactional id %r: attempt %d of %s failed: %s",
                    self._manager.transactional_id,
                    failures,
                    name,
                    error,
                )
                left_ms = until_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise KafkaTimeoutError(f"{name} did not end in time: {error}") from error
            pause_ms = retry_pause_ms(
                failures,
                initial_ms=self._config.retry_backoff_ms,
                max_ms=self._config.retry_backoff_max_ms,
                random=self._random,
            )
            self._clock.sleep_ms(min(pause_ms, left_ms))


def _after_unknown(name: str, error: Exception) -> Exception:
    """Return the error of a call after an earlier attempt whose answer was lost."""
    what = f"the answer to an earlier attempt of {name} was lost, so it may have been made"
    if isinstance(error, UnknownOutcomeError | TransactionAbortableError):
        return error  # the latter shows that the attempt was not made
    if isinstance(error, SparkLogError) and (error.fenced or error.fatal):
        error.add_note(what)
        return error
    return UnknownOutcomeError(f"{what}; the last attempt failed: {error}")
