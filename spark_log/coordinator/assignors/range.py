"""The range assignor: per topic, each member gets a run of neighbouring partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from spark_log.coordinator.assignors.assignor import (
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

    Per topic, *n* partitions are laid out in order and *m* members beside them (static ones first,
    by instance id); each gets ``n // m``, the first ``n % m`` one more. So topics with equally many
    partitions and the same subscribers are *co-partitioned*: partition *i* of each goes to the same
    member, and a join by key needs no shuffle.

    With racks (KIP-881), partitions first go to members in a rack that has a replica, as far as
    sizes allow; co-partitioned topics stay together, so there only racks count that all of them
    have a replica of this partition in. What is left is dealt out as without racks.
    """

    name = "range"

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Racks | None = None,
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`; lists are in order of topic and partition."""
        members = in_member_order(subscriptions)
        topics = [
            _TopicShares(topic, partitions[topic], subscribers)
            for topic, subscribers in subscribers_by_topic(
                partitions, subscriptions, members
            ).items()
        ]
        if racks:
            _match_racks(topics, racks, [subscriptions[member].rack or None for member in members])
        assigned: list[list[TopicPartition]] = [[] for _ in members]
        for topic in topics:
            topic.deal_out_the_rest()
            topic.hand_over(assigned)
        return dict(zip(members, assigned, strict=True))


class _TopicShares:
    """Who gets which partition of one topic, as far as decided."""

    def __init__(self, topic: str, count: int, subscribers: tuple[int, ...]) -> None:
        self.topic = topic
        self.count = count
        self.subscribers = subscribers
        self.racks: list[frozenset[str]] = []
        self._quota, self._larger_left = divmod(count, len(subscribers))
        self._owners: list[int | None] = [None] * count
        self._sizes: dict[int, int] = {}

    def room(self, member: int) -> int:
        """How many more partitions ``member`` may get. It never grows."""
        return max(0, self._quota + (self._larger_left > 0) - self._sizes.get(member, 0))

    def give(self, member: int, partitions: Iterable[int]) -> None:
        """Decide on ``partitions``; at most as many as there is room for."""
        size = self._sizes.get(member, 0)
        for partition in partitions:
            self._owners[partition] = member
            size += 1
        if size > self._quota >= self._sizes.get(member, 0):
            self._larger_left -= 1
        self._sizes[member] = size

    def undecided(self, rack: str | None = None) -> Iterator[int]:
        """Yield partitions that nobody has by the time they are reached, those in ``rack`` only."""
        for partition in range(self.count):
            if self._owners[partition] is None and (rack is None or rack in self.racks[partition]):
                yield partition

    def deal_out_within_racks(self, member_racks: list[str | None]) -> None:
        """Give members what has a replica in their rack; one without a rack takes anything."""
        # What one member of a rack has passed over is of no use to the next one of this rack.
        by_rack: dict[str | None, Iterator[int]] = {}
        for member in self.subscribers:
            rack = member_racks[member]
            rest = by_rack.setdefault(rack, self.undecided(rack))
            self._take(member, rest)

    def deal_out_the_rest(self) -> None:
        """Give each undecided partition to the first member that has room."""
        rest = deque(self.undecided())
        for member in self.subscribers:
            if not rest:
                break
            self.give(member, [rest.popleft() for _ in range(min(self.room(member), len(rest)))])

    def hand_over(self, assigned: list[list[TopicPartition]]) -> None:
        """Append what was decided to the lists of the members."""
        for partition, owner in zip(
            partitions_of(self.topic, self.count), self._owners, strict=True
        ):
            if owner is not None:
                assigned[owner].append(partition)

    def _take(self, member: int, rest: Iterator[int]) -> None:
        room = self.room(member)
        if room:
            self.give(member, list(islice(rest, room)))


def _match_racks(topics: list[_TopicShares], racks: Racks, member_racks: list[str | None]) -> None:
    with_racks = {
        id(topic.subscribers): {rack for m in topic.subscribers if (rack := member_racks[m])}
        for topic in topics
    }
    needy = set()
    for topic in topics:
        topic.racks = [
            racks.get(partition, frozenset())
            for partition in partitions_of(topic.topic, topic.count)
        ]
        if racks_matter(with_racks[id(topic.subscribers)], topic.racks):
            needy.add(topic)
    if not needy:
        return
    together: dict[tuple[int, int], list[_TopicShares]] = {}
    for topic in topics:
        together.setdefault((id(topic.subscribers), topic.count), []).append(topic)
    for group in together.values():
        if len(group) == 1:
            if group[0] in needy:
                group[0].deal_out_within_racks(member_racks)
        elif with_racks[id(group[0].subscribers)]:
            # As in Kafka, also where it does not matter for these topics, but for others.
            _match_racks_together(group, member_racks)


def _match_racks_together(group: list[_TopicShares], member_racks: list[str | None]) -> None:
    """Give partition *i* of all topics in ``group`` to one member whose rack has all of them.

    They have the same subscribers and sizes, and get the same, so the first speaks for all.
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
                topic.give(min(heads), (partition,))
