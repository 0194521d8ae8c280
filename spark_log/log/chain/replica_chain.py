"""Appends through the chain of a partition's replicas (docs/protocol.md, "Replication").

A segment is put into the leader's log, then under the same name into each other replica, in the
order of the chain. Each replica therefore has a prefix of the log of the one before it, and all
in-sync replicas have the records that the last one has. A change of the chain is a record in the
metadata log, and then a barrier in the leader's log, which fences every writer that does not know
of the change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from spark_log.errors import (
    AuthorizationError,
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownLeaderEpochError,
    UnknownOutcomeError,
)
from spark_log.log.chain.chain_attempt import ChainAttempt, unknown_outcome
from spark_log.log.chain.chain_followers import ChainFollowers
from spark_log.log.chain.partition_state import NO_LEADER, PartitionState, PartitionStates
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming
from spark_log.log.local_log import LocalLog
from spark_log.storage import Store
from spark_log.util import SuppressedErrors

ALL: Final = -1
"""``acks=all``: an append is acknowledged when all in-sync replicas have it."""

MAX_CHANGES: Final = 100
"""Number of changes of the chain that one call follows before it gives up."""

_Result = TypeVar("_Result")

Put = Callable[[LocalLog, PartitionState, bool], _Result]
"""A function that appends to the leader's replica. The flag says whether the state was read from
the metadata just now (`Appender.append_segment`)."""


class ReplicaChain:
    """Appends to the replicas of one partition, for one process. For one thread at a time.

    Its state can be lost at any time: the metadata and the logs restore it.

    Attributes:
        states: source of the partition's state.
        check_root: raises a `StorageError` if the root of a broker id does not exist any more.
        followers: the replicas after the leader in the chain.
    """

    def __init__(
        self,
        states: PartitionStates,
        open_replica: Callable[[int, int], LocalLog],
        store_of: Callable[[int], Store],
        *,
        name: str,
        suppressed: SuppressedErrors,
        check_root: Callable[[int], None] = lambda broker_id: None,
    ) -> None:
        """Access no storage yet.

        Args:
            states: source of the partition's state.
            open_replica: returns the replica of a broker id and a number of its directory.
            store_of: returns the store of a broker id: another one if the broker was registered
                again with another root.
            name: the partition's name, for messages.
            suppressed: counter of the failures of replicas that were left out.
            check_root: raises a `StorageError` if the root of a broker id does not exist any more.
        """
        self.states = states
        self._open_replica = open_replica
        self._store_of = store_of
        self._name = name
        self._suppressed = suppressed
        self.check_root = check_root
        self._replicas: dict[tuple[int, int], LocalLog] = {}
        self.followers = ChainFollowers(self.replica, check_root)

    def replica(self, state: PartitionState, broker_id: int) -> LocalLog:
        """Return a broker's replica.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered any more.
            StorageError: its root cannot be opened.
        """
        return self.open_replica(broker_id, state.directory_number(broker_id))

    def open_replica(self, broker_id: int, number: int) -> LocalLog:
        """Return the replica in a numbered directory of a broker.

        Raises:
            BrokerIdNotRegisteredError: the broker is not registered any more.
            StorageError: its root cannot be opened.
        """
        key = broker_id, number
        found = self._replicas.get(key)
        if found is None or found.files.store is not self._store_of(broker_id):
            found = self._replicas[key] = self._open_replica(*key)
        return found

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        put: Put[_Result],
        *,
        acks: int = ALL,
        repeatable: bool = True,
        needs_enough: bool = True,
    ) -> _Result:
        """Append to the leader's log, and bring the other replicas up to it.

        Args:
            put: appends to the leader's replica. It is called again if the chain changes meanwhile,
                even if the leader stays the same: the leader may not have led for a while, and got
                a rewritten segment that covers the name that was put. A repeated call returns the
                result of the first one if its append is in the log.
            acks: `ALL`; or 1, which leaves the other replicas to `catch_up`.
            repeatable: whether ``put`` recognises what an earlier call appended to another leader.
            needs_enough: whether, with `ALL`, ``min.insync.replicas`` have to be in sync.

        Raises:
            LeaderNotAvailableError: the partition has no leader; nothing was appended.
            NotEnoughReplicasError: too few replicas are in sync; nothing was appended.
            NotEnoughReplicasAfterAppendError: the append is in the log, but too few replicas are in
                sync.
            UnknownOutcomeError: it could not be determined whether the append is in the log.
            StorageError: all replicas have failed, or the metadata cannot be reached; nothing was
                appended.
        """
        with self.attempt() as attempt:
            return self._append(
                put,
                attempt,
                waits_for_all=acks == ALL,
                repeatable=repeatable,
                needs_enough=needs_enough and acks == ALL,
            )

    def _append(
        self,
        put: Put[_Result],
        attempt: ChainAttempt,
        *,
        waits_for_all: bool,
        repeatable: bool,
        needs_enough: bool,
    ) -> _Result:
        state, is_certain = self.states.current(), False
        appended_to: tuple[int, int] | None = None
        appended_in = -1
        result: list[_Result] = []
        lacks_barrier = False
        for _ in range(MAX_CHANGES):
            state = self.available(state, needs_enough=needs_enough and not attempt.has_put)
            leader_key = state.leader, state.directory_number(state.leader)
            is_new_leader = appended_to != leader_key
            if is_new_leader and appended_to is not None and not repeatable:
                raise self.unknown_outcome("its leader changed")
            newer = state
            try:
                with blaming(state.leader):
                    leader = self._leader(state)
                if lacks_barrier:
                    newer = self._begin_epoch(state)
                is_new_epoch = appended_in != state.leader_epoch
                if (is_new_leader or is_new_epoch) and newer is state:
                    result = [self._put(put, leader, state, is_certain, attempt, repeatable)]
                    appended_to, appended_in = leader_key, state.leader_epoch
                if waits_for_all and newer is state:
                    newer = self._bring_up_followers(leader, state)
            except FencedLeaderEpochError:
                newer = self._newer(state)
            except UnknownLeaderEpochError as unknown:
                # A log that was emptied does not tell of newer epochs.
                state = self.states.refresh() if unknown.log_epoch is None else state
                lacks_barrier = is_certain = True
                continue
            except ReplicaFailedError as failed:
                newer = self.shrink_isr(state, failed, attempt)
            newer = self._recent(state) if newer is state else newer
            if newer is state:
                if needs_enough:
                    self._check_enough_after_append(state)
                return result[0]
            state, is_certain, lacks_barrier = newer, True, newer.leader_epoch > 0
        raise self.unknown_outcome(f"its replicas changed {MAX_CHANGES} times")

    @staticmethod
    def _put(
        put: Put[_Result],
        leader: LocalLog,
        state: PartitionState,
        is_certain: bool,
        attempt: ChainAttempt,
        repeatable: bool,
    ) -> _Result:
        """Append to the leader's log, and record in the attempt that something was put.

        Raises:
            ReplicaFailedError: the leader failed.
            UnknownOutcomeError: the leader's answer was lost, and the append is not repeatable.
        """
        try:
            with blaming(state.leader):
                result = put(leader, state, is_certain)
        except ReplicaFailedError as failed:
            if isinstance(failed.error, UnknownOutcomeError):
                attempt.has_put = True
                if not repeatable:
                    raise failed.error from failed.error.__cause__
            raise
        attempt.has_put = True
        return result

    def catch_up(self) -> None:
        """Bring the other replicas up to the records that this process appended with ``acks=1``.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        self.append(lambda _leader, _state, _is_certain: None, needs_enough=False)

    def replicate(self) -> PartitionState:
        """Bring all replicas of the chain up to the leader, and put a missing barrier first.

        Returns:
            The state whose barrier is on all replicas of its chain now.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        state, attempt = self.states.refresh(), self.attempt()
        for _ in range(MAX_CHANGES):
            state = self.available(state, needs_enough=False)
            try:
                with blaming(state.leader):
                    leader = self._leader(state)
                    if state.leader_epoch > 0:
                        leader.append_barrier(state.leader_epoch, state.isr, state.joining)
                    end_offset = leader.appender.observe_end_offset_in(state.leader_epoch)
                self.followers.replicate(state, end_offset)
            except FencedLeaderEpochError:
                state = self._newer(state)
            except ReplicaFailedError as failed:
                state = self.shrink_isr(state, failed, attempt)
            else:
                return state
        raise self.unknown_outcome(f"its replicas changed {MAX_CHANGES} times")

    def attempt(self, *certain: type[SparkLogError]) -> ChainAttempt:
        """Return a record of one call's failures and puts.

        Args:
            certain: errors that leave no doubt about the outcome even after something was put.
        """
        return ChainAttempt(self._name, certain)

    # --- one state -------------------------------------------------------------------------------

    def _leader(self, state: PartitionState) -> LocalLog:
        """Return the leader's replica, prepared for appends under a state."""
        leader = self.replica(state, state.leader)
        self.followers.limit_merges(leader, state)
        if state.is_replicated:
            leader.appender.check_root = partial(self.check_root, state.leader)
        return leader

    # --- changes of the state --------------------------------------------------------------------

    def _begin_epoch(self, state: PartitionState) -> PartitionState:
        """Put the barrier of a state. In a log that was emptied, read the newest state instead."""
        if state.leader_epoch <= 0:
            newer = self.states.refresh()
            return state if newer.leader_epoch == state.leader_epoch else newer
        with blaming(state.leader):
            leader = self.replica(state, state.leader)
            leader.append_barrier(state.leader_epoch, state.isr, state.joining)
        return state

    def _bring_up_followers(self, leader: LocalLog, state: PartitionState) -> PartitionState:
        """Bring the other replicas up to the end of the leader's log after an append.

        The replicas may have got the append from the leader's log, where an earlier try had put it,
        and not from this process. Then the leader's root is checked: if it was emptied after the
        append was found, others may have put their records in its place.

        Returns:
            The state; a newer one if the chain has changed, because a broker may then have another
            root.

        Raises:
            ReplicaFailedError: a replica failed, or the leader's root was emptied.
            StorageError: the metadata cannot be read.
        """
        end_offset = leader.appender.end_offset_in(state.leader_epoch)
        if self.followers.replicate(state, end_offset):
            return state
        with blaming(state.leader):
            self.check_root(state.leader)
        newer = self.states.refresh()
        return state if newer.leader_epoch == state.leader_epoch else newer

    def _recent(self, state: PartitionState) -> PartitionState:
        """Return the state that an append was made under; a newer one if that was not recent.

        The replicas of an old state may all have lost their files, one after the other, after other
        replicas had copied them. An append made under that state may exist on no current replica.

        Raises:
            UnknownOutcomeError: the metadata cannot be read.
        """
        if not state.is_replicated:
            return state
        try:
            newer = self.states.recent()
        except StorageError as error:
            raise self.unknown_outcome(f"the metadata cannot be read: {error}") from error
        return state if newer.leader_epoch == state.leader_epoch else newer

    def _newer(self, state: PartitionState) -> PartitionState:
        newer = self.states.refresh()
        if newer.leader_epoch <= state.leader_epoch:
            raise self.unknown_epoch(newer)
        return newer

    def unknown_epoch(self, state: PartitionState) -> StorageError:
        """Return the error for a log with a newer leader epoch than the newest state."""
        return StorageError(
            f"{self._name}: the log has a newer leader epoch than the metadata "
            f"({state.leader_epoch}): the metadata log is not the one of this log",
            path=self._name,
        )

    def shrink_isr(
        self, state: PartitionState, failed: ReplicaFailedError, attempt: ChainAttempt
    ) -> PartitionState:
        """Return the state without a replica that failed.

        Args:
            state: the partition state that the replica was used under.
            failed: the failed replica, and its error.
            attempt: the call, which continues with the other replicas.

        Raises:
            LeaderNotAvailableError: it is the last replica that may lead; others are not in sync.
            StorageUnavailableError: this user may not change the metadata, or it is not known
                whether they were changed.
            StorageError: the metadata cannot be changed.
            SparkLogError: all replicas have failed in this call: this is the error of the last one.
        """
        broker_id, error = failed.broker_id, failed.error
        attempt.failed.add(broker_id)
        newer = state
        if state.chain != (broker_id,):
            newer = self._commit_shrunk_isr(state, failed)
        elif state.is_replicated:  # by this state no replica is left: a newer one may have some
            try:
                newer = self.states.refresh()
            except StorageError as unread:
                raise error from (error.__cause__ or unread)
        if newer.leader_epoch != state.leader_epoch:
            self._suppressed.add("replica", self._name, error)
            return newer
        others = sorted(set(state.replicas) - attempt.failed)
        if others and isinstance(error, StorageError) and not error.retriable:
            raise LeaderNotAvailableError(
                f"{self._name}: the replica on broker {broker_id} failed ({error}), and no other "
                f"one may lead: those on brokers {others} lack records. Bring this root back",
                topic=self._name,
            ) from error
        raise error from error.__cause__

    def _commit_shrunk_isr(
        self, state: PartitionState, failed: ReplicaFailedError
    ) -> PartitionState:
        """Take a replica out of the in-sync and joining replicas; return the newest state."""
        why = f"{self._name}: the replica on broker {failed.broker_id} failed ({failed.error})"
        try:
            return self.states.shrink_isr(state, (failed.broker_id,))
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

    def available(self, state: PartitionState, *, needs_enough: bool) -> PartitionState:
        """Return a state in which the partition can be appended to: this one or a newer one.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            NotEnoughReplicasError: ``needs_enough``, and too few replicas are in sync.
        """
        if state.leader == NO_LEADER or (needs_enough and self._are_too_few(state)):
            state = self.states.refresh()
        if state.leader == NO_LEADER:
            raise LeaderNotAvailableError(
                f"{self._name} has no leader: the in-sync replicas, on brokers "
                f"{list(state.isr)}, are not available. Bring one of these roots back",
                topic=self._name,
            )
        if needs_enough and self._are_too_few(state):
            raise NotEnoughReplicasError(
                f"{self._name}: {self._shortage(state)}; nothing was appended", topic=self._name
            )
        return state

    def _check_enough_after_append(self, state: PartitionState) -> None:
        if not self._are_too_few(state):
            return
        raise NotEnoughReplicasAfterAppendError(
            f"{self._name}: {self._shortage(state)} after an append; its records are in the log. "
            f"An idempotent producer may send them again",
            topic=self._name,
        )

    def _are_too_few(self, state: PartitionState) -> bool:
        return len(state.isr) < self.states.min_insync_replicas()

    def _shortage(self, state: PartitionState) -> str:
        return (
            f"in-sync replicas are on brokers {list(state.isr)}, fewer than min.insync.replicas, "
            f"{self.states.min_insync_replicas()}"
        )

    def unknown_outcome(self, why: str) -> UnknownOutcomeError:
        """Return the error for an append, or a change, that may be in the log or not."""
        return unknown_outcome(self._name, why)
