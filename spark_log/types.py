"""The small frozen values that users and modules hand to each other."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
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


class OffsetAndTimestamp(NamedTuple):
    """An offset that was looked up, with kafka-python's field names.

    Attributes:
        offset: -1 where there is no such record.
        timestamp: of the record at that offset, milliseconds since the epoch; -1 where the offset
            was not looked up by time.
        leader_epoch: the leader epoch of the partition; -1 where there is no such record.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetSpec(IntEnum):
    """What `Admin.list_offsets` is asked for, besides times (Kafka's ``OffsetSpec``)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class OffsetTimestamp(int):
    """A time, in milliseconds since the epoch, given to `Admin.reset_group_offsets`.

    The class tells a time from a plain offset. A time means the first record at or after it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


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
class NewPartitions:
    """How many partitions a topic shall have, those included that it has."""

    total_count: int


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


class ConfigResourceType(IntEnum):
    """What has settings that are kept in the metadata log, with Kafka's numbers.

    ``CLIENT`` has none in Kafka, whose API for quotas, `Admin.alter_client_quotas`, is the way to
    change them here too.
    """

    CLIENT = 1
    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Whose settings are meant, and which of them.

    Attributes:
        resource_type: a `ConfigResourceType`, or its name in any case.
        name: the topic's, or a client id; empty for `BROKER`, whose settings are those of the whole
            cluster, and for the quotas of all clients that have none of their own.
        configs: to describe: names of keys; None for all of them. To alter: key → new value, or
            key → ``(AlterConfigOp, value)``.
    """

    resource_type: ConfigResourceType | str
    name: str
    configs: Mapping[str, object] | Collection[str] | None = None


class AlterConfigOp(IntEnum):
    """What `Admin.alter_configs` does to a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a key has, or would have if those before it were removed."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as ``describe_configs`` answers it (Kafka's ``ConfigEntry``).

    Attributes:
        name: the key.
        value: what counts; None where it is sensitive, or there is none.
        source: ``DYNAMIC_TOPIC_CONFIG`` where the topic has a value of its own,
            ``DYNAMIC_DEFAULT_BROKER_CONFIG`` where the cluster has, ``DYNAMIC_CLIENT_QUOTA`` and
            ``DYNAMIC_DEFAULT_CLIENT_QUOTA`` where a client id and all of them have,
            ``DEFAULT_CONFIG`` where nobody has.
        default: what counts where there is no value of its own.
        is_default: the source is ``DEFAULT_CONFIG``.
        is_sensitive: values of such keys are never shown.
        is_read_only: it can not be altered.
        synonyms: all values that there are, the one that counts first.
        type: ``BOOLEAN``, ``INT``, ``STRING`` or ``LIST``; an ``INT`` may be of any size. Of a key
            that this version does not know: ``UNKNOWN``.
        documentation: what it means.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: str
    documentation: str


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """What ``delete_records`` left of a partition (Kafka's class of this name).

    Attributes:
        low_watermark: the first offset that can be read.
    """

    low_watermark: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory (Kafka's class of this name, and what describes it here).

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        size_bytes: of the segments that are part of the log.
        offset_lag: how far its end is behind the high watermark.
        is_future: it is a copy that will replace another one.
        segments: how many files those bytes are in.
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written.
        path: its directory, as a path or URL.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool
    segments: int
    log_start_offset: int
    log_end_offset: int
    path: str


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A storage root and what lies in it, as ``describe_log_dirs`` answers it.

    Attributes:
        broker: its id.
        log_dir: its path or URL.
        replicas: in order of topics and partitions.
    """

    broker: int
    log_dir: str
    replicas: tuple[ReplicaInfo, ...]


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of a cluster: a storage root that holds replicas.

    Attributes:
        broker_id: the broker's id.
        log_dir: its path or URL.
    """

    broker_id: int
    log_dir: str


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as ``describe_cluster`` returns it.

    Attributes:
        cluster_id: the cluster's id, as in its ``meta.properties``.
        brokers: its storage roots, sorted by id.
    """

    cluster_id: str
    brokers: tuple[BrokerDescription, ...]


def random_id() -> str:
    """Return a new random UUID as 22 characters of base64url (Kafka's ``Uuid.toString``).

    As in Kafka, none begins with a dash: shells would take it for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
