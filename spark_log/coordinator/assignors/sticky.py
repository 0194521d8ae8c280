"""The sticky assignor: balance first, then as few moves as it finds."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.coordinator.assignors.claims import claims_in_force, former_owners, uncontested
from spark_log.coordinator.assignors.constrained_assignment import ConstrainedAssignment
from spark_log.coordinator.assignors.general_assignment import GeneralAssignment
from spark_log.coordinator.assignors.partition_assignor import (
    Subscription,
    in_java_order,
    subscribers_by_topic,
)
from spark_log.types import TopicPartition


class StickyAssignor:
    """Kafka's ``StickyAssignor`` (KIP-54, KIP-341).

    Balance has priority; then members keep their partitions. If all members subscribe to the same
    topics, their numbers of partitions differ by at most one, with the minimum of moves
    (`ConstrainedAssignment`). If not, partitions move only to improve balance, until no single move
    would (`GeneralAssignment`); as in Kafka, this is not always the best possible assignment.

    Of several claims to a partition the one with the newest generation is valid. If two members
    claim it in the same generation, both lose it.

    Kafka iterates over members in the order of a Java hash map, so that its result may depend on
    the hashes of member ids. Here members are sorted by member id. As in Kafka, instance ids are
    ignored. Four errors of Kafka are avoided, so that results differ: empty subscriptions of the
    first members are not taken for equal to the others'; of three claims the newest is valid in any
    order; claims to partitions that do not exist are ignored; a partition does not return to a
    former owner that no longer subscribes to its topic.
    """

    name = "sticky"
    is_sticky = True

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
    ) -> dict[str, list[TopicPartition]]:
        """Return an assignment; each list has the kept partitions first, then the new ones."""
        members = in_java_order(subscriptions)
        subscribers = subscribers_by_topic(partitions, subscriptions, members)
        counts = {topic: partitions[topic] for topic in subscribers}
        claims = uncontested(claims_in_force(subscriptions))
        owned = [
            {each for each in claims[member] if 0 <= each.partition < counts.get(each.topic, 0)}
            for member in members
        ]
        if len({frozenset(each.topics) for each in subscriptions.values()}) <= 1:
            lists = ConstrainedAssignment(counts, owned).build()
        else:
            before = former_owners(subscriptions, members)
            lists = GeneralAssignment(counts, subscribers, owned, before).build()
        return dict(zip(members, lists, strict=True))
