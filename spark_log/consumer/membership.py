"""Who decides what a subscribed consumer reads, and in whose name it commits.

`Consumer` asks a `Membership` at every poll whether there is news. `GroupMembership` is a place in
a group that shares partitions; `StandaloneMembership` is for who has no group, and owns every partition of
what it subscribes to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from spark_log.errors import CommitFailedError
from spark_log.metadata.image import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition


class ConsumerRebalanceListener:
    """Told when a subscribed consumer's assignment changes (kafka-python's class; KIP-429).

    Called inside of `Consumer.poll`, with what changed alone; a member of a group is also told of
    what it gives up by `Consumer.unsubscribe` and `Consumer.close`. The consumer may be used in it:
    to commit what is taken away, to seek in what is new.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions are about to be taken away; committing them is still possible."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partitions were added; nothing of them was read yet."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Partitions are gone, and cannot be committed any more.

        Their topic was deleted, or the others of the group took this one for dead and may read them
        by now.
        """
        self.on_partitions_revoked(lost)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What a member has.

    Attributes:
        assigned: what it is to read.
        revoking: what it is to stop reading, and to `Membership.release` then.
        topic_ids: of the topics that these are in.
        generation: of the group; 0 without one.
        is_settled: nothing is on its way from one member to another.
    """

    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    generation: int = 0
    is_settled: bool = True


class Membership(Protocol):
    """A consumer's place in its group. For the consumer's thread; `commit` for one more."""

    def poll(self) -> bool:
        """Return whether `current_assignment` has something else to say; shows that the consumer is alive."""

    def is_lost(self) -> bool:
        """Return whether the place is lost, and all that it had."""

    def next_poll_ms(self) -> float:
        """Return how long `poll` need not be called."""

    def current_assignment(self, topics: Set[str], image: MetadataImage) -> GroupAssignment:
        """Return what this member has now; join, or subscribe to something else, where need be.

        Args:
            topics: what it subscribes to; they need not exist.
            image: the metadata as it is now.

        Raises:
            UnknownMemberIdError: it is no member any more, and has lost everything; `leave`, then
                ask again.
            FencedInstanceIdError: another process has taken its place.
            StorageError: ask again.
        """

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up what is revoked: it is not read any more, and committed.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, StorageError: see `current_assignment`.
        """

    def initial_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Return where to begin in what was just given to it, None in what nobody committed.

        Returns:
            Without what may have been taken away again: ask `current_assignment`. None where positions are not
            this membership's business.

        Raises:
            StorageError: the storage does not answer; call again.
        """

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit positions of what it has.

        Raises:
            CommitFailedError: it does not have one of them any more; nothing was committed.
        """

    def leave(self) -> None:
        """Give up the place; harmless when done twice. A static member's waits for it (KIP-345)."""

    def metrics(self) -> dict[str, float]:
        """Return what it counts, by Kafka's names of metrics."""


class StandaloneMembership:
    """Has everything, and commits nothing."""

    def __init__(self) -> None:
        self._held: set[TopicPartition] = set()

    def poll(self) -> bool:
        """See `Membership.poll`: only the metadata has."""
        return False

    def is_lost(self) -> bool:
        """See `Membership.is_lost`: it cannot be."""
        return False

    def next_poll_ms(self) -> float:
        """See `Membership.next_poll_ms`."""
        return math.inf

    def current_assignment(self, topics: Set[str], image: MetadataImage) -> GroupAssignment:
        """See `Membership.current_assignment`."""
        found = [topic for topic in image.topics() if topic.name in topics]
        assigned = frozenset(
            TopicPartition(topic.name, number) for topic in found for number in topic.partitions
        )
        revoking = frozenset(self._held - assigned)
        self._held |= assigned
        ids = {topic.name: topic.topic_id for topic in image.topics()}
        return GroupAssignment(assigned, revoking, ids)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See `Membership.release`."""
        self._held.difference_update(partitions)

    def initial_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """See `Membership.initial_offsets`: nowhere."""

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """See `Membership.commit`: it is never asked to."""
        raise CommitFailedError("this consumer is in no group")

    def leave(self) -> None:
        """See `Membership.leave`."""
        self._held.clear()

    def metrics(self) -> dict[str, float]:
        """See `Membership.metrics`: nothing."""
        return {}
