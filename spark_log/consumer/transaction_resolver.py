"""Ends transactions that hold a reader up after their producer is gone."""

from __future__ import annotations

from spark_log.consumer.fetch import Resolve
from spark_log.log import OpenTransaction, PartitionLog
from spark_log.metadata import Cluster


def resolver(cluster: Cluster) -> Resolve:
    """Return a function for one reader, to be called at each read that a transaction holds up.

    It puts the marker of a transaction that is decided, and aborts one that it has seen open for
    ``transaction.timeout.ms``. It makes no request in the first 500 ms, and from then on looks once
    a second for each partition. Failures are logged and counted.

    Args:
        cluster: the opened root.
    """
    # Imported here: readers of uncommitted records need none of it.
    from spark_log.coordinator import GroupOffsets
    from spark_log.transaction import TopicIdPartition, TransactionObserver

    observer = TransactionObserver(cluster, commit_offsets=GroupOffsets(cluster).commit)

    def resolve(blocking: OpenTransaction, log: PartitionLog) -> bool:
        partition = TopicIdPartition(log.files.topic_id, log.files.partition)
        return observer.resolve(blocking, log, partition)

    return resolve
