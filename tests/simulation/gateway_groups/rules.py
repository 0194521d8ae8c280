"""Variants of a coordinated group without one of its safety rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_log.coordinator.group.group import Group
from spark_log.errors import SparkLogError
from spark_log.gateway.groups import CoordinatedGroup
from spark_log.gateway.groups.group_state import Decision, GroupState
from tests.simulation.gateway_groups.world import GroupOffsets
from tests.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class GatewayGroupVariant:
    """The classes that one simulation uses.

    Attributes:
        group: the coordinated group.
        offsets: the offsets table.
        patches: the attributes that are replaced: none.
    """

    group: type[CoordinatedGroup] = CoordinatedGroup
    offsets: type[GroupOffsets] = GroupOffsets
    patches: tuple[Patch, ...] = ()


GATEWAY_GROUP_SOUND = GatewayGroupVariant()
"""The shipped code."""


class _WritesOverOthers(CoordinatedGroup):
    """Writes its decision whatever another gateway has written meanwhile."""

    def _check(self, group: Group, known: Group) -> None:
        pass


class _AssignsWithoutFence(CoordinatedGroup):
    """Answers an assignment while commits of earlier generations are still accepted."""

    def _raise_fence(self, generation: int) -> None:
        pass


class _LoadsWithoutFence(CoordinatedGroup):
    """Relies on the coordinator before it, which may have died before it raised the fence."""

    def _fence_loaded(self, generation: int) -> int:
        return generation


class _AnswersBeforeItWrites(CoordinatedGroup):
    """Answers what may not be in the log."""

    def write(self, decision: Decision, before: GroupState) -> Decision:
        try:
            return super().write(decision, before)
        except SparkLogError:
            return replace(decision, change=None)


class _TakesOldCommits(GroupOffsets):
    def _is_fenced(self, generation: int, fence: int) -> bool:
        return False


GATEWAY_GROUP_RULES: dict[str, GatewayGroupVariant] = {
    "a change is made of the members that it was decided from": GatewayGroupVariant(
        _WritesOverOthers
    ),
    "the fence is raised before an assignment is answered": GatewayGroupVariant(
        _AssignsWithoutFence
    ),
    "a new coordinator raises the fence": GatewayGroupVariant(_LoadsWithoutFence),
    "nothing is answered that is not in the log": GatewayGroupVariant(_AnswersBeforeItWrites),
    "a commit of an older generation is refused": GatewayGroupVariant(offsets=_TakesOldCommits),
}
"""The name of each safety rule, and the variant without it."""
