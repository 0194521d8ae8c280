"""The sticky assignment if all members subscribe to the same topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from spark_log.coordinator.assignors.partition_assignor import partitions_of
from spark_log.types import TopicPartition


class ConstrainedAssignment:
    """Kafka's ``AbstractStickyAssignor.ConstrainedAssignmentBuilder``.

    Each of *m* members gets ``n // m`` of *n* partitions, and ``n % m`` members get one more, first
    those that already own that many. Members keep as many of their partitions as their quota
    allows, those with low numbers first. The other partitions go in turn to members below their
    quota.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        owned: list[set[TopicPartition]],
    ) -> None:
        """Return an assignment to build.

        Args:
            partitions: topic → number of partitions, sorted by topic.
            owned: the partitions of each member, in the order of positions.
        """
        self._partitions = partitions
        self._owned = owned
        members = max(1, len(owned))
        self._quota, self._larger_left = divmod(sum(partitions.values()), members)
        self._assigned: list[list[TopicPartition]] = [[] for _ in owned]
        self._below_quota: list[int] = []
        self._at_quota: list[int] = []  # members that may get one more

    def build(self) -> list[list[TopicPartition]]:
        """Return the partitions of each member."""
        self._keep_owned()
        kept = {partition for each in self._assigned for partition in each}
        rest = [
            partition
            for topic, count in self._partitions.items()
            for partition in partitions_of(topic, count)
            if partition not in kept
        ]
        self._deal_out(rest)
        return self._assigned

    def _keep_owned(self) -> None:
        for member, owned in enumerate(self._owned):
            keep = sorted(owned, key=lambda each: (each.partition, each.topic))
            if len(keep) < self._quota:
                self._below_quota.append(member)
            elif len(keep) > self._quota and self._larger_left:
                self._grow_over_quota()
                del keep[self._quota + 1 :]
            else:
                del keep[self._quota :]
                if self._larger_left:
                    self._at_quota.append(member)
            self._assigned[member] = keep

    def _deal_out(self, rest: list[TopicPartition]) -> None:
        at_quota = deque(self._at_quota)
        below_quota, turn = self._below_quota, 0
        for partition in rest:
            if not below_quota:
                self._assigned[at_quota.popleft()].append(partition)
                continue
            turn %= len(below_quota)
            member = below_quota[turn]
            self._assigned[member].append(partition)
            if len(self._assigned[member]) < self._quota:
                turn += 1
            else:
                del below_quota[turn]
                at_quota.append(member)

    def _grow_over_quota(self) -> None:
        """Count a member above the quota; after the last allowed one, no other may exceed it."""
        self._larger_left -= 1
        if not self._larger_left:
            self._at_quota.clear()
