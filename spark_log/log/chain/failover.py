"""Failover: an append, a read or another operation continues when replicas or the leader fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, Self

from spark_log.errors import (
    AuthorizationError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    StripesChangedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log.chain.partition_state import NO_LEADER, PartitionState, PartitionStates
from spark_log.log.chain.replica_failure import ReplicaFailedError
from spark_log.util import SuppressedErrors

_log = logging.getLogger(__name__)

MAX_CHANGES: Final = 100
"""Number of changes of the chain that one call follows before it gives up."""

_PASSED_ON = (UnknownOutcomeError, NotEnoughReplicasAfterAppendError, UnknownTopicOrPartitionError)
"""Errors that are raised as they are, also after a put. The first two say by themselves what became
of the append; after the third it does not matter: nobody reads the log of a deleted topic."""


class Failover:
    """One operation on a partition's replicas, and the partition state that it continues under.

    Once something was put that may be in the log, now or later, no error may say that it is not. In
    the ``with`` block each error that leaves the outcome open becomes `UnknownOutcomeError`. An
    operation that puts nothing, such as a read, needs no ``with`` block.

    Attributes:
        state: the partition state that the operation is made under now.
        has_put: whether something was put, or may have been.
    """

    def __init__(
        self,
        states: PartitionStates,
        state: PartitionState,
        *,
        name: str,
        suppressed: SuppressedErrors,
        passed_on: tuple[type[SparkLogError], ...] = (),
        needs_enough: bool = False,
    ) -> None:
        """Begin; nothing was put yet.

        Args:
            states: source of the partition's state.
            state: the state to begin with.
            name: the partition's name, for messages.
            suppressed: counter of the failures of replicas that were left out.
            passed_on: more errors that are raised as they are, since they say what became of the
                operation.
            needs_enough: whether ``min.insync.replicas`` have to be in sync.
        """
        self.state = state
        self.has_put = False
        self._failed: set[int] = set()
        self._states = states
        self._name = name
        self._suppressed = suppressed
        self._passed_on = (*_PASSED_ON, *passed_on)
        self._needs_enough = needs_enough

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        passes = not self.has_put or isinstance(error, self._passed_on)
        if not passes and isinstance(error, SparkLogError | OSError):
            raise self.unknown_outcome(str(error)) from error

    # --- one state -------------------------------------------------------------------------------

    def states_to_try(self) -> Iterator[PartitionState]:
        """Yield the state to continue under, until the caller is done.

        Raises:
            LeaderNotAvailableError, NotEnoughReplicasError: See `available`.
            UnknownOutcomeError: the chain has changed too often. Raised by every operation, also if
                it has put nothing.
        """
        for _ in range(MAX_CHANGES):
            yield self.available()
        raise UnknownOutcomeError(
            f"{self._name}: an operation was given up, because the replicas changed {MAX_CHANGES} "
            f"times meanwhile. What it has put, if anything, may be in the log",
            path=self._name,
        )

    def available(self) -> PartitionState:
        """Return the state to continue under; the newest one if this one does not do.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            NotEnoughReplicasError: too few replicas are in sync; nothing was appended.
        """
        needs_enough = self._needs_enough and not self.has_put
        if self.state.leader == NO_LEADER or (needs_enough and self._are_too_few()):
            self.state = self._states.refresh()
        if self.state.leader == NO_LEADER:
            raise LeaderNotAvailableError(
                f"{self._name} has no leader: the in-sync replicas, on brokers "
                f"{list(self.state.isr)}, are not available. Bring one of these roots back",
                topic=self._name,
            )
        if needs_enough and self._are_too_few():
            raise NotEnoughReplicasError(
                f"{self._name}: {self._shortage()}; nothing was appended", topic=self._name
            )
        return self.state

    def check_enough(self) -> None:
        """Check, after an append, that enough replicas are in sync.

        Raises:
            NotEnoughReplicasAfterAppendError: too few replicas are in sync.
        """
        if self._needs_enough and self._are_too_few():
            raise NotEnoughReplicasAfterAppendError(
                f"{self._name}: {self._shortage()} after an append; its records are in the log. "
                f"An idempotent producer may send them again",
                topic=self._name,
            )

    def _are_too_few(self) -> bool:
        in_sync, replicas = len(self.state.isr), len(self.state.replicas)
        if replicas and in_sync >= replicas:  # the usual case: no more than all are ever needed
            return False
        return in_sync < self._states.min_insync_replicas()

    def _shortage(self) -> str:
        return (
            f"in-sync replicas are on brokers {list(self.state.isr)}, fewer than "
            f"min.insync.replicas, {self._states.min_insync_replicas()}"
        )

    def unknown_outcome(self, why: str) -> UnknownOutcomeError:
        """Return the error for an append, or a change, that may be in the log or not."""
        return unknown_outcome(self._name, why)

    # --- newer states ----------------------------------------------------------------------------

    def move_to(self, newer: PartitionState) -> None:
        """Continue under a newer state."""
        self.state = newer
        _log.debug(
            "%s: continue in leader epoch %d: leader %d, in-sync replicas %s, joining %s",
            self._name,
            newer.leader_epoch,
            newer.leader,
            newer.isr,
            newer.joining,
        )

    def refresh_epoch(self) -> PartitionState:
        """Return the newest state, after the leader's log has shown a newer leader epoch.

        Raises:
            StripesChangedError: the topic gets another number of stripes, and the log has ended.
            StorageError: the metadata do not have this epoch, or cannot be read.
        """
        newer = self._states.refresh()
        if newer.is_moving and newer == self.state:
            raise StripesChangedError(
                f"{self._name}: the log has ended: its topic gets stripes; nothing was appended. "
                f"Try again: it takes some seconds. If the process that changes the topic was "
                f"killed, run spark-log topics alter once more",
                topic=self._name,
            )
        if newer.newest_epoch <= self.state.leader_epoch:
            raise StorageError(
                f"{self._name}: the log has a newer leader epoch than the metadata "
                f"({newer.leader_epoch}): restore the metadata log that this log belongs to",
                path=self._name,
            )
        return newer

    def leave_out(self, state: PartitionState, failed: ReplicaFailedError) -> PartitionState:
        """Take a replica that failed out of the in-sync and joining replicas, if others remain.

        The last replica of the chain stays in it. Then the metadata are only read again: another
        process may have brought other replicas back. The same holds if ``state`` is not the newest.

        Args:
            state: the partition state that the replica was used under.
            failed: the failed replica, and its error.

        Returns:
            A newer state, to continue under. It may still have the replica, if others changed it.

        Raises:
            LeaderNotAvailableError: it is the last replica that may lead; others are not in sync.
            StorageUnavailableError: this user may not change the metadata, or it is not known
                whether they were changed.
            StorageError: the metadata cannot be changed.
            SparkLogError: all replicas have failed in this operation: the error of the last one.
        """
        broker_id, error = failed.broker_id, failed.error
        self._failed.add(broker_id)
        newer = state
        if state.chain != (broker_id,):
            newer = self._remove_from_isr(state, failed)
        elif state.is_replicated:  # by this state no replica is left: a newer one may have some
            try:
                newer = self._states.refresh()
            except StorageError as unread:
                raise error from (error.__cause__ or unread)
        if newer.leader_epoch != state.leader_epoch:
            self._suppressed.count("replica")
            _log.warning(
                "%s: the replica on broker %d failed (%s: %s); the in-sync replicas were %s and "
                "are %s in leader epoch %d. Check the root of this broker",
                self._name,
                broker_id,
                type(error).__name__,
                error,
                state.isr,
                newer.isr,
                newer.leader_epoch,
            )
            return newer
        others = sorted(set(state.replicas) - self._failed)
        if others and isinstance(error, StorageError) and not error.retriable:
            raise LeaderNotAvailableError(
                f"{self._name}: the replica on broker {broker_id} failed ({error}), and no other "
                f"one may lead: those on brokers {others} lack records. Bring this root back",
                topic=self._name,
            ) from error
        raise error from error.__cause__

    def _remove_from_isr(self, state: PartitionState, failed: ReplicaFailedError) -> PartitionState:
        """Change the metadata; return the newest state."""
        why = f"{self._name}: the replica on broker {failed.broker_id} failed ({failed.error})"
        try:
            return self._states.remove_from_isr(state, (failed.broker_id,))
        except UnknownOutcomeError as unknown:  # of the change, not of the append
            raise StorageUnavailableError(
                f"{why}, and it is not known whether it was taken out of the in-sync replicas: "
                f"{unknown}",
                path=self._name,
            ) from unknown
        except AuthorizationError as denied:
            raise StorageUnavailableError(
                f"{why}, and this user may not take it out of the in-sync replicas ({denied}): a "
                f"controller, or a writer with this right, does so",
                path=self._name,
            ) from denied


def unknown_outcome(name: str, why: str) -> UnknownOutcomeError:
    """Return the error for an append, or a change, that may be in the log or not.

    Args:
        name: the partition's name.
        why: the reason why the outcome is not known.
    """
    return UnknownOutcomeError(
        f"{name}: it is not known whether an append is in the log: {why}", path=name
    )
