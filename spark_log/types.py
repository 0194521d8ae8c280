"""Small immutable values that clients take and return.

Those that only `Admin` takes or returns are defined in ``spark_log/admin/types.py``, and can be
imported from here, too.
"""

from __future__ import annotations

import base64
import importlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple


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


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, which is that of the next record to read, with the user's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group, as `Consumer.group_metadata` returns it (KIP-447).

    Attributes:
        group_id: the group's id; None for a consumer without a group.
        generation_id: the group's generation that the consumer knows; -1 if it has not joined.
        member_id: the member's id; empty if the consumer has not joined.
        group_instance_id: the ``group.instance.id`` of a static member, or None.
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The result of an offset lookup, with kafka-python's field names.

    Attributes:
        offset: the offset; -1 if no such record exists.
        timestamp: the timestamp of the record at that offset, in milliseconds since the epoch; -1
            if the lookup was not by timestamp.
        leader_epoch: the leader epoch of the partition; -1 if no such record exists.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetSpec(IntEnum):
    """An offset that `Admin.list_offsets` looks up, besides timestamps (Kafka's ``OffsetSpec``)."""

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
    """A topic to create.

    Attributes:
        name: the topic's name; Kafka's rules apply.
        num_partitions: the number of partitions, at least 1.
        replication_factor: the number of brokers (storage roots) that have a replica of each
            partition; None or -1 for the cluster's ``default.replication.factor``.
        topic_configs: config overrides, with Kafka's keys (``{"retention.ms": "-1"}``).
        replica_assignment: partition → the ids of the brokers that have its replicas, the preferred
            leader first; the two numbers above are then left out. None to let brokers be chosen.
    """

    name: str
    num_partitions: int = 1
    replication_factor: int | None = None
    topic_configs: Mapping[str, object] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, including the existing ones.

    Attributes:
        total_count: the new number.
        new_assignments: for each new partition the ids of the brokers that have its replicas, the
            preferred leader first. None to let brokers be chosen.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment of a partition that is in progress (KIP-455).

    Attributes:
        replicas: all present replicas: the target, then those that will be removed.
        adding_replicas: the replicas that the reassignment adds.
        removing_replicas: the replicas that it will remove.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ElectionType(IntEnum):
    """The types of leader elections, with Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class ConfigResourceType(IntEnum):
    """Types of resources whose configs are in the metadata log, with Kafka's numbers.

    ``CLIENT`` does not exist in Kafka. It has the quotas, which `Admin.alter_client_quotas`
    changes, as in Kafka.
    """

    CLIENT = 1
    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource, and those of its configs that are described or altered.

    Attributes:
        resource_type: a `ConfigResourceType`, or its name in any case.
        name: a topic's name or a client id. Empty for `BROKER`, whose configs apply to the whole
            cluster, and for the default quotas of clients.
        configs: the names of keys to describe, None for all; or the changes to make, as key → new
            value, or key → ``(AlterConfigOp, value)``.
    """

    resource_type: ConfigResourceType | str
    name: str
    configs: Mapping[str, object] | Collection[str] | None = None


class AlterConfigOp(IntEnum):
    """Operation of `Admin.alter_configs` on a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the values of a config key, with its source.

    The first in a list of synonyms is in effect. If it is deleted, the next one is in effect.
    """

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config key as ``describe_configs`` returns it (Kafka's ``ConfigEntry``).

    Attributes:
        name: the key.
        value: the value in effect; None if it is sensitive or not set.
        source: the source of the value: ``DYNAMIC_TOPIC_CONFIG`` (the topic),
            ``DYNAMIC_DEFAULT_BROKER_CONFIG`` (the cluster), ``DYNAMIC_CLIENT_QUOTA`` (a client id),
            ``DYNAMIC_DEFAULT_CLIENT_QUOTA`` (all clients) or ``DEFAULT_CONFIG`` (the default).
        default: the value that applies if the resource has no value of its own.
        is_default: whether the source is ``DEFAULT_CONFIG``.
        is_sensitive: whether the value is secret; it is never shown then.
        is_read_only: whether the key cannot be altered.
        synonyms: all values of the key; the first is in effect.
        type: ``BOOLEAN``, ``INT`` (of any size), ``STRING`` or ``LIST``; ``UNKNOWN`` for a key that
            this version does not know.
        documentation: a description of the key.
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


def random_id() -> str:
    """Return a new random UUID as 22 characters of base64url (Kafka's ``Uuid.toString``).

    As in Kafka it never begins with a dash, which a shell command would take for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


_OF_ADMIN: Final = frozenset(
    (
        *("AbortTransactionSpec", "ActiveProducer", "BrokerDescription", "ClusterDescription"),
        *("DeletedRecords", "HangingTransaction", "LogDirDescription", "PartitionDescription"),
        *("PartitionProducerState", "ReplicaInfo", "TopicDescription", "TransactionDescription"),
        "TransactionListing",
    )
)


def __getattr__(name: str) -> Any:
    """Return a class of ``spark_log/admin/types.py``, which is imported on first use."""
    if name in _OF_ADMIN:
        # By name: the modules below `Admin` import this one.
        return getattr(importlib.import_module("spark_log.admin.types"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
