"""The interface of assignors, and the orders of names and members that they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a member (Kafka's ``ConsumerPartitionAssignor.Subscription``).

    Attributes:
        topics: the names of topics, which need not exist.
        owned: the member's partitions after the last rebalance that it knows. Only sticky assignors
            use them.
        generation: the generation of that rebalance; -1 without one. Of two claims to a partition,
            the older one loses.
        group_instance_id: ``group.instance.id`` of a static member (KIP-345).
    """

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    group_instance_id: str | None = None


class Assignor(Protocol):
    """A pure function from subscriptions to assignments.

    Unlike Kafka's (KIP-881), assignors do not know racks: ``client.rack`` decides which replica a
    member reads, not which member reads a partition.
    """

    @property
    def name(self) -> str:
        """Its name in ``partition.assignment.strategy``."""

    @property
    def is_sticky(self) -> bool:
        """Whether members keep what they own; else the answer does not depend on it."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
    ) -> dict[str, list[TopicPartition]]:
        """Assign each partition of each subscribed topic to one of the topic's subscribers.

        The result does not depend on the order of any mapping.

        Args:
            partitions: topic → number of its partitions; only existing topics.
            subscriptions: member id → subscription.

        Returns:
            Member id → partitions, for every member, in Kafka's order.
        """


def in_java_order(names: Iterable[str]) -> list[str]:
    """Sort like Java's ``String.compareTo``, and so like Kafka: by UTF-16 code units."""
    return sorted(names, key=_utf16)


def in_member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Sort members like Kafka's ``AbstractPartitionAssignor.MemberInfo``.

    Static members are first, sorted by ``group.instance.id``, so that a new member id after a
    restart changes nothing. The other members follow, sorted by member id.
    """

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].group_instance_id
        return instance is None, _utf16(instance or ""), _utf16(member)

    return sorted(subscriptions, key=key)


def subscribers_by_topic(
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    members: list[str],
) -> dict[str, tuple[int, ...]]:
    """Return the subscribers of each existing topic that has any, sorted by topic.

    Subscribers are ascending positions in ``members``. Topics with the same subscribers share one
    tuple, so that its identity shows that they are the same.
    """
    # Most members of a group have the same topics: process each distinct list once.
    alike: dict[tuple[str, ...], list[int]] = {}
    for position, member in enumerate(members):
        alike.setdefault(subscriptions[member].topics, []).append(position)
    positions = list(alike.values())
    wanting: dict[str, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in dict.fromkeys(topics):
            if partitions.get(topic, 0) > 0:
                wanting.setdefault(topic, []).append(number)
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[str, tuple[int, ...]] = {}
    for topic in in_java_order(wanting):
        numbers = tuple(wanting[topic])
        if numbers not in shared:
            shared[numbers] = tuple(sorted(each for n in numbers for each in positions[n]))
        found[topic] = shared[numbers]
    return found


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    """Return the partitions of a topic, in order."""
    return [TopicPartition(topic, number) for number in range(count)]


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
