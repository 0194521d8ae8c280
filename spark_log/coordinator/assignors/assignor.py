"""What an assignor is given and what it answers, and how to get one by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from spark_log.errors import InvalidConfigurationError
from spark_log.types import TopicPartition

Racks = Mapping[TopicPartition, frozenset[str]]
"""The racks that have a replica, per partition; a partition that is absent has none."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants and has (Kafka's ``ConsumerPartitionAssignor.Subscription``).

    Attributes:
        topics: names, also of topics that do not exist.
        owned: what it had after the last rebalance that it knows of. Only sticky assignors look.
        generation: of that rebalance; -1 where it knows of none. An older claim loses.
        group_instance_id: of a static member (KIP-345).
        rack: where it runs (``client.rack``, KIP-881).
    """

    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    group_instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    """A pure function from what members want to who gets what."""

    @property
    def name(self) -> str:
        """Kafka's name of it, as in ``partition.assignment.strategy``."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> dict[str, list[TopicPartition]]:
        """Give each partition of each topic that somebody subscribed to, to one who did.

        The answer does not depend on the order of any mapping.

        Args:
            partitions: how many partitions each topic has; one that does not exist is absent.
            subscriptions: by member id.
            racks: where the replicas of partitions are. Without it racks do not count.

        Returns:
            A list for every member, empty where there is nothing for it, in Kafka's order.
        """


def assignor(name: str) -> Assignor:
    """Return the assignor of that name.

    Raises:
        InvalidConfigurationError: There is none.
    """
    # They are built on this file.
    from spark_log.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from spark_log.coordinator.assignors.range import RangeAssignor
    from spark_log.coordinator.assignors.roundrobin import RoundRobinAssignor
    from spark_log.coordinator.assignors.sticky import StickyAssignor

    every: tuple[Assignor, ...] = (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
    known = {each.name: each for each in every}
    if name not in known:
        nearest = next(iter(get_close_matches(name, known, 1)), None)
        raise InvalidConfigurationError(
            f"there is no assignor named {name!r}: partition.assignment.strategy is one of "
            f"{', '.join(known)}" + (f"; did you mean {nearest}?" if nearest else ""),
            key="partition.assignment.strategy",
            nearest=nearest,
        )
    return known[name]


def in_java_order(names: Iterable[str]) -> list[str]:
    """Sort as Java's ``String.compareTo`` does: by UTF-16 units, and so as Kafka."""
    return sorted(names, key=_utf16)


def in_member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Sort members as Kafka's ``AbstractPartitionAssignor.MemberInfo`` compares them.

    Static members come first, by ``group.instance.id``, so that a new member id after a restart
    changes nothing; then the others by member id.
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
    """Return who subscribed to each topic that exists and has subscribers, topics in order.

    Members are given as their positions in ``members``, ascending. Topics with the same subscribers
    share one tuple: its identity tells that they have.
    """
    # Most members of a group subscribe to the same, so it is looked at once for all of them.
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
    """Return the partitions of ``topic`` from 0 on."""
    return [TopicPartition(topic, number) for number in range(count)]


def racks_matter(member_racks: Iterable[str], partition_racks: list[frozenset[str]]) -> bool:
    """Say whether it matters for racks who gets what (Kafka's ``useRackAwareAssignment``).

    It does not where members and replicas have no rack in common, nor where every partition has a
    replica in every rack.
    """
    every = frozenset[str]().union(*partition_racks)
    return not every.isdisjoint(member_racks) and any(each != every for each in partition_racks)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
