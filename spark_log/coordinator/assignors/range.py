"""The range assignor: of each topic, each member gets consecutive partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from spark_log.coordinator.assignors.partition_assignor import (
    Racks,
    Subscription,
    in_member_order,
    partitions_of,
    racks_matter,
    subscribers_by_topic,
)
from spark_log.types import TopicPartition


class RangeAssignor:
    """Kafka's ``RangeAssignor``.

    For each topic, *n* partitions in order are divided among *m* members in order (static members
    first, by instance id): each gets ``n // m``, the first ``n % m`` members one more. Topics with
    the same number of partitions and the same subscribers are thus *co-partitioned*: partition *i*
    of each goes to the same member, and a join by key needs no shuffle.

    With racks (KIP-881), a partition first goes to a member in a rack that has a replica, as far as
    quotas allow. Co-partitioned topics stay together: for them only racks count in which all topics
    have a replica of the partition. The remaining partitions are assigned as without racks.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> dict[str, list[TopicPartition]]:
        """Return an assignment; the list of each member is sorted by topic and partition."""
        members = in_member_order(subscriptions)
        topics = [
            _TopicAssignment(topic, partitions[topic], subscribers)
            for topic, subscribers in subscribers_by_topic(
                partitions, subscriptions, members
            ).items()
        ]
        if racks:
            _match_racks(topics, racks, [subscriptions[member].rack or None for member in members])
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        for topic in topics:
            topic.assign_rest()
            topic.append_to(assigned)
        return dict(zip(members, assigned, strict=True))


class _TopicAssignment:
    """The assignment of one topic so far (Kafka's ``TopicAssignmentState``)."""

    def __init__(self, topic: str, count: int, subscribers: tuple[int, ...]) -> None:
        self.topic = topic
        self.count = count
        self.subscribers = subscribers
        self.racks: list[frozenset[str]] = []
        self._quota, self._larger_left = divmod(count, len(subscribers))
        self._owners: list[int | None] = [None] * count
        self._sizes: dict[int, int] = {}

    def room(self, member: int) -> int:
        """Return how many more partitions ``member`` may get. It never increases."""
        return max(0, self._quota + (self._larger_left > 0) - self._sizes.get(member, 0))

    def assign(self, member: int, partitions: Iterable[int]) -> None:
        """Assign ``partitions`` to ``member``, at most as many as it has room for."""
        size = self._sizes.get(member, 0)
        for partition in partitions:
            self._owners[partition] = member
            size += 1
        if size > self._quota >= self._sizes.get(member, 0):
            self._larger_left -= 1
        self._sizes[member] = size

    def unassigned(self, rack: str | None = None) -> Iterator[int]:
        """Yield partitions, of a rack if given, that are unassigned when they are reached."""
        for partition in range(self.count):
            if self._owners[partition] is None and (rack is None or rack in self.racks[partition]):
                yield partition

    def assign_within_racks(self, member_racks: list[str | None]) -> None:
        """Assign partitions with a replica in the member's rack; any to a member without a rack."""
        # Members of a rack share one iterator: if one cannot take a partition, none of them can.
        by_rack: dict[str | None, Iterator[int]] = {}
        for member in self.subscribers:
            rack = member_racks[member]
            rest = by_rack.setdefault(rack, self.unassigned(rack))
            self._assign_next(member, rest)

    def assign_rest(self) -> None:
        """Assign each unassigned partition to the first member that has room."""
        rest = deque(self.unassigned())
        for member in self.subscribers:
            if not rest:
                break
            self.assign(member, [rest.popleft() for _ in range(min(self.room(member), len(rest)))])

    def append_to(self, assigned: list[list[TopicPartition]]) -> None:
        """Append the partitions of this topic to the lists of the members."""
        for partition, owner in zip(
            partitions_of(self.topic, self.count), self._owners, strict=True
        ):
            if owner is not None:
                assigned[owner].append(partition)

    def _assign_next(self, member: int, rest: Iterator[int]) -> None:
        room = self.room(member)
        if room:
            self.assign(member, list(islice(rest, room)))


def _match_racks(
    topics: list[_TopicAssignment], racks: Racks, member_racks: list[str | None]
) -> None:
    with_racks = {
        id(topic.subscribers): {rack for m in topic.subscribers if (rack := member_racks[m])}
        for topic in topics
    }
    rack_aware = set()
    for topic in topics:
        topic.racks = [
            racks.get(partition, frozenset())
            for partition in partitions_of(topic.topic, topic.count)
        ]
        if racks_matter(with_racks[id(topic.subscribers)], topic.racks):
            rack_aware.add(topic)
    if not rack_aware:
        return
    together: dict[tuple[int, int], list[_TopicAssignment]] = {}
    for topic in topics:
        together.setdefault((id(topic.subscribers), topic.count), []).append(topic)
    for group in together.values():
        if len(group) == 1:
            if group[0] in rack_aware:
                group[0].assign_within_racks(member_racks)
        elif with_racks[id(group[0].subscribers)]:
            # As in Kafka, also if racks matter for other topics only.
            _match_racks_together(group, member_racks)


def _match_racks_together(group: list[_TopicAssignment], member_racks: list[str | None]) -> None:
    """Assign partition *i* of all topics in ``group`` to one member whose rack has all of them.

    The topics have the same subscribers and number of partitions, and therefore the same quotas:
    the first topic's quotas are used for all.
    """
    first = group[0]
    waiting: dict[str | None, deque[int]] = {}
    for member in first.subscribers:
        waiting.setdefault(member_racks[member], deque()).append(member)
    for partition in range(first.count):
        common = frozenset.intersection(*(topic.racks[partition] for topic in group))
        heads = []
        for rack in (None, *common):
            queue = waiting.get(rack)
            while queue and not first.room(queue[0]):
                queue.popleft()
            if queue:
                heads.append(queue[0])
        if heads:
            for topic in group:
                topic.assign(min(heads), (partition,))
