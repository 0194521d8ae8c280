"""`TransactionalOffsets` that are opened when the first transaction has offsets.

Importing and opening the offsets table takes longer than a whole transaction, and most transactions
have no offsets.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from spark_log.cluster import Cluster
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TransactionCleaner, TransactionMetadata
from spark_log.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets


class LazyTransactionalOffsets:
    """The `TransactionalOffsets` of a root, opened on first use. Safe to use from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Return the offsets of a root's groups; nothing is read yet.

        Args:
            cluster: the opened root.
        """
        self._cluster = cluster
        self._lock = threading.Lock()
        self._opened: TransactionalOffsets | None = None

    def send(
        self,
        state: TransactionMetadata,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Add pending offsets to a group, as `TransactionalOffsets.send` does."""
        self._open().send(state, producer, member, partitions)

    def commit_offsets(self, state: TransactionMetadata) -> None:
        """Commit a transaction's offsets, as `TransactionalOffsets.commit_offsets` does."""
        self._open().commit_offsets(state)

    def _open(self) -> TransactionalOffsets:
        with self._lock:
            if self._opened is None:
                from spark_log.coordinator.offsets.table import OffsetsTable
                from spark_log.coordinator.offsets.transactional_offsets import TransactionalOffsets

                table = OffsetsTable(self._cluster)
                self._opened = TransactionalOffsets(self._cluster, table)
            return self._opened


def transaction_cleaner(cluster: Cluster, *, dry_run: bool = False) -> TransactionCleaner:
    """Return a cleaner of all transactional ids that also commits the offsets of groups.

    Args:
        cluster: the opened root.
        dry_run: whether to report the actions and change nothing.
    """
    return TransactionCleaner(
        cluster, dry_run=dry_run, commit_offsets=LazyTransactionalOffsets(cluster).commit_offsets
    )
