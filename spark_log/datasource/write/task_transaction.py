"""A task attempt as a participant in the transaction of its micro-batch or batch write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_log.datasource.options import ExternalTransaction
from spark_log.datasource.write.identity import WriteIdentity
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.datasource.write.transaction_owner import present_owner
from spark_log.errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    TransactionAbortableError,
)
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionCoordinator


@dataclass(frozen=True, slots=True)
class JoinedTransaction:
    """A task attempt's transaction and producer, which the attempt reports to the driver.

    Attributes:
        transactional_id: the ``transactional.id``.
        owner: the transaction's owner, as which the driver commits or aborts.
        producer: the attempt's own producer id and epoch.
    """

    transactional_id: str
    owner: ProducerIdAndEpoch
    producer: ProducerIdAndEpoch


class TaskTransaction:
    """Joins the transaction of a write for one task attempt, when its first segment begins.

    Each attempt is a participant with a producer of its own: the driver commits the attempts that
    Spark has counted, and what others have appended is aborted. Therefore an attempt may join a
    transaction that an earlier run of the query has left open: that run's records are aborted when
    this one commits.

    Attributes:
        joined: the joined transaction; None before the first segment.
    """

    def __init__(
        self,
        root: OpenRoot,
        identity: WriteIdentity,
        topic: str | None,
        timeout_ms: int,
        external: ExternalTransaction | None = None,
    ) -> None:
        """Start without a request.

        Args:
            root: the opened root.
            identity: identity of the task.
            topic: the option ``topic``; None if a column contains the topics.
            timeout_ms: ``transaction.timeout.ms`` of a transaction of the write's own.
            external: the caller's transaction; None for one of the write's own.
        """
        self._identity = identity
        self._cluster = root.cluster
        self._timeout_ms = timeout_ms
        transactional_id = (
            external.transactional_id if external else identity.transactional_id(topic)
        )
        self._coordinator = root.coordinator(transactional_id)
        self._partitions: set[TopicIdPartition] = set()
        self._owner = external.owner if external else None
        self._is_committed = False if external else None
        self.joined: JoinedTransaction | None = None

    @property
    def is_committed(self) -> bool:
        """Whether the micro-batch was committed before this attempt; read at the first call.

        Raises:
            InvalidTxnTimeoutError: the timeout is above ``transaction.max.timeout.ms``.
            StorageError: the state cannot be read, or the transactional id cannot be initialized.
        """
        if self._is_committed is None:
            state = self._coordinator.refresh()
            self._is_committed = state.batch_id >= self._identity.batch_id
            if not self._is_committed:
                self._owner = present_owner(self._cluster, self._coordinator, self._timeout_ms)
            elif state.is_prepared:  # the driver died before the last marker
                self._coordinator.complete()
        return self._is_committed

    def add(self, partition: TopicIdPartition) -> None:
        """Record that the task will write to a partition; makes no request."""
        self._partitions.add(partition)

    def producer_append(self, base_sequence: int) -> ProducerAppend:
        """Return the identity of appended records; the first call joins the transaction.

        Raises:
            TransactionAbortableError: the transaction was aborted by others.
            StorageError: the storage does not answer.
        """
        if self.joined is None:
            owner = self._owner
            assert owner is not None
            with self.explained():
                producer = self._coordinator.join(owner, self._partitions)
            self.joined = JoinedTransaction(self._coordinator.transactional_id, owner, producer)
        producer = self.joined.producer
        return ProducerAppend(
            producer.producer_id, producer.producer_epoch, base_sequence, is_transactional=True
        )

    def register(self) -> None:
        """Register the partitions that were added since the attempt joined, before its first put.

        Raises:
            TransactionAbortableError: the transaction was aborted by others.
            StorageError: the storage does not answer.
        """
        if self.joined is not None:
            with self.explained():
                self._coordinator.register(self.joined.producer, self._partitions)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `ended_elsewhere` in place of an error that the ended transaction causes."""
        try:
            yield
        except (InvalidProducerEpochError, ProducerFencedError, TransactionAbortableError) as error:
            raise ended_elsewhere(self._coordinator) from error


def ended_elsewhere(coordinator: TransactionCoordinator) -> TransactionAbortableError:
    """Return the error of a write whose transaction was ended by others."""
    name, timeout_ms = coordinator.transactional_id, coordinator.state.timeout_ms
    return TransactionAbortableError(
        f"the transaction of {name!r} was aborted while tasks wrote to it: it took longer than "
        f"transaction.timeout.ms ({timeout_ms}), or the query or job was started a second time. "
        f"Nothing of it is visible to read_committed. Start the query, job or write again; raise "
        f"transaction.timeout.ms if it needs more time",
        transactional_id=name,
    )
