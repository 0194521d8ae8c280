"""Variants of a group of the consumer protocol without one of its safety rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from spark_log.coordinator.group import consumer_decisions
from spark_log.coordinator.group.consumer import ConsumerGroup
from spark_log.coordinator.group.consumer_decisions import release_revoked
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.records import GroupRecord
from spark_log.errors import SparkLogError
from spark_log.gateway.groups import (
    ConsumerGroups,
    CoordinatedConsumerGroup,
    consumer_groups,
    consumer_statements,
)
from spark_log.gateway.groups.consumer_statements import ConsumerStatements
from spark_log.gateway.groups.coordinated_consumer_group import DecideGroup
from spark_log.types import TopicPartition
from tests.simulation.consumer_protocol.world import ConsumerGroupOffsets
from tests.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class ConsumerProtocolVariant:
    """The classes that one simulation uses.

    Attributes:
        groups: the coordinator of all groups.
        group: one group with its log and its fence.
        offsets: the offsets table.
        patches: the other attributes that are replaced.
    """

    groups: type[ConsumerGroups] = ConsumerGroups
    group: type[CoordinatedConsumerGroup] = CoordinatedConsumerGroup
    offsets: type[ConsumerGroupOffsets] = ConsumerGroupOffsets
    patches: tuple[Patch, ...] = ()


CONSUMER_PROTOCOL_SOUND = ConsumerProtocolVariant()
"""The shipped code."""

_NOTHING: frozenset[TopicPartition] = frozenset()


# --- the group's log and the fence ---------------------------------------------------------------


class _WritesOverOthers(CoordinatedConsumerGroup):
    """Writes its decision whatever another gateway has written meanwhile."""

    def _check(self, group: Group, known: Group) -> None:
        pass


class _AnswersWithoutFence(CoordinatedConsumerGroup):
    """Gives partitions while commits of those who had them are still accepted."""

    def _raise_fence(self, generation: int) -> None:
        pass


class _LoadsWithoutFence(CoordinatedConsumerGroup):
    """Relies on the coordinator before it, which may have died before it raised the fence."""

    def _fence_loaded(self, generation: int) -> None:
        pass


class _AnswersBeforeItWrites(CoordinatedConsumerGroup):
    """Answers what may not be in the log."""

    def write(self, decide: DecideGroup, known: Group) -> Group:
        topics: dict[str, GroupTopic] = {}

        def decide_and_note(group: Group, found: Mapping[str, GroupTopic]) -> GroupRecord | None:
            topics.update(found)
            return decide(group, found)

        try:
            return super().write(decide_and_note, known)
        except SparkLogError:
            record = decide(known, topics)
            return known if record is None else known.replay(record)


class _TakesOldCommits(ConsumerGroupOffsets):
    def _is_fenced(self, generation: int, fence: int) -> bool:
        return False


class _FencesByMemory(ConsumerGroups):
    """Fences a member of which it knows nothing, though another gateway may."""

    async def _check_refusal(self, *_: object) -> None:
        pass


class _TellsAtOnce(ConsumerGroups):
    """Tells a member what it has, though the gateway before may believe that nobody has."""

    async def _before_telling(self, *_: object) -> None:
        pass


# --- members and their partitions ----------------------------------------------------------------


def _give_at_once(
    members: Mapping[str, Member], target: Mapping[str, Collection[TopicPartition]]
) -> dict[str, Member]:
    """Assign the target at once, even partitions that other members still read."""
    return {
        name: replace(member, owned=frozenset(target[name]), revoking=_NOTHING, pending=_NOTHING)
        for name, member in members.items()
    }


def _give_back(before: Mapping[str, Member], after: Mapping[str, Member]) -> dict[str, Member]:
    """Give partitions back to a member that may have released them already."""
    return dict(after)


def _has_released(revoking: frozenset[TopicPartition], owned: object) -> bool:
    """Take each heartbeat for the release of what the member is to revoke."""
    return bool(revoking)


def _counts_at_once(request: object) -> bool:
    """Take what a member says for what it has, though it may not know yet what it has."""
    return False


def _takes_nothing(statements: object, partitions: object) -> bool:
    """Believe that a member has taken, or will never take, what it was told of."""
    return False


def _knows_of_nothing(statements: object, partitions: object) -> bool:
    """Believe that nobody has told a member of what it is to revoke."""
    return False


def _may_commit(members: ConsumerGroup, member_id: str, epoch: int, generation: int) -> bool:
    """Accept each epoch of a member."""
    return member_id in members.members


def _release_what_it_had(group: Group, member_id: str) -> GroupRecord | None:
    """Give a new epoch only to members that had partitions to release."""
    return release_revoked(group, member_id) if group.members[member_id].revoking else None


CONSUMER_PROTOCOL_RULES: dict[str, ConsumerProtocolVariant] = {
    "a change is made of the generation that it was decided from": ConsumerProtocolVariant(
        group=_WritesOverOthers
    ),
    "the fence is raised before a taken partition is given": ConsumerProtocolVariant(
        group=_AnswersWithoutFence
    ),
    "a gateway that loads a group raises the fence": ConsumerProtocolVariant(
        group=_LoadsWithoutFence
    ),
    "no epoch is answered that is not in the log": ConsumerProtocolVariant(
        group=_AnswersBeforeItWrites
    ),
    "the table refuses a commit of an older generation": ConsumerProtocolVariant(
        offsets=_TakesOldCommits
    ),
    "the log is read before a member is fenced": ConsumerProtocolVariant(groups=_FencesByMemory),
    "a partition is revoked before another member gets it": ConsumerProtocolVariant(
        patches=((consumer_decisions, "reconcile", _give_at_once),)
    ),
    "a partition to revoke comes back after its release": ConsumerProtocolVariant(
        patches=((consumer_decisions, "withhold_revoked", _give_back),)
    ),
    "a partition is released by a member that does not name it": ConsumerProtocolVariant(
        patches=((consumer_statements, "has_released", _has_released),)
    ),
    "a release with everything else is confirmed": ConsumerProtocolVariant(
        patches=((consumer_statements, "may_be_earlier", _counts_at_once),)
    ),
    "a partition that a member may be about to take is not released": ConsumerProtocolVariant(
        patches=((ConsumerStatements, "may_take", _takes_nothing),)
    ),
    "what a member was told of is not released by each heartbeat": ConsumerProtocolVariant(
        patches=((ConsumerStatements, "was_told_of", _knows_of_nothing),)
    ),
    "a gateway writes before it tells what it has not given": ConsumerProtocolVariant(
        groups=_TellsAtOnce
    ),
    "a commit with an older epoch of the member is refused": ConsumerProtocolVariant(
        patches=((ConsumerGroup, "may_commit", _may_commit),)
    ),
    "a member that joins again has a new epoch": ConsumerProtocolVariant(
        patches=((consumer_groups, "release_revoked", _release_what_it_had),)
    ),
}
"""The name of each safety rule, and the variant without it."""
