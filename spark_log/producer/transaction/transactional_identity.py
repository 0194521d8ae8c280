"""Producer id, epoch and sequence numbers of the appends of a transactional producer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_log.producer.batch import Accumulator, PartitionQueue
from spark_log.producer.transaction.transaction_manager import TransactionManager
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionCoordinator, TransactionMetadata

_log = logging.getLogger(__name__)


class TransactionalIdentity:
    """The identity of the next append to each partition. Registers a partition before its first.

    It takes the place of a `ProducerIdentity`. A transaction has one epoch, in which the sequence
    numbers of each partition begin with 0. An unknown outcome needs no new epoch: it fails the
    transaction, and the next transaction has a new epoch.
    """

    is_idempotent = True
    first_epoch = 0

    def __init__(
        self,
        manager: TransactionManager,
        coordinator: TransactionCoordinator,
        accumulator: Accumulator,
    ) -> None:
        """Create the identity of a producer that has not called `init_transactions`."""
        self._manager = manager
        self._coordinator = coordinator
        self._accumulator = accumulator
        self._lock = threading.Lock()

    @contextmanager
    def coordinator(self) -> Iterator[TransactionCoordinator]:
        """Return the coordinator, which one thread at a time may use."""
        with self._lock:
            yield self._coordinator

    def next_append(self, queue: PartitionQueue) -> ProducerAppend:
        """Return the identity of the next append to a busy partition; register the partition first.

        Raises:
            TransactionAbortableError: the transaction can only be aborted.
            TransactionAbortedError: the transaction was aborted.
            ProducerFencedError: another process has taken over the transactional id.
            UnknownOutcomeError: the partition may be registered.
            SparkLogError: the partition is not registered.
        """
        partition = _partition_of(queue)
        while True:
            with self._accumulator.lock:
                self._manager.check_can_append()
                if partition in self._manager.partitions:
                    producer = self._manager.producer
                    assert producer is not None
                    if queue.epoch != producer.producer_epoch:
                        queue.begin_epoch(producer.producer_epoch)
                    return ProducerAppend(
                        producer.producer_id, queue.epoch, queue.sequence, is_transactional=True
                    )
            self._register_waiting(partition)

    def register_group(self, group_id: str) -> tuple[TransactionMetadata, ProducerIdAndEpoch]:
        """Register a consumer group, before a record of the transaction is written to its log.

        Returns:
            The transaction, and the producer in it.

        Raises:
            SparkLogError: the errors of `next_append`.
        """
        with self._lock:
            producer = self._begin()
            self._coordinator.register(producer, groups=[group_id])
            _log.debug(
                "transactional id %r: registered group %s, %s",
                self._manager.transactional_id,
                group_id,
                producer,
            )
            return self._coordinator.state, producer

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """Do nothing: the end of the transaction gives a new epoch."""

    def _register_waiting(self, partition: TopicIdPartition) -> None:
        """Register a partition and all others that have records, by one append.

        Partitions that other threads are about to append to are among them: each of these threads
        waits here for the lock, and then finds its partition registered.
        """
        with self._lock:
            with self._accumulator.lock:
                registered = self._manager.partitions
                waiting = {
                    _partition_of(queue)
                    for _, queue in self._accumulator.incomplete.items()
                    if not queue.route.is_deleted
                }
            if partition in registered:
                return  # the thread that had the lock before has registered it
            partitions = (waiting | {partition}) - registered
            producer = self._begin()
            self._coordinator.register(producer, partitions=partitions)
            _log.debug(
                "transactional id %r: registered %d partitions, %s",
                self._manager.transactional_id,
                len(partitions),
                producer,
            )
            with self._accumulator.lock:
                self._manager.add_partitions(partitions)

    def _begin(self) -> ProducerIdAndEpoch:
        """Return the producer, after recording that the transaction may be registered."""
        with self._accumulator.lock:
            self._manager.check_can_append()
            producer, is_begun = self._manager.producer, self._manager.is_begun
            assert producer is not None
        if not is_begun:
            producer = self._coordinator.renew_owner(producer)
        with self._accumulator.lock:
            self._manager.begin_registration(producer)
        return producer


def _partition_of(queue: PartitionQueue) -> TopicIdPartition:
    return TopicIdPartition(queue.route.topic.topic_id, queue.partition)
