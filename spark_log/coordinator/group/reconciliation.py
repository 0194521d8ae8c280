"""The step from the partitions that members have towards their target (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_log.coordinator.assignors import (
    Subscription,
    assign_whole_stripes,
    assignor,
    cooperative_step,
)
from spark_log.coordinator.group.group import GroupTopic, Member
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


def target_assignment(
    strategy: str, topics: Mapping[str, GroupTopic], subscriptions: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that each member is to get in the end, by id.

    Args:
        strategy: name of the assignor.
        topics: the existing topics that members subscribe to.
        subscriptions: member id → subscription.
    """
    return assign_whole_stripes(
        assignor(strategy),
        {name: topic.partitions for name, topic in topics.items()},
        subscriptions,
        {name: topic.stripe_numbers() for name, topic in topics.items() if topic.stripes},
    )


def is_same_topic(before: GroupTopic | None, topic: GroupTopic) -> bool:
    """Return whether a topic is the one before, and was not created again under its name."""
    return before is not None and before.topic_id == topic.topic_id


def keep_topics(member: Member, topics: Collection[str]) -> Member:
    """Return a member with its partitions of some topics alone."""

    def kept(partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(each for each in partitions if each.topic in topics)

    return replace(
        member,
        owned=kept(member.owned),
        revoking=kept(member.revoking),
        pending=kept(member.pending),
    )
