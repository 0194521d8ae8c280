"""The round-robin assignor: members get the partitions of all topics in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from spark_log.coordinator.assignors.partition_assignor import (
    Subscription,
    in_member_order,
    partitions_of,
    subscribers_by_topic,
)
from spark_log.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's ``RoundRobinAssignor``.

    Partitions, sorted by topic and number, go to members in turn (static members first, by instance
    id); a member that does not subscribe to the topic is skipped. If all members subscribe to the
    same topics, their numbers of partitions differ by at most one; if not, they may differ by more.
    """

    name = "roundrobin"
    is_sticky = False

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
    ) -> dict[str, list[TopicPartition]]:
        """Return an assignment; the list of each member is sorted by topic and partition."""
        members = in_member_order(subscriptions)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        turn = 0  # position of the next member
        for topic, subscribers in subscribers_by_topic(partitions, subscriptions, members).items():
            at = bisect_left(subscribers, turn)
            for partition in partitions_of(topic, partitions[topic]):
                member = subscribers[at % len(subscribers)]
                assigned[member].append(partition)
                at += 1
                turn = (member + 1) % len(members)
        return dict(zip(members, assigned, strict=True))
