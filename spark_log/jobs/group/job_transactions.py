"""The transactions of a job: each has the output of one batch, and the offsets of its input."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spark_log.cluster import Cluster
from spark_log.coordinator import LazyTransactionalOffsets
from spark_log.datasource import ExternalTransaction
from spark_log.errors import SparkLogError
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionCoordinator, TransactionOffset
from spark_log.types import ConsumerGroupMetadata, TopicPartition


class JobTransactions:
    """The transactions of one job, one after the other. For one thread at a time.

    The job owns a transaction and decides it; Spark's tasks write as participants. The output of a
    batch is therefore committed only together with its offsets. A transaction that a killed job has
    left open is aborted by the next process with its transactional id, or by others after the
    timeout.

    Attributes:
        transactional_id: the ``transactional.id``.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        """Begin a new epoch of the transactional id; an earlier process with it is fenced.

        Args:
            cluster: the opened root.
            transactional_id: the ``transactional.id``.
            timeout_ms: ``transaction.timeout.ms``.

        Raises:
            InvalidTxnTimeoutError: the timeout is above ``transaction.max.timeout.ms``.
            UnknownOutcomeError, StorageError: the new epoch may have begun.
        """
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._offsets = LazyTransactionalOffsets(cluster)
        self._coordinator = TransactionCoordinator(
            cluster, transactional_id, commit_offsets=self._offsets.commit_offsets
        )
        self._owner = self._coordinator.initialize(timeout_ms)
        self._counting: tuple[ProducerIdAndEpoch, ...] = ()

    def begin(self) -> ExternalTransaction:
        """Return the transaction of a batch, which begins when its first task writes.

        The records of a cancelled batch are aborted.

        Raises:
            ProducerFencedError: another process has the transactional id.
            UnknownOutcomeError, StorageError: the storage does not answer.
        """
        self.abort()
        self._counting = ()
        return ExternalTransaction(self.transactional_id, self._owner)

    def count(self, producers: Iterable[ProducerIdAndEpoch]) -> None:
        """Set the producers whose records `commit` commits; records of other ones are aborted."""
        self._counting = tuple(producers)

    def commit(self, offsets: Collection[TransactionOffset], member: ConsumerGroupMetadata) -> None:
        """Commit the records of tasks, together with the offsets of a group.

        Args:
            offsets: the group's offsets after the batch.
            member: the membership of the job.

        Raises:
            CommitFailedError: the member has lost a partition, or its generation has passed;
                nothing is decided.
            ProducerFencedError: another process has the transactional id.
            TransactionAbortableError: the transaction was aborted after its timeout.
            UnknownOutcomeError: the transaction may be committed.
            StorageError: the transaction is not committed.
        """
        assert member.group_id is not None
        self._coordinator.register(self._owner, groups=[member.group_id])
        partitions = [TopicPartition(each.topic, each.partition) for each in offsets]
        self._offsets.send(self._coordinator.state, self._owner, member, partitions)
        self._owner = self._coordinator.commit(
            self._owner, [self._owner, *self._counting], offsets=offsets
        )

    def abort(self) -> None:
        """Abort the open transaction; does nothing without one.

        Raises:
            ProducerFencedError: another process has the transactional id.
            InvalidTxnStateError: an earlier commit whose outcome was unknown has succeeded.
            UnknownOutcomeError, StorageError: the transaction may still be open.
        """
        self._owner = self._coordinator.abort(self._owner)

    def close(self) -> None:
        """Abort the open transaction; if that fails, others abort it after the timeout."""
        suppressed = self._cluster.suppressed
        with suppressed.suppress("transaction end", self.transactional_id, SparkLogError):
            self.abort()
