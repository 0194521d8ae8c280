"""Appends through the chain of a partition's replicas (protocol R1, R2, R5).

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
    FencedLeaderEpochError,
    OffsetOutOfRangeError,
    SparkLogError,
    UnknownLeaderEpochError,
    UnknownOutcomeError,
)
from spark_log.log.chain.append_failover import AppendFailover
from spark_log.log.chain.chain_followers import ChainFollowers
from spark_log.log.chain.failover import Failover
from spark_log.log.chain.partition_state import PartitionState, PartitionStates
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.storage import Store, with_reserve
from spark_log.util import SuppressedErrors

ALL: Final = -1
"""``acks=all``: an append is acknowledged when all in-sync replicas have it."""

_Result = TypeVar("_Result")

OpenReplica = Callable[[int, int, Callable[[], None]], LocalLog]
"""A function that opens the replica of a broker id and a number of its directory. The third
argument is what `Appender` calls before it puts into a log without records."""

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
        open_replica: OpenReplica,
        store_of: Callable[[int], Store],
        *,
        name: str,
        suppressed: SuppressedErrors,
        check_root: Callable[[int], None] = lambda broker_id: None,
    ) -> None:
        """Access no storage yet.

        Args:
            states: source of the partition's state.
            open_replica: opens a replica.
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
            found = self._replicas[key] = self._open_replica(
                broker_id, number, partial(self._check_root_of_replica, broker_id)
            )
        return found

    def _check_root_of_replica(self, broker_id: int) -> None:
        """Check, before the first put into a replica, that its root was not emptied."""
        if self.states.current().is_replicated:
            self.check_root(broker_id)

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
        failover: AppendFailover[_Result] = AppendFailover(
            self.states,
            name=self._name,
            suppressed=self._suppressed,
            repeatable=repeatable,
            needs_enough=needs_enough and acks == ALL,
        )
        with failover:
            for state in failover.states_to_try():
                try:
                    newer = self._append_under(state, put, failover, waits_for_all=acks == ALL)
                except FencedLeaderEpochError:
                    # Another process has changed the chain, and put its barrier.
                    newer = failover.refresh_epoch()
                except UnknownLeaderEpochError as unknown:
                    # The process that changed the chain has not put its barrier; or the leader's
                    # log was emptied.
                    failover.on_missing_barrier(unknown)
                    continue
                except ReplicaFailedError as failed:
                    # The other replicas have the records, or get them, without this one.
                    newer = failover.leave_out(state, failed)
                if newer is state:
                    failover.check_enough()
                    break
                failover.move_to(newer)
            return failover.result

    def _append_under(
        self,
        state: PartitionState,
        put: Put[_Result],
        failover: AppendFailover[_Result],
        *,
        waits_for_all: bool,
    ) -> PartitionState:
        """Append under one state, and return it; a newer state if the append has to be continued.

        Raises:
            FencedLeaderEpochError: the leader's log has the barrier of a newer leader epoch.
            UnknownLeaderEpochError: the leader's log lacks the barrier of the state's leader epoch.
            ReplicaFailedError: a replica failed.
            UnknownOutcomeError: the append may be in the log, and may not be put again.
        """
        failover.check_leader()
        with blaming(state.leader):
            leader = self._leader(state)
        if failover.lacks_barrier:
            newer = self._put_barrier(state)
            if newer is not state:
                return newer
        if failover.has_to_put:
            self._put(put, leader, failover)
        if waits_for_all:
            newer = self._bring_up_followers(leader, state)
            if newer is not state:
                return newer
        return failover.recent_state()

    @staticmethod
    def _put(put: Put[_Result], leader: LocalLog, failover: AppendFailover[_Result]) -> None:
        """Append to the leader's log.

        Raises:
            ReplicaFailedError: the leader failed.
            UnknownOutcomeError: the leader's answer was lost, and the append is not repeatable.
        """
        state = failover.state
        try:
            with blaming(state.leader):
                result = put(leader, state, failover.is_certain)
        except ReplicaFailedError as failed:
            if isinstance(failed.error, UnknownOutcomeError):
                failover.on_lost_put(failed.error)
            raise
        failover.on_put(result)

    def _put_barrier(self, state: PartitionState) -> PartitionState:
        """Put the barrier of a state. In a log that was emptied, read the newest state instead."""
        if state.leader_epoch <= 0:
            return self._newest(state)
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
        return self._newest(state)

    def _newest(self, state: PartitionState) -> PartitionState:
        """Read the metadata; return the state itself if it is the newest."""
        newer = self.states.refresh()
        return state if newer.leader_epoch == state.leader_epoch else newer

    def _leader(self, state: PartitionState) -> LocalLog:
        """Return the leader's replica, prepared for appends under a state."""
        leader = self.replica(state, state.leader)
        self.followers.limit_merges(leader, state)
        return leader

    # --- without an append -----------------------------------------------------------------------

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
            UnknownOutcomeError: the chain has changed too often.
            StorageError: the replicas, or the metadata, cannot be reached.
        """
        failover = self.failover(self.states.refresh())
        for state in failover.states_to_try():
            try:
                with blaming(state.leader):
                    leader = self._leader(state)
                    if state.leader_epoch > 0:
                        leader.append_barrier(state.leader_epoch, state.isr, state.joining)
                    end_offset = leader.appender.observe_end_offset_in(state.leader_epoch)
                self.followers.replicate(state, end_offset)
                break
            except FencedLeaderEpochError:
                failover.move_to(failover.refresh_epoch())
            except ReplicaFailedError as failed:
                failover.move_to(failover.leave_out(state, failed))
        return failover.state

    def move_start(self, offset: int, view: LogView | None = None) -> int:
        """Move the log start offset of all in-sync and joining replicas, the leader first.

        A replica that comes back later gets the leader's log start offset before the barrier of its
        epoch.

        Args:
            offset: the offset of the first record that is kept, at most the high watermark.
            view: a complete view of one replica's log, made a moment ago, so that this replica need
                not be listed; None without one.

        Returns:
            The lowest log start offset of the in-sync replicas (Kafka's low watermark).

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            OffsetOutOfRangeError: a replica ends before the offset.
            UnknownOutcomeError: it could not be determined whether the start was moved everywhere.
            StorageError: the storage does not answer; the start was not moved on any replica.
        """
        starts: list[int] = []
        with self.failover(self.states.current(), OffsetOutOfRangeError) as failover:
            for state in failover.states_to_try():
                try:
                    starts, lags = self._move_starts(state, offset, view, failover)
                except ReplicaFailedError as failed:
                    failover.has_put |= isinstance(failed.error, UnknownOutcomeError)
                    failover.move_to(failover.leave_out(state, failed))
                    continue
                if lags:
                    self.replicate()
                newer = self._newest(state)
                if newer is state and not lags:
                    break
                failover.move_to(newer)
        return min(starts)

    def _move_starts(
        self, state: PartitionState, offset: int, view: LogView | None, failover: Failover
    ) -> tuple[list[int], bool]:
        """Move the log start offset of each replica of a chain.

        Returns:
            The log start offsets; and whether a joining replica does not have the offset yet.

        Raises:
            OffsetOutOfRangeError: an in-sync replica ends before the offset.
            ReplicaFailedError: a replica failed.
        """
        starts, lags = [], False
        for broker_id in state.chain:
            try:
                with blaming(broker_id):
                    replica = self.replica(state, broker_id)
                    move = partial(self._move_replica_start, broker_id, replica, offset, view)
                    starts.append(with_reserve(replica.files.store, move))
                failover.has_put = True
            except OffsetOutOfRangeError:
                if broker_id in state.isr:
                    raise
                lags = True
        return starts, lags

    def _move_replica_start(
        self, broker_id: int, replica: LocalLog, offset: int, view: LogView | None
    ) -> int:
        """Move the log start offset of one replica.

        Raises:
            OffsetOutOfRangeError: the replica's log ends before the offset, and its root exists.
            StorageError: the root was emptied, or the storage does not answer.
        """
        # A late import: clients that send and read do not delete records.
        from spark_log.log.log_start import move_log_start

        is_of_replica = view is not None and view.origin == replica.files.url
        try:
            return move_log_start(replica, offset, view if is_of_replica else None)
        except OffsetOutOfRangeError:
            self.check_root(broker_id)
            raise

    def failover(self, state: PartitionState, *passed_on: type[SparkLogError]) -> Failover:
        """Return one operation, which continues under newer states when replicas fail.

        Args:
            state: the state to begin with.
            passed_on: errors that are raised as they are, even after something was put.
        """
        return Failover(
            self.states,
            state,
            name=self._name,
            suppressed=self._suppressed,
            passed_on=passed_on,
        )
