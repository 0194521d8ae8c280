"""What sticky assignors know about racks (Kafka's ``AbstractStickyAssignor.RackInfo``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spark_log.coordinator.assignors.assignor import (
    Racks,
    Subscription,
    partitions_of,
    racks_matter,
)
from spark_log.types import TopicPartition


class StickyRacks:
    """Racks of members, given by position, and of partitions; nothing where racks do not matter.

    Attributes:
        matter: whether any answer depends on racks.
        of_members: a rack or None for each member.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        members: list[str],
        racks: Racks | None,
    ) -> None:
        """Look at ``partitions``, of topics that somebody subscribed to."""
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
        """Return the racks that have a replica of ``partition``."""
        return self._of_partitions.get(partition, frozenset())

    def mismatch(self, member: int, partition: TopicPartition) -> bool:
        """Say whether ``member`` is in a rack, and one without a replica."""
        rack = self.of_members[member]
        return rack is not None and rack not in self.of_partition(partition)

    def by_candidates(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sort those first that few members have in their rack; else the order stays."""
        if not self.matter:
            return partitions
        members_in = Counter(rack for rack in self.of_members if rack)
        return sorted(
            partitions, key=lambda each: sum(members_in[rack] for rack in self.of_partition(each))
        )
