"""A job's membership whose offsets are committed in the transaction of the batch's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_log.errors import CommitFailedError, UnknownMemberIdError
from spark_log.jobs.group.job_member import Batch, BatchAbortedError, JobMember
from spark_log.jobs.group.job_transactions import JobTransactions
from spark_log.transaction import TransactionOffset
from spark_log.types import ConsumerGroupMetadata, TopicPartition


class TransactionalMember(JobMember):
    """Commits the offsets of a batch together with its output, or neither (KIP-447)."""

    def __init__(self, transactions: JobTransactions, *arguments: Any, **keywords: Any) -> None:
        """Own ``transactions``, which `close` closes; other arguments are those of `JobMember`."""
        super().__init__(*arguments, **keywords)
        self._transactions = transactions

    def close(self) -> None:
        """Abort the open transaction, and leave the group."""
        self._transactions.close()
        super().close()

    def commit(
        self, batch: Batch, reached: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        """Commit the output and the offsets of a batch.

        Returns:
            The empty set: offsets of lost partitions abort the batch.

        Raises:
            BatchAbortedError: another member got a partition, so the whole batch was aborted.
            CommitFailedError: the group changes too often.
            ProducerFencedError: another process has the transactional id.
            TransactionAbortableError: the transaction was aborted after its timeout.
            UnknownOutcomeError: the batch may be committed.
            StorageError: the batch is not committed.
        """
        offsets = [
            TransactionOffset(
                self._group, tp.topic, batch.topic_ids[tp.topic], tp.partition, offset
            )
            for tp, offset in sorted(reached.items())
            if offset > batch.starts[tp]
        ]
        partitions = {TopicPartition(each.topic, each.partition) for each in offsets}
        generation = -1
        while True:
            try:
                status = self._member.refresh()
            except UnknownMemberIdError:
                lost = partitions
            else:
                # A member releases no partition during a batch: what it owns now, it has owned
                # since the batch began.
                lost = partitions - self._still_owned(batch)
            if lost:
                self._transactions.abort()
                raise BatchAbortedError(frozenset(lost))
            member = ConsumerGroupMetadata(
                self._group, status.generation, status.member_id, self._config.group_instance_id
            )
            try:
                self._transactions.commit(offsets, member)
            except CommitFailedError:
                if status.generation == generation:
                    raise
                generation = status.generation  # the group may have a newer generation: retry
            else:
                self._advance(batch, reached)
                return frozenset()
