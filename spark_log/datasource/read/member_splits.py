"""Input splits that own whole partitions (option ``partition.assignment.strategy``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_log.datasource.read.log_split import LogSplit
from spark_log.types import TopicPartition


@dataclass
class MemberSplit(InputPartition):
    """The partitions that one member task reads, one after the other.

    Attributes:
        member: number of the member. Members without new records have no split.
        splits: one split for each of its partitions, or several in offset order.
    """

    member: int
    splits: tuple[LogSplit, ...]

    def __str__(self) -> str:
        return f"member {self.member}: {'; '.join(map(str, self.splits))}"


class PartitionOwners:
    """Assignment of partitions to members, kept from one batch to the next.

    The sticky assignors get each member's partitions of the batch before. The other assignors
    return the same assignment as long as topics and members stay the same. No partition has to be
    revoked first, as ``cooperative-sticky`` does in a consumer group: no member reads between two
    batches.
    """

    def __init__(self, strategy: str, members: int | None) -> None:
        """Start without an assignment.

        Args:
            strategy: name of the assignor.
            members: number of members; None for one per partition.

        Raises:
            InvalidConfigurationError: the assignor does not exist.
        """
        from spark_log.coordinator import assignor  # imported here: tasks do not assign

        self._assignor = assignor(strategy)
        self._members = members
        self._owners: dict[TopicPartition, int] = {}
        self._generation = 0

    def assign(
        self, partitions: Collection[TopicPartition], stripes: Mapping[str, int] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the member that owns each partition.

        Args:
            partitions: all partitions to read, including partitions without new records.
            stripes: the number of stripes of each topic that has any.
        """
        if self._owners.keys() != set(partitions):
            self._reassign(partitions, stripes or {})
        return self._owners

    def _reassign(self, partitions: Collection[TopicPartition], stripes: Mapping[str, int]) -> None:
        from spark_log.coordinator import Subscription, assign_whole_stripes
        from spark_log.log.stripe import stripe_of

        # Assignors number the partitions of a topic from 0 without gaps, but a query may read
        # only some of them.
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
        numbers = {
            topic: [stripe_of(each.partition, stripes[topic]) for each in parts]
            for topic, parts in by_topic.items()
            if topic in stripes
        }
        answer = assign_whole_stripes(self._assignor, counts, subscriptions, numbers)
        self._generation += 1
        self._owners = {
            by_topic[each.topic][each.partition]: int(member)
            for member, assigned in answer.items()
            for each in assigned
        }


def group_by_member(
    splits: Sequence[LogSplit],
    owners: PartitionOwners,
    partitions: Collection[TopicPartition],
    stripes: Mapping[str, int] | None = None,
) -> list[MemberSplit]:
    """Group splits by the member that owns their partition; members without a split are left out.

    Args:
        splits: splits to read; several splits of one partition are in offset order.
        owners: the assignment.
        partitions: all partitions that are assigned, including partitions without a split.
        stripes: the number of stripes of each topic that has any.
    """
    partition_of = [TopicPartition(split.topic, split.partition) for split in splits]
    owner = owners.assign({*partitions, *partition_of}, stripes)
    by_member: dict[int, list[LogSplit]] = defaultdict(list)
    for partition, split in zip(partition_of, splits, strict=True):
        by_member[owner[partition]].append(split)
    return [MemberSplit(member, tuple(by_member[member])) for member in sorted(by_member)]


def splits_in(partition: InputPartition | None) -> Iterable[LogSplit]:
    """Return the splits that a task reads; Spark passes None if there are no splits at all."""
    if isinstance(partition, MemberSplit):
        return partition.splits
    return (partition,) if isinstance(partition, LogSplit) else ()
