"""Records that a consumer returns, and where a sent record is in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic and one of its partitions, as in kafka-python."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ConsumerRecord(NamedTuple):
    """One record that a consumer returns, with kafka-python's field names.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the record's offset.
        timestamp: the timestamp in milliseconds since the epoch, as in Kafka; the log stores
            microseconds.
        timestamp_type: 0 for create time, 1 for log append time.
        key: the key's bytes, or the result of the key deserializer.
        value: the value's bytes, or the result of the value deserializer.
        headers: ``[(name, bytes | None), …]`` in order, with duplicates.
        leader_epoch: the leader epoch in which the batch was written.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: object
    value: object
    headers: list[tuple[str, bytes | None]]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Topic, partition, offset and timestamp (milliseconds) of an acknowledged record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
