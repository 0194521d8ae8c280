"""`MirroredPartition`: a partition on both sides of a mirror, which are Kafka and the log."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Side(IntEnum):
    """One of the two places of a mirrored partition. The value is its column in a run."""

    KAFKA = 0
    LOG = 1

    @property
    def other(self) -> Side:
        """The other side."""
        return Side(1 - self)


class MirroredPartition(NamedTuple):
    """A partition of Kafka and the partition of the log that mirrors it, or is mirrored by it."""

    kafka_topic: str
    log_topic: str
    partition: int

    def topic(self, side: Side) -> str:
        """Return the topic's name on one side."""
        return self.kafka_topic if side is Side.KAFKA else self.log_topic
