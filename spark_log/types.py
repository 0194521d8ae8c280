"""The small frozen values that users and modules hand to each other."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic and one of its partitions, as in kafka-python."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ConsumerRecord(NamedTuple):
    """One record as it is handed to a user, with kafka-python's field names.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the record's offset.
        timestamp: milliseconds since the epoch, as in Kafka; the log keeps microseconds.
        timestamp_type: 0 for create time, 1 for log append time.
        key: the key's bytes, or what the deserializer made of them.
        value: the value's bytes, or what the deserializer made of them.
        headers: ``[(name, bytes | None), …]`` in order, duplicates kept.
        leader_epoch: the leader epoch that the batch was written in.
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
    """Where an acknowledged record is."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the next record to read, and a note of the user's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created.

    Attributes:
        name: its name; Kafka's rules apply.
        num_partitions: how many partitions, at least 1.
        replication_factor: on how many storage roots each partition lies.
        topic_configs: config overrides, keys as in Kafka (``{"retention.ms": "-1"}``).
    """

    name: str
    num_partitions: int = 1
    replication_factor: int = 1
    topic_configs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition of a described topic: where it is and what it holds."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as ``describe_topics`` answers it."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


def random_id() -> str:
    """Return a new random UUID as 22 characters of base64url (Kafka's ``Uuid.toString``).

    As in Kafka, none begins with a dash: shells would take it for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
