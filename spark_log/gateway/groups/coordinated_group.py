"""One classic group with what makes it durable: its log, and the fence of its offsets.

On storage: the group's log (`spark_log.coordinator.GroupLog`) and its rows in the offsets table. A
change is written only where the log still has the members that the decision was made from. If
another gateway was first, this one has lost the group, and knows it (`GroupLostError`).

The assignment of a generation is answered only after the offsets table refuses commits of earlier
generations: whoever gets a partition reads an offset that no earlier owner can change any more.
After a crash at any point another gateway continues from the log; a rebalance that was under way
begins anew.

The rules: (protocol G15, G16, G17, G18).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from spark_log.coordinator import Group, GroupLog, GroupRecord
from spark_log.errors import IllegalGenerationError
from spark_log.gateway.groups.classic_decisions import load
from spark_log.gateway.groups.group_state import Decision, GroupState
from spark_log.types import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)


class GroupLostError(Exception):
    """Another process changed the group: this gateway does not coordinate it any more."""


class ForeignMembersError(Exception):
    """The group has members of another kind (docs/adr/0054)."""


class FencedOffsets(Protocol):
    """The part of `OffsetsTable` that a coordinator uses."""

    def generation(self, group: str) -> int:
        """Return the fence: the lowest generation whose commits are accepted."""

    def fence(self, group: str, generation: int) -> None:
        """Refuse all commits of lower generations from now on."""

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        generation: int = 0,
        member_id: str = "",
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets and raise the fence to this generation, atomically."""


class CoordinatedGroup:
    """Loads and changes one classic group. For one thread at a time, except `commit`; may block."""

    def __init__(
        self,
        log: GroupLog,
        table: FencedOffsets,
        group_id: str,
        *,
        finalize_feature: Callable[[], None] = lambda: None,
    ) -> None:
        """Return a group; nothing is read yet.

        Args:
            log: the group's log, which only this object uses.
            table: the root's offsets table.
            group_id: the group's id.
            finalize_feature: called before the first record that older releases cannot read.
        """
        self.group_id = group_id
        self._table = table
        self._log = log
        self._finalize_feature = finalize_feature

    def load(self) -> Decision:
        """Return the group as its log has it, with the timers of its members.

        Raises:
            ForeignMembersError: it has members of another kind.
            CorruptRecordError: its log is damaged.
            StorageError: the storage does not answer.
        """
        self._log.replay()
        group = self._log.state
        fence = self._table.generation(self.group_id)
        if group.classic is None and group.members:  # of this package, or of the consumer protocol
            raise ForeignMembersError(self.group_id)
        if group.members and fence < group.generation:
            fence = self._fence_loaded(group.generation)
        _log.debug(
            "group %s: loaded generation %d, %s, %d members, offsets of generation %d",
            self.group_id,
            group.generation,
            group.state,
            len(group.members),
            fence,
        )
        return load(group, fence)

    def write(self, decision: Decision, before: GroupState) -> Decision:
        """Make a decision durable; return it with the group as the log has it then.

        Args:
            decision: a decision with a change.
            before: the group that it was made from.

        Raises:
            GroupLostError: another process has changed the members.
            UnknownOutcomeError: the change may have been made. Load the group again.
            StorageError: the change, or the fence of the assignment, may have been made. Load the
                group again.
        """
        change, known, wanted = decision.change, before.logged, decision.state.logged
        assert change is not None
        if known.classic is None:
            self._finalize_feature()

        def decide(group: Group) -> GroupRecord:
            self._check(group, known)
            # Pending offsets of transactions may have changed, which is no loss.
            assert wanted.classic is not None
            after = group.with_classic(wanted.classic, wanted.protocol, wanted.generation)
            return after.to_record(change, decision.changed_members, "")

        self._log.commit(decide, is_recent=True)
        logged = self._log.state
        # If the answer was lost and found again, others may have changed the group since.
        self._check(logged, wanted)
        fence = decision.state.fence
        if change == "sync":
            self._raise_fence(logged.generation)
            fence = logged.generation
        return replace(decision, state=replace(decision.state, logged=logged, fence=fence))

    def check(self, state: GroupState) -> None:
        """Read the log, and check that it still has the members that are known.

        Raises:
            GroupLostError: another process has changed them.
            StorageError: the storage does not answer.
        """
        self._log.replay()
        self._check(self._log.state, state.logged)

    def commit(
        self,
        state: GroupState,
        member_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Commit offsets of a member in the group's generation; durable on return.

        Any thread may call this at any time: it does not use the group's log.

        Args:
            state: the group.
            member_id: the member's id.
            offsets: the offsets.
            check: called before each try to commit; raises if this gateway does not coordinate the
                group any more.

        Raises:
            CommitFailedError: other commits kept coming first, or ``check`` refused.
            IllegalGenerationError: a higher generation has started. `CoordinatedGroup.check` tells
                whether another gateway began it.
            UnknownOutcomeError: the offsets may be committed; it is safe to commit them again.
            SparkLogError: See `OffsetsTable.commit`.
        """
        self._table.commit(
            self.group_id,
            offsets,
            generation=state.generation,
            member_id=member_id,
            check=check,
        )

    def _check(self, group: Group, known: Group) -> None:
        if (group.classic, group.generation) != (known.classic, known.generation):
            _log.info(
                "group %s: another process has made generation %d; this gateway knew %d and does "
                "not coordinate the group any more",
                self.group_id,
                group.generation,
                known.generation,
            )
            raise GroupLostError(self.group_id)

    def _fence_loaded(self, generation: int) -> int:
        """Raise the fence: the coordinator before this one may have died before it did."""
        self._raise_fence(generation)
        return generation

    def _raise_fence(self, generation: int) -> None:
        try:
            self._table.fence(self.group_id, generation)
        except IllegalGenerationError:
            raise GroupLostError(self.group_id) from None
