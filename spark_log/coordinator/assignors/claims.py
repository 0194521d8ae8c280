"""The claims of members to the partitions that they own: valid claims, and conflicting ones."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.coordinator.assignors.partition_assignor import Subscription
from spark_log.types import TopicPartition


def claims_in_force(
    subscriptions: Mapping[str, Subscription],
) -> dict[str, frozenset[TopicPartition]]:
    """Return the partitions that each member claims, without those claimed in a newer generation.

    A member that missed a rebalance thus loses a partition that another member got in it. Two
    members with the same, newest generation both keep their claim: both may be reading the
    partition.
    """
    newest: dict[TopicPartition, int] = {}
    for subscription in subscriptions.values():
        for partition in subscription.owned:
            if subscription.generation >= newest.get(partition, subscription.generation):
                newest[partition] = subscription.generation
    return {
        member: frozenset(each for each in it.owned if newest[each] == it.generation)
        for member, it in subscriptions.items()
    }


def uncontested(
    claims: Mapping[str, frozenset[TopicPartition]],
) -> dict[str, set[TopicPartition]]:
    """Return the claims without the partitions that several members claim."""
    once: set[TopicPartition] = set()
    again: set[TopicPartition] = set()
    for claimed in claims.values():
        again |= once & claimed
        once |= claimed
    return {member: set(claimed - again) for member, claimed in claims.items()}


def former_owners(
    subscriptions: Mapping[str, Subscription], members: list[str]
) -> dict[TopicPartition, int]:
    """Return the last owner of each partition before the newest generation, as a position.

    Kafka's ``prevAssignment``. Of several owners it is the one with the highest generation, then
    the first in ``members``.
    """
    newest = max((each.generation for each in subscriptions.values()), default=-1)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for position, member in enumerate(members):
        subscription = subscriptions[member]
        if subscription.generation < newest:
            for partition in subscription.owned:
                if partition not in found or found[partition][0] < subscription.generation:
                    found[partition] = subscription.generation, position
    return {partition: position for partition, (_, position) in found.items()}
