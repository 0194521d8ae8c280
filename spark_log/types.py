"""Small immutable values of the public API."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple


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
class PartitionDescription:
    """One partition of a described topic: its replicas, offsets and size.

    Attributes:
        partition: the partition's number.
        leader: the broker that leads it; -1 if none can.
        replicas: the brokers that have a replica, the preferred leader first.
        isr: the in-sync replicas in the order of the chain, the leader first.
        log_start_offset: the first offset that can be read; -1 if it is not known.
        log_end_offset: the offset after the last record that all in-sync replicas have; -1 if it is
            not known.
        size_bytes: the size of the segments of one replica; -1 if it is not known.
        segments: the number of these segments; -1 if it is not known.
        leader_epoch: the number of changes of the leader and of the in-sync replicas.
        eligible_leader_replicas: replicas out of sync that may lead without a loss (KIP-966).
        last_known_elr: the last leader of a partition that has none.
        offline_replicas: replicas on brokers that are fenced.
        adding_replicas: replicas that a reassignment adds.
        removing_replicas: replicas that a reassignment removes.
        min_insync_replicas: the number of in-sync replicas that an append with ``acks=all`` needs.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int
    leader_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    min_insync_replicas: int = 1

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are out of sync, not counting those that a reassignment adds."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether no append with ``acks=all`` is accepted."""
        return self.leader == -1 or len(self.isr) < self.min_insync_replicas

    @property
    def is_at_min_isr(self) -> bool:
        """Whether appends with ``acks=all`` fail when one more replica leaves the in-sync ones."""
        return len(self.isr) == self.min_insync_replicas

    @property
    def is_unavailable(self) -> bool:
        """Whether the partition has no leader, or its leader's broker is fenced."""
        return self.leader == -1 or self.leader in self.offline_replicas


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as ``describe_topics`` returns it."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


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


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result of ``delete_records`` for a partition (Kafka's ``DeletedRecords``).

    Attributes:
        low_watermark: the first offset that can be read now.
    """

    low_watermark: int


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent producer that a partition remembers (Kafka's ``ProducerState``).

    Attributes:
        producer_id: the producer's id.
        producer_epoch: its newest epoch in this partition.
        last_sequence: the sequence number of its last record in this epoch; -1 without a record.
        last_timestamp: the time at which its last append appeared on the storage, in milliseconds
            since the epoch. In Kafka it is the largest timestamp of its last batch.
        current_transaction_start_offset: the first offset of its open transaction in this
            partition; -1 if none is open.
        transactional_id: the ``transactional.id`` of a producer with an open transaction; None
            without an open transaction, and if the id has expired.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    current_transaction_start_offset: int = -1
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionProducerState:
    """The producers of one partition, as ``describe_producers`` returns them.

    Attributes:
        active_producers: the producers that have not expired, by id.
    """

    active_producers: tuple[ActiveProducer, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in ``list_transactions``.

    Attributes:
        transactional_id: the ``transactional.id``.
        producer_id: the id of the producer that decides its transactions.
        state: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit`` or
            ``CompleteAbort``, as in Kafka.
    """

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its newest transaction (Kafka's class of this name).

    Attributes:
        state: the state's name, as in `TransactionListing`.
        producer_id: the id of the producer that decides its transactions.
        producer_epoch: the present epoch of this producer.
        transaction_timeout_ms: ``transaction.timeout.ms``.
        transaction_start_time_ms: the start of the transaction, in milliseconds since the epoch, by
            the clock of the process that began it; -1 if no transaction is ongoing, or decided and
            not complete.
        topic_partitions: the registered partitions of topics that still exist.
        participants: the producer ids that write for it; several in a Spark job.
        groups: the consumer groups whose offsets it commits.
        batch_id: the last committed micro-batch; -1 without one.
    """

    state: str
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: frozenset[TopicPartition]
    participants: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    batch_id: int = -1


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """An open transaction of a partition, for ``abort_transaction``.

    Attributes:
        topic_partition: the partition.
        producer_id: the id of the producer whose transaction is open.
        producer_epoch: the epoch of its records.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no process will end.

    Attributes:
        topic_partition: the partition.
        producer_id: the id of the producer.
        producer_epoch: the epoch of its records.
        start_offset: the first offset of the transaction in the partition.
        last_timestamp: the time at which its last append appeared on the storage, in milliseconds
            since the epoch; -1 if it is not known.
        transactional_id: the ``transactional.id``; None if it has expired.
    """

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory (Kafka's ``ReplicaInfo``, with more fields).

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        size_bytes: the size of the log's segments.
        offset_lag: the number of offsets by which its log end offset is behind the high watermark.
        is_future: whether it is a copy that will replace another replica.
        segments: the number of the log's segments.
        log_start_offset: the first offset that can be read.
        log_end_offset: the next offset to be written.
        path: the partition's directory, as a path or URL.
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
    """A storage root and its replicas, as ``describe_log_dirs`` returns it.

    Attributes:
        broker: the broker's id.
        log_dir: the path or URL of the root.
        replicas: its replicas, ordered by topic and partition.
        error: the reason why the root cannot be read; None if it can.
    """

    broker: int
    log_dir: str
    replicas: tuple[ReplicaInfo, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker of a cluster: a storage root that holds replicas.

    Attributes:
        broker_id: the broker's id; 0 is the root of the metadata log.
        log_dir: its path or URL.
        rack: the rack it is in; None without one.
        fenced: whether it may not lead a partition.
        in_controlled_shutdown: whether unregistering it has begun; it gets no new replica.
        broker_epoch: the number of its registration; -1 for broker 0, which has none.
        incarnation_id: the id of its registration, as in its ``meta.properties``; empty for
            broker 0.
        replica_count: the number of partitions of which it holds a replica.
        in_sync_count: the number of partitions of which it holds an in-sync replica.
        leader_count: the number of partitions that it leads.
    """

    broker_id: int
    log_dir: str
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    broker_epoch: int = -1
    incarnation_id: str = ""
    replica_count: int = 0
    in_sync_count: int = 0
    leader_count: int = 0

    @property
    def state(self) -> Literal["active", "fenced", "unregistering"]:
        """The broker's state: ``fenced`` cannot lead, ``unregistering`` gets no new replicas."""
        if self.in_controlled_shutdown:
            return "unregistering"
        return "fenced" if self.fenced else "active"


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

    As in Kafka it never begins with a dash, which a shell command would take for an option.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
