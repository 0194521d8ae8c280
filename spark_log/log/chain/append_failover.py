"""Failover of an append: what was put, under which state, and whether it has to be put again."""

from __future__ import annotations

from typing import Generic, TypeVar

from spark_log.errors import StorageError, UnknownLeaderEpochError, UnknownOutcomeError
from spark_log.log.chain.failover import Failover
from spark_log.log.chain.partition_state import PartitionState, PartitionStates
from spark_log.util import SuppressedErrors

_Result = TypeVar("_Result")


class AppendFailover(Failover, Generic[_Result]):
    """One append, which is put again when the leader or its epoch changes.

    Attributes:
        is_certain: whether `state` was read from the metadata during this append.
        lacks_barrier: whether the leader's log may lack the barrier of the state's leader epoch.
        result: the result of the last put.
    """

    result: _Result

    def __init__(
        self,
        states: PartitionStates,
        *,
        name: str,
        suppressed: SuppressedErrors,
        repeatable: bool,
        needs_enough: bool,
    ) -> None:
        """Begin with the last known state; nothing was put yet.

        Args:
            states: source of the partition's state.
            name: the partition's name, for messages.
            suppressed: counter of the failures of replicas that were left out.
            repeatable: whether a put recognises what an earlier one appended to another leader.
            needs_enough: whether ``min.insync.replicas`` have to be in sync.
        """
        state = states.current()
        super().__init__(states, state, name=name, suppressed=suppressed, needs_enough=needs_enough)
        self.is_certain = False
        self.lacks_barrier = False
        self._repeatable = repeatable
        self._put_under: PartitionState | None = None

    # --- the put ---------------------------------------------------------------------------------

    @property
    def has_to_put(self) -> bool:
        """Whether nothing was put to this leader in this leader epoch."""
        put_under = self._put_under
        return (
            put_under is None
            or put_under.leader_epoch != self.state.leader_epoch
            or self._is_new_leader(put_under)
        )

    def check_leader(self) -> None:
        """Check that the append may be put to the state's leader.

        Raises:
            UnknownOutcomeError: it was put to another leader, and is not repeatable.
        """
        put_under = self._put_under
        if not self._repeatable and put_under is not None and self._is_new_leader(put_under):
            raise self.unknown_outcome("its leader changed")

    def _is_new_leader(self, before: PartitionState) -> bool:
        leader = self.state.leader
        number = self.state.directory_number(leader)
        return before.leader != leader or before.directory_number(leader) != number

    def on_put(self, result: _Result) -> None:
        """Record that the append is in the leader's log."""
        self.result = result
        self.has_put = True
        self._put_under = self.state

    def on_lost_put(self, error: UnknownOutcomeError) -> None:
        """Record that the append may be in the leader's log.

        Raises:
            UnknownOutcomeError: the append is not repeatable, so no other leader may get it.
        """
        self.has_put = True
        if not self._repeatable:
            raise error from error.__cause__

    # --- newer states ----------------------------------------------------------------------------

    def move_to(self, newer: PartitionState) -> None:
        """Continue under a newer state, whose barrier may be missing yet."""
        super().move_to(newer)
        self.is_certain, self.lacks_barrier = True, newer.leader_epoch > 0

    def on_missing_barrier(self, unknown: UnknownLeaderEpochError) -> None:
        """Continue by putting the barrier of the leader epoch, which the leader's log lacks.

        Args:
            unknown: the error of the put. A log that was emptied shows no epoch, and so does not
                tell of newer ones: then the metadata are read.
        """
        if unknown.log_epoch is None:
            self.state = self._states.refresh()
        self.is_certain = self.lacks_barrier = True

    def recent_state(self) -> PartitionState:
        """Return the state that the append was made under; a newer one if that was not recent.

        The replicas of an old state may all have lost their files, one after the other, after other
        replicas had copied them. An append made under that state may exist on no current replica.

        Raises:
            UnknownOutcomeError: the metadata cannot be read.
        """
        if not self.state.is_replicated:
            return self.state
        try:
            newer = self._states.recent()
        except StorageError as error:
            raise self.unknown_outcome(f"the metadata cannot be read: {error}") from error
        return self.state if newer.leader_epoch == self.state.leader_epoch else newer
