"""The interface between a subscribed consumer and the source of its assignment.

`GroupMembership` is a member of a group that shares partitions. `StandaloneMembership` is for a
consumer without a group, which reads every partition of its topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from spark_log.metadata import MetadataImage
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The partitions of one member, in one generation of its group.

    Attributes:
        assigned: the partitions to read.
        revoking: the partitions to stop reading, and then to give to `ConsumerMembership.release`.
        topic_ids: the ids of the topics of these partitions, by name.
        generation: the group's generation; 0 without a group.
        is_settled: whether no partition of the group is moving from one member to another.
    """

    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    generation: int = 0
    is_settled: bool = True


class ConsumerMembership(Protocol):
    """A consumer's membership in its group.

    For the consumer's thread. Another thread may call `commit` at the same time.
    """

    def poll(self) -> bool:
        """Return whether the assignment may have changed; tells the group that the consumer polls.

        Reads nothing from the storage. `current_assignment` returns the change.
        """

    def is_lost(self) -> bool:
        """Return whether the consumer is no member any more, and lost its partitions."""

    def next_poll_ms(self) -> float:
        """Return the milliseconds until `poll` has to be called again."""

    def current_assignment(self, topics: Set[str], image: MetadataImage) -> GroupAssignment:
        """Return the assignment; join the group, or change the subscription, if necessary.

        Args:
            topics: names of the subscribed topics; they need not exist.
            image: the current metadata.

        Raises:
            UnknownMemberIdError: the consumer is no member any more and lost all partitions. Call
                `leave`, then this again.
            FencedInstanceIdError: another process took over the ``group.instance.id``.
            StorageError: the storage failed; call again.
        """

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up revoked partitions, which are not read any more and whose commits are done.

        Raises:
            UnknownMemberIdError: the consumer is no member any more and lost all partitions.
            FencedInstanceIdError: another process took over the ``group.instance.id``.
            StorageError: the storage failed; call again.
        """

    def initial_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Return the committed offsets at which to start newly assigned partitions.

        Returns:
            Partition → the committed offset, or None if the group committed none. Partitions that
            other members may have got meanwhile are missing. None instead of a mapping if the
            consumer has not joined, or has no group.

        Raises:
            UnstableOffsetCommitError: a transaction that commits one of them is not decided; call
                again.
            StorageError: the storage failed; call again.
        """

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit offsets of assigned or revoked partitions, all or none.

        Raises:
            CommitFailedError: the member does not have one of the partitions any more; nothing was
                committed.
        """

    def leave(self) -> None:
        """Leave the group. A static member's place is kept (KIP-345).

        Does nothing if the consumer already left.
        """

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of the member in the generation that the consumer knows."""

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the heartbeats, by Kafka's names."""
