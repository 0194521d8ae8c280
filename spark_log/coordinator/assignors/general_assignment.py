"""A sticky assignment where members subscribed to different topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from spark_log.coordinator.assignors.assignor import partitions_of
from spark_log.coordinator.assignors.sticky_racks import StickyRacks
from spark_log.types import TopicPartition


class GeneralAssignment:
    """Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder``.

    1. Members keep what they own, may own and, with racks, have in their rack.
    2. What nobody has goes to the subscriber that has least (then: the first by member id), topics
       with few subscribers first; with racks, within them first.
    3. A partition moves when a subscriber has at least two less than its owner: to its former owner
       if that is one, else to the one that has least; until there is none. What was new in step 2
       is moved first, unless something had to be taken away in step 1.

    Every move makes sizes more even, so this ends. Kafka asks before each step whether the whole is
    balanced; that is so just when no move is left, and so changes nothing but the time.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        subscribers: Mapping[str, tuple[int, ...]],
        owned: list[set[TopicPartition]],
        former_owners: Mapping[TopicPartition, int],
        racks: StickyRacks,
    ) -> None:
        """Take what there is, and by position who subscribed to it, owns it and did before."""
        self._partitions = partitions
        self._subscribers = subscribers
        self._subscribed = {id(each): frozenset(each) for each in subscribers.values()}
        self._former_owners = {
            partition: member
            for partition, member in former_owners.items()
            if self._may_have(partition, member)
        }
        self._racks = racks
        self._members = len(owned)
        self._owned = owned
        # A dict for a set in order.
        self._assigned: list[dict[TopicPartition, None]] = [{} for _ in owned]
        self._owner: dict[TopicPartition, int] = {}
        # Size and position in one number, so that the least of them is the member that has least.
        self._loads = list(range(len(owned)))
        self._least: dict[int, int] = {}
        self._moves = _Moves(owned)

    def build(self) -> list[list[TopicPartition]]:
        """Return what each member gets."""
        revoked = self._keep_owned()
        topics = sorted(self._partitions, key=lambda topic: len(self._subscribers[topic]))
        every = [p for topic in topics for p in partitions_of(topic, self._partitions[topic])]
        new = [partition for partition in every if partition not in self._owner]
        self._assign(new)
        if not revoked:
            self._balance(new)
        self._balance(every)
        return [list(each) for each in self._assigned]

    def _keep_owned(self) -> bool:
        """Assign what members may keep; say whether anything has to be taken away."""
        revoked = False
        for member, owned in enumerate(self._owned):
            for partition in sorted(owned):
                if self._may_have(partition, member) and not self._racks.mismatch(
                    member, partition
                ):
                    self._give(partition, member)
                else:
                    revoked = True
        return revoked

    def _assign(self, partitions: list[TopicPartition]) -> None:
        if self._racks.matter:
            partitions = self._assign_within_racks(partitions)
        for partition in partitions:
            self._give(partition, self._who_has_least(self._subscribers[partition.topic]))

    def _assign_within_racks(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Assign what subscribers have in their rack; return what none has."""
        left = []
        of_members = self._racks.of_members
        for topic, of_topic in groupby(partitions, attrgetter("topic")):
            candidates: dict[frozenset[str], list[int]] = {}
            for partition in of_topic:
                racks = self._racks.of_partition(partition)
                if racks not in candidates:
                    candidates[racks] = [
                        member
                        for member in self._subscribers[topic]
                        if of_members[member] is None or of_members[member] in racks
                    ]
                if candidates[racks]:
                    self._give(partition, self._who_has_least(candidates[racks]))
                else:
                    left.append(partition)
        return left

    def _balance(self, partitions: list[TopicPartition]) -> None:
        """Move partitions for as long as one of them makes sizes more even."""
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                subscribers = self._subscribers[partition.topic]
                owner = self._owner[partition]
                former = self._former_owners.get(partition)
                if former is not None and self._evens(owner, former):
                    self._move(partition, former)
                    modified = True
                    continue
                if id(subscribers) not in self._least:
                    self._least[id(subscribers)] = self._who_has_least(subscribers)
                least = self._least[id(subscribers)]
                if self._evens(owner, least):
                    self._move(partition, least)
                    modified = True

    def _may_have(self, partition: TopicPartition, member: int) -> bool:
        subscribers = self._subscribers.get(partition.topic)
        return subscribers is not None and member in self._subscribed[id(subscribers)]

    def _evens(self, owner: int, other: int) -> bool:
        """Say whether sizes are more even when ``other`` gets one of ``owner``'s."""
        return len(self._assigned[owner]) > len(self._assigned[other]) + 1

    def _who_has_least(self, members: Sequence[int]) -> int:
        return min(map(self._loads.__getitem__, members)) % self._members

    def _give(self, partition: TopicPartition, member: int) -> None:
        self._assigned[member][partition] = None
        self._owner[partition] = member
        self._loads[member] += self._members

    def _move(self, partition: TopicPartition, member: int) -> None:
        instead = self._moves.instead(partition, self._owner[partition], member)
        # Kafka does not ask this; without it a move might make sizes less even.
        if instead is not None and self._evens(self._owner[instead], member):
            partition = instead
        owner = self._owner[partition]
        self._moves.moved(partition, owner, member)
        del self._assigned[owner][partition]
        self._loads[owner] -= self._members
        self._give(partition, member)
        self._least.clear()


class _Moves:
    """What was moved from whom to whom (Kafka's ``PartitionMovements``).

    So that no two partitions of a topic end up exchanged between two members.
    """

    def __init__(self, owned: list[set[TopicPartition]]) -> None:
        self._owned = owned
        self._paths: dict[TopicPartition, tuple[int, int]] = {}
        # By topic, path and whether it was owned where the path starts. Dicts for sets in order.
        self._partitions: dict[tuple[str, int, int, bool], dict[TopicPartition, None]] = {}

    def instead(self, partition: TopicPartition, owner: int, to: int) -> TopicPartition | None:
        """Return one of the topic that came from ``to`` to where ``partition`` came from.

        Of several, one that ``to`` owned from the start saves a move; then the one moved first.
        (Kafka takes one as a hash set has them.)
        """
        source = self._paths.get(partition, (owner, owner))[0]
        for was_owned in (True, False):
            came = self._partitions.get((partition.topic, to, source, was_owned))
            if came:
                return next(iter(came))
        return None

    def moved(self, partition: TopicPartition, owner: int, to: int) -> None:
        """Take down that ``owner`` gave ``partition`` to ``to``."""
        source = owner
        if partition in self._paths:
            source, target = self._paths.pop(partition)
            del self._partitions[self._key(partition, source, target)][partition]
        if source != to:
            self._paths[partition] = source, to
            self._partitions.setdefault(self._key(partition, source, to), {})[partition] = None

    def _key(self, partition: TopicPartition, source: int, to: int) -> tuple[str, int, int, bool]:
        return partition.topic, source, to, partition in self._owned[source]
