"""Values that `Admin` takes and returns: descriptions of brokers, topics, groups, transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as ``describe_cluster`` returns it.

    Attributes:
        cluster_id: the cluster's id, as in its ``meta.properties``.
        brokers: its storage roots, sorted by id.
    """

    cluster_id: str
    brokers: tuple[BrokerDescription, ...]


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
class FeatureDescription:
    """A feature that this release knows, as ``describe_features`` returns it (KIP-584).

    Attributes:
        name: the feature's name, such as ``table.version``.
        finalized_level: the level that the cluster uses; 0 if it does not use the feature.
        max_level: the highest level that this release knows.
        release: the first release that knows `max_level`.
        documentation: what the feature adds to the bytes at rest.
    """

    name: str
    finalized_level: int
    max_level: int
    release: str
    documentation: str


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
class TopicDescription:
    """A topic as ``describe_topics`` returns it."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


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
class DeletedRecords:
    """The result of ``delete_records`` for a partition (Kafka's ``DeletedRecords``).

    Attributes:
        low_watermark: the first offset that can be read now.
    """

    low_watermark: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in `Admin.list_groups`, with kafka-python's field names.

    Attributes:
        group_id: the group's id.
        protocol_type: ``consumer``; empty for a group that never had members.
        group_state: ``Empty``, ``Stable``, or ``Reconciling`` while partitions move from one member
            to another.
    """

    group_id: str
    protocol_type: str
    group_state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: the member's id.
        group_instance_id: ``group.instance.id`` of a static member; None for a dynamic one.
        client_id: the ``client.id`` of its consumer.
        client_host: the host name of its machine; empty if not known.
        assignment: the partitions that it reads.
        revoking: the partitions that it has stopped reading and may still commit, until it releases
            them.
        pending: the partitions that it gets when other members have released them.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    pending: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    Attributes:
        group_id: the group's id.
        group_state: ``Empty``, ``Stable``, or ``Reconciling`` while partitions move from one member
            to another.
        protocol_type: ``consumer``; empty for a group that never had members.
        protocol: the name of the assignor; empty without members.
        generation: the generation of the newest change.
        members: the members, in the order in which they joined.
    """

    group_id: str
    group_state: str
    protocol_type: str
    protocol: str
    generation: int
    members: tuple[MemberDescription, ...]

    @property
    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """Partition → the member that reads it or may still commit it."""
        return {
            partition: member
            for member in self.members
            for partition in (*member.revoking, *member.assignment)
        }


@dataclass(frozen=True, slots=True)
class GroupPartitionLag:
    """Committed offset and lag of a group in one partition.

    Attributes:
        partition: the topic and partition.
        current_offset: the committed offset; None if the group has committed none.
        log_end_offset: the offset of the next record to be written; with ``read_committed`` the
            last stable offset.
        lag: the number of offsets that the group can still read: from its committed offset, or from
            the log start offset if that is higher, to ``log_end_offset``. 0 also if the committed
            offset lies beyond the end; None without a committed offset.
        deleted: the number of offsets from the committed one to the log start offset, whose records
            were deleted before the group read them. None without a committed offset.
        lag_ms: the age of the first record of ``lag``, by its timestamp; 0 without such a record,
            None if it is not known.
        metadata: the metadata committed with the offset.
        commit_timestamp_us: the time of the commit; None without a committed offset.
        member: the member that the partition is assigned to; None without one.
    """

    partition: TopicPartition
    current_offset: int | None
    log_end_offset: int
    lag: int | None
    deleted: int | None
    lag_ms: int | None
    metadata: str
    commit_timestamp_us: int | None
    member: MemberDescription | None


@dataclass(frozen=True, slots=True)
class PartitionProducerState:
    """The producers of one partition, as ``describe_producers`` returns them.

    Attributes:
        active_producers: the producers that have not expired, by id.
    """

    active_producers: tuple[ActiveProducer, ...]


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
