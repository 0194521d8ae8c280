"""Who decides what a subscribed consumer reads, and in whose name it commits.

The seam for consumer groups: `Consumer` asks a `Membership` at every poll what is assigned to it
now, tells its listener what changed, and commits under the membership's generation. `LoneMember` is
the group of one that owns every partition of what it subscribes to.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from spark_log.metadata.image import MetadataImage
from spark_log.types import TopicPartition


class ConsumerRebalanceListener:
    """Told when a subscribed consumer's assignment changes (kafka-python's class; KIP-429).

    Called inside of `Consumer.poll`, with what changed alone. The consumer may be used in it: to
    commit what is taken away, to seek in what is new.
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions are about to be taken away; committing them is still possible."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Partitions were added; nothing of them was read yet."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Partitions are gone: their topic was deleted. Committing them is not possible."""
        self.on_partitions_revoked(lost)


class Membership(Protocol):
    """A consumer's place in its group."""

    def assigned(self, topics: Set[str], image: MetadataImage) -> set[TopicPartition]:
        """Return what this consumer is to read now.

        Args:
            topics: what it subscribes to, as far as they exist.
            image: the metadata as it is now.
        """

    def generation(self) -> int | None:
        """Return the generation that its commits carry; None without membership."""

    def member_id(self) -> str:
        """Return who commits; empty without membership."""

    def leave(self) -> None:
        """Give up the place; harmless when done twice."""


class LoneMember:
    """The only member: it owns everything, and commits without membership."""

    def assigned(self, topics: Set[str], image: MetadataImage) -> set[TopicPartition]:
        """See `Membership.assigned`."""
        return {
            TopicPartition(topic.name, number)
            for topic in image.topics()
            if topic.name in topics
            for number in topic.partitions
        }

    def generation(self) -> int | None:
        """See `Membership.generation`."""
        return None

    def member_id(self) -> str:
        """See `Membership.member_id`."""
        return ""

    def leave(self) -> None:
        """See `Membership.leave`."""
