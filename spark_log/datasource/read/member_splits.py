"""Input splits that own whole partitions: ``partition.assignment.strategy``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_log.coordinator.assignors import Subscription, assignor
from spark_log.datasource.read.splits import LogSplit
from spark_log.types import TopicPartition


@dataclass
class MemberSplit(InputPartition):
    """What one member task reads, partition after partition.

    Attributes:
        member: its number; a batch has no split for members without new records.
        splits: of its partitions, each whole and in offset order.
    """

    member: int
    splits: tuple[LogSplit, ...]

    def __str__(self) -> str:
        return f"member {self.member}: {'; '.join(map(str, self.splits))}"


class PartitionOwners:
    """Which member owns which partition: an assignor's answer, from one batch to the next.

    The sticky assignors are told what each member owned in the batch before; the others answer the
    same as long as topics and members are the same. There is nothing to be given up in two steps,
    as ``cooperative-sticky`` does in a group: between two batches no member is at work.
    """

    def __init__(self, strategy: str, members: int | None) -> None:
        """Nobody owns anything yet.

        Args:
            strategy: name of the assignor.
            members: how many there are; None: as many as there are partitions.

        Raises:
            InvalidConfigurationError: there is no such assignor.
        """
        self._assignor = assignor(strategy)
        self._members = members
        self._owners: dict[TopicPartition, int] = {}
        self._generation = 0

    def assign(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the number of each partition's owner, for all that are read.

        Args:
            partitions: all of them, also those without new records.
        """
        if self._owners.keys() != set(partitions):
            self._reassign(partitions)
        return self._owners

    def _reassign(self, partitions: Collection[TopicPartition]) -> None:
        # Assignors know partitions 0 to n - 1 of a topic; of some topics only a few are read.
        by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for each in sorted(partitions):
            by_topic[each.topic].append(each)
        dense = {
            partition: TopicPartition(topic, index)
            for topic, parts in by_topic.items()
            for index, partition in enumerate(parts)
        }
        owned: dict[int, set[TopicPartition]] = defaultdict(set)
        for partition, member in self._owners.items():
            if partition in dense:
                owned[member].add(dense[partition])
        count = max(1, len(partitions) if self._members is None else self._members)
        topics = tuple(by_topic)
        subscriptions = {
            f"{member:010d}": Subscription(topics, frozenset(owned[member]), self._generation)
            for member in range(count)
        }
        counts = {topic: len(parts) for topic, parts in by_topic.items()}
        answer = self._assignor.assign(counts, subscriptions)
        self._generation += 1
        self._owners = {
            by_topic[each.topic][each.partition]: int(member)
            for member, assigned in answer.items()
            for each in assigned
        }


def group_by_member(
    splits: Sequence[LogSplit], owners: PartitionOwners, partitions: Collection[TopicPartition]
) -> list[MemberSplit]:
    """Return each member's splits as one, for members that have any.

    Args:
        splits: what is to be read; several of one partition stand in offset order.
        owners: who owns what.
        partitions: all that are owned, also those without a split.
    """
    partition_of = [TopicPartition(split.topic, split.partition) for split in splits]
    owner = owners.assign({*partitions, *partition_of})
    by_member: dict[int, list[LogSplit]] = defaultdict(list)
    for partition, split in zip(partition_of, splits, strict=True):
        by_member[owner[partition]].append(split)
    return [MemberSplit(member, tuple(by_member[member])) for member in sorted(by_member)]


def splits_in(partition: InputPartition | None) -> Iterable[LogSplit]:
    """Return what a task reads; Spark hands it None where there is no split at all."""
    if isinstance(partition, MemberSplit):
        return partition.splits
    return (partition,) if isinstance(partition, LogSplit) else ()
