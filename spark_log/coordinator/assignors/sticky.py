"""The sticky assignor: as balanced as can be, and then as few moves as it finds."""

from __future__ import annotations

from collections.abc import Mapping

from spark_log.coordinator.assignors.assignor import (
    Racks,
    Subscription,
    in_java_order,
    subscribers_by_topic,
)
from spark_log.coordinator.assignors.claims import claims_in_force, former_owners, uncontested
from spark_log.coordinator.assignors.constrained_assignment import ConstrainedAssignment
from spark_log.coordinator.assignors.general_assignment import GeneralAssignment
from spark_log.coordinator.assignors.sticky_racks import StickyRacks
from spark_log.types import TopicPartition


class StickyAssignor:
    """Kafka's ``StickyAssignor`` (KIP-54, KIP-341; racks: KIP-881).

    Balance comes first, then members keep what they own. Where all subscribe to the same, sizes
    differ by at most one and moves are as few as that allows (`ConstrainedAssignment`). Where they
    do not, no single move would make sizes more even, and partitions move only for that
    (`GeneralAssignment`); neither in Kafka nor here is this the best of all assignments.

    Of several claims to one partition the newest generation's counts; where two members claim it in
    the same generation, both lose it.

    Kafka goes through members as a Java hash map has them, so its answer may depend on how member
    ids hash. Here they are taken in order of member id. Instance ids do not count, as in Kafka.
    What Kafka gets wrong is done right here, and answers differ: the first members' subscriptions
    being empty does not make them equal to the others'; of three claims a newer one stands whatever
    the order; claims to partitions that a topic does not have are left out; nothing is given back
    to a former owner that is no longer subscribed.
    """

    @property
    def name(self) -> str:
        """``sticky``."""
        return "sticky"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`; lists have what stays first, then what is new."""
        members = in_java_order(subscriptions)
        subscribers = subscribers_by_topic(partitions, subscriptions, members)
        counts = {topic: partitions[topic] for topic in subscribers}
        known = StickyRacks(counts, subscriptions, members, racks)
        claims = uncontested(claims_in_force(subscriptions))
        owned = [
            {each for each in claims[member] if 0 <= each.partition < counts.get(each.topic, 0)}
            for member in members
        ]
        if len({frozenset(each.topics) for each in subscriptions.values()}) <= 1:
            lists = ConstrainedAssignment(counts, owned, known).build()
        else:
            before = former_owners(subscriptions, members)
            lists = GeneralAssignment(counts, subscribers, owned, before, known).build()
        return dict(zip(members, lists, strict=True))
