"""Ends transactions that still block a reader after their producer is gone."""

from __future__ import annotations

from collections.abc import Callable

from spark_log.cluster import Cluster
from spark_log.log import OpenTransaction, PartitionLog

Resolve = Callable[[OpenTransaction, PartitionLog], bool]
"""A function that ends a transaction that blocks a reader, if its producer is gone. Returns whether
the transaction has ended."""


def resolver(cluster: Cluster) -> Resolve:
    """Return a function for one reader, which calls it at each read that a transaction blocks.

    The function puts the marker of a decided transaction, and aborts a transaction that it has seen
    open for ``transaction.timeout.ms``. It makes no request in the first 500 ms, and then reads the
    transaction's state once a second for each partition. Failures are logged and counted.
    """
    # Imported here: readers of uncommitted records need none of it.
    from spark_log.coordinator import LazyTransactionalOffsets
    from spark_log.transaction import TopicIdPartition, TransactionObserver

    observer = TransactionObserver(
        cluster, commit_offsets=LazyTransactionalOffsets(cluster).commit_offsets
    )

    def resolve(blocking: OpenTransaction, log: PartitionLog) -> bool:
        partition = TopicIdPartition(log.files.topic_id, log.files.partition)
        return observer.resolve(blocking, log, partition)

    return resolve
