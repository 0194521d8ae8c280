"""Producers that a partition remembers, and transactions."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.types.records import TopicPartition


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
        transaction_start_time_ms: the start of the transaction, which may have ended, in
            milliseconds since the epoch, by the clock of the process that began it; -1 if none has
            begun since the producer's epoch was taken.
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
