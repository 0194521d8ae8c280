"""The sticky assignment if members subscribe to different topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_log.coordinator.assignors.partition_assignor import partitions_of
from spark_log.types import TopicPartition


class GeneralAssignment:
    """Kafka's ``AbstractStickyAssignor.GeneralAssignmentBuilder``.

    1. Members keep the partitions that they own, if they subscribe to the topic.
    2. An unassigned partition goes to the subscriber with the fewest partitions (of several the
       first by member id), topics with few subscribers first.
    3. A partition moves if a subscriber has at least two partitions fewer than its owner: to its
       former owner if that is such a subscriber, else to the subscriber with the fewest. This is
       repeated until no partition moves. Partitions assigned in step 2 are moved first, unless a
       member lost a partition in step 1.

    Every move makes the assignment more balanced, so this ends. Kafka checks before each step
    whether the assignment is balanced. That is the case exactly if no move is left, so the check
    changes only the time.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        subscribers: Mapping[str, tuple[int, ...]],
        owned: list[set[TopicPartition]],
        former_owners: Mapping[TopicPartition, int],
    ) -> None:
        """Return an assignment to build.

        Args:
            partitions: topic → number of partitions, sorted by topic.
            subscribers: topic → positions of its subscribers.
            owned: the partitions of each member, in the order of positions.
            former_owners: partition → position of its former owner.
        """
        self._partitions = partitions
        self._subscribers = subscribers
        self._subscribed = {id(each): frozenset(each) for each in subscribers.values()}
        self._former_owners = {
            partition: member
            for partition, member in former_owners.items()
            if self._may_have(partition, member)
        }
        self._members = len(owned)
        self._owned = owned
        # A dict serves as an ordered set.
        self._assigned: list[dict[TopicPartition, None]] = [{} for _ in owned]
        self._owner: dict[TopicPartition, int] = {}
        # Number of partitions and position in one number: the minimum has the fewest.
        self._loads = list(range(len(owned)))
        self._least: dict[int, int] = {}
        self._moves = _Moves(owned)

    def build(self) -> list[list[TopicPartition]]:
        """Return the partitions of each member."""
        revoked = self._keep_owned()
        topics = sorted(self._partitions, key=lambda topic: len(self._subscribers[topic]))
        every = [p for topic in topics for p in partitions_of(topic, self._partitions[topic])]
        new = [partition for partition in every if partition not in self._owner]
        for partition in new:
            self._give(partition, self._least_loaded(self._subscribers[partition.topic]))
        if not revoked:
            self._balance(new)
        self._balance(every)
        return [list(each) for each in self._assigned]

    def _keep_owned(self) -> bool:
        """Assign the partitions that members keep; return whether a member loses one."""
        revoked = False
        for member, owned in enumerate(self._owned):
            for partition in sorted(owned):
                if self._may_have(partition, member):
                    self._give(partition, member)
                else:
                    revoked = True
        return revoked

    def _balance(self, partitions: list[TopicPartition]) -> None:
        """Move partitions until no move makes the assignment more balanced."""
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                subscribers = self._subscribers[partition.topic]
                owner = self._owner[partition]
                former = self._former_owners.get(partition)
                if former is not None and self._balances(owner, former):
                    self._move(partition, former)
                    modified = True
                    continue
                if id(subscribers) not in self._least:
                    self._least[id(subscribers)] = self._least_loaded(subscribers)
                least = self._least[id(subscribers)]
                if self._balances(owner, least):
                    self._move(partition, least)
                    modified = True

    def _may_have(self, partition: TopicPartition, member: int) -> bool:
        subscribers = self._subscribers.get(partition.topic)
        return subscribers is not None and member in self._subscribed[id(subscribers)]

    def _balances(self, owner: int, other: int) -> bool:
        """Return whether a move from ``owner`` to ``other`` makes the assignment more balanced."""
        return len(self._assigned[owner]) > len(self._assigned[other]) + 1

    def _least_loaded(self, members: Sequence[int]) -> int:
        return min(map(self._loads.__getitem__, members)) % self._members

    def _give(self, partition: TopicPartition, member: int) -> None:
        self._assigned[member][partition] = None
        self._owner[partition] = member
        self._loads[member] += self._members

    def _move(self, partition: TopicPartition, member: int) -> None:
        instead = self._moves.instead(partition, self._owner[partition], member)
        # Kafka does not check this; without it a move could make the assignment less balanced.
        if instead is not None and self._balances(self._owner[instead], member):
            partition = instead
        owner = self._owner[partition]
        self._moves.record(partition, owner, member)
        del self._assigned[owner][partition]
        self._loads[owner] -= self._members
        self._give(partition, member)
        self._least.clear()


class _Moves:
    """The moves so far (Kafka's ``PartitionMovements``).

    They prevent that two partitions of a topic are exchanged between two members.
    """

    def __init__(self, owned: list[set[TopicPartition]]) -> None:
        self._owned = owned
        self._paths: dict[TopicPartition, tuple[int, int]] = {}
        # Key: topic, path, and whether the path's start owned the partition. Dicts as ordered sets.
        self._partitions: dict[tuple[str, int, int, bool], dict[TopicPartition, None]] = {}

    def instead(self, partition: TopicPartition, owner: int, to: int) -> TopicPartition | None:
        """Return a partition of the topic to move instead, which undoes a move; None if none does.

        Such a partition was moved from ``to`` to the member that ``partition`` came from. A
        partition that ``to`` owned before is preferred, which saves a move; then the one that was
        moved first. (Kafka takes one in the order of a hash set.)
        """
        source = self._paths.get(partition, (owner, owner))[0]
        for was_owned in (True, False):
            moved = self._partitions.get((partition.topic, to, source, was_owned))
            if moved:
                return next(iter(moved))
        return None

    def record(self, partition: TopicPartition, owner: int, to: int) -> None:
        """Record the move of ``partition`` from ``owner`` to ``to``."""
        source = owner
        if partition in self._paths:
            source, target = self._paths.pop(partition)
            del self._partitions[self._key(partition, source, target)][partition]
        if source != to:
            self._paths[partition] = source, to
            self._partitions.setdefault(self._key(partition, source, to), {})[partition] = None

    def _key(self, partition: TopicPartition, source: int, to: int) -> tuple[str, int, int, bool]:
        return partition.topic, source, to, partition in self._owned[source]
