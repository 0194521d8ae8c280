"""The step from the partitions that members have towards their target (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_log.coordinator.assignors import cooperative_step
from spark_log.coordinator.group.group import Member
from spark_log.types import TopicPartition


def reconcile(
    members: Mapping[str, Member], target: Mapping[str, Collection[TopicPartition]]
) -> dict[str, Member]:
    """Give members their target partitions that they own or that are free; revoke all others.

    Args:
        members: the members of the group, by id.
        target: the partitions that each member is to get in the end, by id.
    """
    held = {name: member.held for name, member in members.items()}
    step = cooperative_step({name: list(each) for name, each in target.items()}, held)
    return {
        name: replace(
            member,
            owned=frozenset(step[name]),
            revoking=held[name].difference(target[name]),
            pending=frozenset(target[name]).difference(step[name]),
        )
        for name, member in members.items()
    }
