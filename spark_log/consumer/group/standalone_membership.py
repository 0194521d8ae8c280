"""The assignment of a subscribed consumer that has no group."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Set

from spark_log.consumer.group.membership import GroupAssignment
from spark_log.errors import CommitFailedError
from spark_log.metadata import MetadataImage
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class StandaloneMembership:
    """A `ConsumerMembership` with every partition of the subscribed topics, and no commits."""

    def __init__(self) -> None:
        self._held: set[TopicPartition] = set()

    def poll(self) -> bool:
        """Return False: only the metadata changes the assignment."""
        return False

    def is_lost(self) -> bool:
        """Return False: no other consumer can take the partitions."""
        return False

    def next_poll_ms(self) -> float:
        """Return infinity: `poll` does not have to be called."""
        return math.inf

    def current_assignment(self, topics: Set[str], image: MetadataImage) -> GroupAssignment:
        """Return all partitions of the topics that exist."""
        found = [topic for topic in image.topics() if topic.name in topics]
        assigned = frozenset(
            TopicPartition(topic.name, number) for topic in found for number in topic.partitions
        )
        revoking = frozenset(self._held - assigned)
        self._held |= assigned
        ids = {topic.name: topic.topic_id for topic in image.topics()}
        return GroupAssignment(assigned, revoking, ids)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that are not read any more."""
        self._held.difference_update(partitions)

    def initial_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """Return None: there are no committed offsets."""

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Raise `CommitFailedError`; a consumer without a group never calls this."""
        raise CommitFailedError("this consumer has no group")

    def leave(self) -> None:
        """Forget all partitions."""
        self._held.clear()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the metadata of a consumer without a group."""
        return ConsumerGroupMetadata()

    def metrics(self) -> dict[str, float]:
        """Return no metrics: there are no heartbeats."""
        return {}
