"""The racks that sticky assignors use (Kafka's ``AbstractStickyAssignor.RackInfo``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spark_log.coordinator.assignors.partition_assignor import (
    Racks,
    Subscription,
    partitions_of,
    racks_matter,
)
from spark_log.types import TopicPartition


class StickyRacks:
    """Racks of members, by position, and of partitions; empty if racks do not matter.

    Attributes:
        matter: whether the assignment depends on racks.
        of_members: the rack of each member, or None.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        members: list[str],
        racks: Racks | None,
    ) -> None:
        """Return the racks.

        Args:
            partitions: subscribed topic → number of its partitions.
            subscriptions: member id → subscription.
            members: member ids, in the order of their positions.
            racks: racks of the replicas of partitions; None to ignore racks.
        """
        self.of_members: list[str | None] = [None] * len(members)
        self._of_partitions: dict[TopicPartition, frozenset[str]] = {}
        of_members = [subscriptions[member].rack or None for member in members]
        known = {rack for rack in of_members if rack}
        self.matter = False
        if not racks or not known:
            return
        of_partitions = {
            partition: racks.get(partition, frozenset())
            for topic, count in partitions.items()
            for partition in partitions_of(topic, count)
        }
        if racks_matter(known, list(of_partitions.values())):
            self.matter = True
            self.of_members = of_members
            self._of_partitions = of_partitions

    def of_partition(self, partition: TopicPartition) -> frozenset[str]:
        """Return the racks that have a replica of a partition."""
        return self._of_partitions.get(partition, frozenset())

    def mismatch(self, member: int, partition: TopicPartition) -> bool:
        """Return whether a member has a rack, and the partition no replica in it."""
        rack = self.of_members[member]
        return rack is not None and rack not in self.of_partition(partition)

    def by_candidates(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sort partitions by the number of members in their racks, stably; few first."""
        if not self.matter:
            return partitions
        members_in = Counter(rack for rack in self.of_members if rack)
        return sorted(
            partitions, key=lambda each: sum(members_in[rack] for rack in self.of_partition(each))
        )
