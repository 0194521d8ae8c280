"""The states of a transactional producer, and the calls that each state permits.

This is Kafka's ``TransactionManager``. No method reads or writes the storage. A change of the state
is made under the lock of the producer's accumulator, as are its effects on waiting records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from spark_log.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    SparkLogError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.util import Clock

if TYPE_CHECKING:
    from spark_log.transaction import TopicIdPartition, TransactionOffset

_log = logging.getLogger(__name__)


class State(StrEnum):
    """The states of a transactional producer, as in Kafka."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


_FROM: Final = {
    State.UNINITIALIZED: {State.INITIALIZING},
    State.INITIALIZING: {State.UNINITIALIZED},
    State.READY: {
        State.INITIALIZING,
        State.COMMITTING_TRANSACTION,
        State.ABORTING_TRANSACTION,
    },
    State.IN_TRANSACTION: {State.READY},
    State.COMMITTING_TRANSACTION: {State.IN_TRANSACTION},
    State.ABORTING_TRANSACTION: {State.IN_TRANSACTION, State.ABORTABLE_ERROR},
    State.ABORTABLE_ERROR: {
        State.IN_TRANSACTION,
        State.COMMITTING_TRANSACTION,
        State.ABORTING_TRANSACTION,
    },
    State.FATAL_ERROR: set(State),
}
"""The states that may come before each state. Unlike in Kafka, `init_transactions` may be called
again after an error that is not fatal, and an abort that could not be stored may be repeated."""

_EXPECTED: Final = {
    State.UNINITIALIZED: "no transaction can begin yet: call init_transactions first",
    State.INITIALIZING: "init_transactions has not ended: call it again to wait for its end",
    State.READY: "no transaction has begun: call begin_transaction first",
    State.IN_TRANSACTION: "a transaction is open: call commit_transaction or abort_transaction",
    State.COMMITTING_TRANSACTION: "commit_transaction has not ended: call it again to wait for "
    "its end",
    State.ABORTING_TRANSACTION: "abort_transaction has not ended: call it again to wait for its "
    "end",
    State.ABORTABLE_ERROR: "the transaction has failed: call abort_transaction",
}
"""The call that each state expects, for error messages."""

_APPENDING: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING_TRANSACTION})
"""The states in which records are appended."""


class TransactionManager:
    """The state of one transactional producer and of its transaction.

    Attributes:
        transactional_id: the ``transactional.id``.
        timeout_ms: ``transaction.timeout.ms``.
        state: the producer's state.
        producer: id and epoch of the present or next transaction; None before the first `end`.
        error: the error after which the transaction can only be aborted, or after which the
            producer is unusable; None without one.
        is_begun: whether a part of the transaction may be registered, so that its end has to be
            decided.
        partitions: the registered partitions.
        offsets: the offsets to commit, by group, topic and partition.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, clock: Clock) -> None:
        """Begin in the state before `init_transactions`."""
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = State.UNINITIALIZED
        self.producer: ProducerIdAndEpoch | None = None
        self.error: Exception | None = None
        self.is_begun = False
        self.partitions: frozenset[TopicIdPartition] = frozenset()
        self.offsets: dict[tuple[str, str, int], TransactionOffset] = {}
        self._clock = clock
        self._began_ms = 0.0

    @property
    def appends(self) -> bool:
        """Whether records of the transaction may be appended in this state."""
        return self.state in _APPENDING

    @property
    def is_unusable(self) -> bool:
        """Whether an error has ended the producer."""
        return self.state is State.FATAL_ERROR

    def check_begun(self, call: str) -> None:
        """Check that a transaction is open; raise the errors of `check` otherwise."""
        self.check(call, State.IN_TRANSACTION)

    def check(self, call: str, *allowed: State) -> None:
        """Check that the state permits a call.

        Raises:
            SparkLogError: the producer is unusable; this is the error that was fatal.
            TransactionAbortableError: the transaction can only be aborted.
            IllegalStateError: another call was expected, which the message names.
        """
        state = self.state
        if state in allowed:
            return
        if state is State.FATAL_ERROR:
            assert self.error is not None
            raise self.error
        if state is State.ABORTABLE_ERROR:
            raise self.abortable(f"{call}: {_EXPECTED[state]}. Its first error: {self.error}")
        raise IllegalStateError(f"{call}: {_EXPECTED[state]} ({self.transactional_id!r})")

    def change(self, state: State, error: Exception | None = None) -> None:
        """Change to a state; an error state is given the error that is the reason."""
        if self.state not in _FROM[state]:
            raise AssertionError(f"{state} follows {self.state}")
        _log.debug("transactional id %r: %s -> %s", self.transactional_id, self.state, state)
        self.state = state
        self.error = error

    def begin(self) -> None:
        """Begin a transaction, and its timeout; nothing is registered."""
        self.change(State.IN_TRANSACTION)
        self._began_ms = self._clock.monotonic_ms()

    def begin_registration(self, producer: ProducerIdAndEpoch) -> None:
        """Note that a part of the transaction may be registered, with this producer id and epoch.

        Raises:
            SparkLogError: the errors of `check_can_append`.
        """
        self.producer = producer
        self.check_can_append()
        self.is_begun = True

    def add_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note that partitions are registered."""
        self.partitions = self.partitions.union(partitions)

    def add_offsets(self, offsets: Iterable[TransactionOffset]) -> None:
        """Set the offsets to commit; they replace those of the same groups and partitions."""
        for offset in offsets:
            self.offsets[offset.group_id, offset.topic_id, offset.partition] = offset

    def end(self, producer: ProducerIdAndEpoch | None) -> None:
        """Become ready for the next transaction, as this producer id and epoch."""
        self.change(State.READY)
        self.producer = producer
        self.is_begun = False
        self.partitions = frozenset()
        self.offsets = {}

    def fail(self, error: Exception) -> bool:
        """Change the state after an error, and return whether it changed.

        After an error that fences the producer, or is fatal, the producer is unusable. After any
        other error the open transaction can only be aborted. Without an open transaction, or while
        it is being aborted, such an error changes nothing.
        """
        if self.is_unusable:
            return False
        if isinstance(error, SparkLogError) and (error.fenced or error.fatal):
            self.change(State.FATAL_ERROR, error)
        elif self.appends:
            self.change(State.ABORTABLE_ERROR, error)
        else:
            return False
        return True

    def check_can_append(self) -> None:
        """Check that records of the transaction can be appended, or partitions be registered.

        Raises:
            TransactionAbortedError: the transaction is being aborted, or has ended.
            TransactionAbortableError: ``transaction.timeout.ms`` has passed since the transaction
                began, or the transaction has failed.
            SparkLogError: the producer is unusable.
        """
        if not self.appends:
            raise self.refusal()
        passed_ms = self._clock.monotonic_ms() - self._began_ms
        if passed_ms >= self.timeout_ms:
            raise self.abortable(
                f"the transaction is open for {passed_ms:.0f} ms, longer than "
                f"transaction.timeout.ms ({self.timeout_ms}): call abort_transaction"
            )

    def refusal(self) -> Exception:
        """Return the error of a waiting record, in a state in which no record is appended."""
        if self.state is State.FATAL_ERROR:
            assert self.error is not None
            return self.error
        if self.state is State.ABORTABLE_ERROR:
            return self.abortable(
                f"{_EXPECTED[self.state]}; the record was not appended. The first error of the "
                f"transaction: {self.error}"
            )
        return TransactionAbortedError(
            f"the record was not appended: its transaction was aborted ({self.transactional_id!r})",
            transactional_id=self.transactional_id,
        )

    def abortable_after(self, error: Exception) -> TransactionAbortableError:
        """Return the error of records that the log refused because of the transaction's state.

        After `InvalidProducerEpochError` the partition has a newer epoch, probably of a marker.
        """
        if not isinstance(error, InvalidProducerEpochError):
            return self.abortable(f"call abort_transaction: {error}")
        abortable = self.abortable(
            f"others have ended the transaction, after transaction.timeout.ms ({self.timeout_ms}) "
            f"for example: call abort_transaction, which tells whether another process has taken "
            f"over {self.transactional_id!r}"
        )
        abortable.__cause__ = error
        return abortable

    def abortable(self, message: str) -> TransactionAbortableError:
        """Return an error with this message, caused by the first error of the transaction."""
        error = TransactionAbortableError(message, transactional_id=self.transactional_id)
        error.__cause__ = self.error
        return error
