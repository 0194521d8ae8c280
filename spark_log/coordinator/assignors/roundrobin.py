"""The round-robin assignor: all partitions of all topics are dealt out in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from spark_log.coordinator.assignors.assignor import (
    Racks,
    Subscription,
    in_member_order,
    partitions_of,
    subscribers_by_topic,
)
from spark_log.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's ``RoundRobinAssignor``.

    Partitions in order of topic and number go to members in turn (static ones first, by instance
    id); a member that did not subscribe to the topic is passed over. Sizes differ by at most one
    where all subscribe to the same, and may differ by much where they do not. Racks do not count.
    """

    name = "roundrobin"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`; lists are in order of topic and partition."""
        members = in_member_order(subscriptions)
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        turn = 0  # the position of the member that is asked next
        for topic, subscribers in subscribers_by_topic(partitions, subscriptions, members).items():
            at = bisect_left(subscribers, turn)
            for partition in partitions_of(topic, partitions[topic]):
                member = subscribers[at % len(subscribers)]
                assigned[member].append(partition)
                at += 1
                turn = (member + 1) % len(members)
        return dict(zip(members, assigned, strict=True))
