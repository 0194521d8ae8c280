"""Variants of a consumer group without one of its safety rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group import Group, GroupTopic, Member, PendingOffsets
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.join_requests import JoinRequest
from spark_log.coordinator.group.member_commits import MemberCommits
from spark_log.coordinator.group.records import GroupRecord
from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets
from spark_log.errors import LogEndOffsetMismatchError, UnknownOutcomeError
from spark_log.log.state_log_trimmer import StateLogTrimmer
from spark_log.storage import FileInfo
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.simulation.groups.transactions import NeverWaits
from tests.simulation.groups.world import SimulatedOffsets
from tests.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class GroupVariant:
    """The classes that one simulation uses.

    Attributes:
        log: the group's log.
        coordinator: the coordinator of each member.
        commits: the fenced commits of each member.
        offsets: the offsets table.
        transactions: the offsets that transactions commit.
        patches: the other attributes that are replaced.
    """

    log: type[GroupLog] = GroupLog
    coordinator: type[GroupCoordinator] = GroupCoordinator
    commits: type[MemberCommits[int]] = MemberCommits
    offsets: type[SimulatedOffsets] = SimulatedOffsets
    transactions: type[TransactionalOffsets] = TransactionalOffsets
    patches: tuple[Patch, ...] = ()


GROUP_SOUND = GroupVariant()
"""The shipped code."""


# --- the offsets table ---------------------------------------------------------------------------


class _BeginsWithoutFence(MemberCommits[int]):
    def begin(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Any]:
        found = self._table.fetch(self._group_id)
        wanted = self._status().assigned.intersection(partitions)
        return {tp: found.get(tp) for tp in wanted}


class _ReadsBeforeFence(MemberCommits[int]):
    def begin(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Any]:
        found = self._table.fetch(self._group_id)
        super().begin(partitions)
        wanted = self._status().assigned.intersection(partitions)
        return {tp: found.get(tp) for tp in wanted}


class _TakesOldCommits(SimulatedOffsets):
    def _is_fenced(self, generation: int, fence: int) -> bool:
        return False


class _LooksAtFenceOnly(SimulatedOffsets):
    """Checks the fence, then commits, without seeing changes in between."""

    def _may_follow(self, version: int) -> bool:
        return True


class _CommitsWhatItHad(MemberCommits[int]):
    """Retries in the newest generation, without checking which partitions it still owns."""

    def _check_held(self, *_: Any) -> None:
        pass


class _IgnoresTopicIds(MemberCommits[int]):
    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        topics = self._status().topics
        known = {name: topics[name].topic_id for name in topic_ids if name in topics}
        super().commit(offsets, {**topic_ids, **known})


# --- the group's log -----------------------------------------------------------------------------


class _TrimsByItsOwnClock(GroupLog):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.trimmer = _GoesByItsOwnClock(self._log, self._clock, self.trim_every)


class _GoesByItsOwnClock(StateLogTrimmer):
    def _storage_time_us(self, files: Sequence[FileInfo]) -> int:
        return self._clock.time_us()


class _AppendsAnywhere(GroupLog):
    def _append(self, record: GroupRecord) -> None:
        log = self._log

        class Unconditional:
            def append(self, *args: Any, expected_end_offset: int, **settings: Any) -> object:
                return log.append(*args, **settings)

        self._log = Unconditional()  # type: ignore[assignment]
        try:
            super()._append(record)
        finally:
            self._log = log


class _ForgetsWhatItTried(GroupLog):
    """Decides again after a lost answer, without checking whether the change was made."""

    def _append(self, record: GroupRecord) -> None:
        try:
            super()._append(record)
        except UnknownOutcomeError as error:
            raise LogEndOffsetMismatchError("decide again") from error


class _ReadsTopicsFirst(GroupCoordinator):
    """Reads the metadata before the group's log, so that its metadata may be stale."""

    def heartbeat(self) -> Any:
        self._early = super()._read_topics()
        try:
            return super().heartbeat()
        finally:
            self._early = {}

    def _read_topics(self) -> dict[str, GroupTopic]:
        return getattr(self, "_early", {}) or super()._read_topics()


def _give_at_once(
    members: Mapping[str, Member], target: Mapping[str, Collection[TopicPartition]]
) -> dict[str, Member]:
    """Assign the target at once, even partitions that other members still own."""
    nothing: frozenset[TopicPartition] = frozenset()
    return {
        name: replace(member, owned=frozenset(target[name]), revoking=nothing, pending=nothing)
        for name, member in members.items()
    }


def _lets_all_send(group: Group, sent: PendingOffsets, instance_id: str | None) -> str:
    """Let every producer send offsets, even for partitions that other members own."""
    return ""


def _is_never_superseded(pending: PendingOffsets, generation: int, timestamp_us: int) -> bool:
    return False


def _keeps_recreated(before: GroupTopic | None, topic: GroupTopic) -> bool:
    return before is not None


def _is_no_member(request: JoinRequest, group: Group) -> bool:
    return request.member.member_id not in group.members


GROUP_RULES: dict[str, GroupVariant] = {
    "the fence is raised before positions are read": GroupVariant(commits=_BeginsWithoutFence),
    "positions are read after the fence": GroupVariant(commits=_ReadsBeforeFence),
    "a commit of an older generation is refused": GroupVariant(offsets=_TakesOldCommits),
    "the fence is checked in the step of the commit": GroupVariant(offsets=_LooksAtFenceOnly),
    "a refused commit is made again only by the owner": GroupVariant(commits=_CommitsWhatItHad),
    "a change is appended where it was decided": GroupVariant(log=_AppendsAnywhere),
    "names are freed by the storage's time": GroupVariant(log=_TrimsByItsOwnClock),
    "a change whose answer was lost is looked for": GroupVariant(log=_ForgetsWhatItTried),
    "a removed member does not come back": GroupVariant(
        patches=((JoinRequest, "may_be_accepted", _is_no_member),)
    ),
    "topics are read after the group": GroupVariant(coordinator=_ReadsTopicsFirst),
    "a revoked partition is given after its release": GroupVariant(
        patches=((group_decisions, "reconcile", _give_at_once),)
    ),
    "a transaction's offsets are sent by the owner": GroupVariant(
        patches=((Group, "refusal_of", _lets_all_send),)
    ),
    "a new owner waits for transactions": GroupVariant(transactions=NeverWaits),
    "a transaction's offsets never replace newer ones": GroupVariant(
        patches=((PendingOffsets, "is_superseded_by", _is_never_superseded),)
    ),
    "a commit in a deleted topic is none in its successor": GroupVariant(commits=_IgnoresTopicIds),
}
"""The name of each safety rule, and the variant without it."""
