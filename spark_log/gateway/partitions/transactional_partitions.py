"""Adds the partitions of produce requests to the transactions of their producers (KIP-890)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from spark_log.cluster import Cluster
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionCoordinator

_MAX_IDS: Final = 1_000
"""Transactional ids whose state is kept; that of others is read again."""


class TransactionalPartitions:
    """The partitions that are known to belong to transactions. Any thread may call it.

    A record may be appended to a partition only after the partition was added to its transaction:
    otherwise nobody would put the marker that ends the transaction.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Read nothing yet.

        Args:
            cluster: the opened root.
        """
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[ProducerIdAndEpoch, set[TopicIdPartition]]] = (
            OrderedDict()
        )

    def is_added(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicIdPartition
    ) -> bool:
        """Return whether a partition is known to belong to the producer's transaction."""
        known = self._known.get(transactional_id)
        return known is not None and known[0] == producer and partition in known[1]

    def add(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: set[TopicIdPartition]
    ) -> None:
        """Add partitions to the transaction of a producer, which this may begin.

        Raises:
            ProducerFencedError: the epoch has passed.
            SparkLogError: see `TransactionCoordinator.register`.
        """
        coordinator = TransactionCoordinator(self._cluster, transactional_id)
        coordinator.refresh()
        coordinator.register(producer, partitions)
        with self._lock:
            known = self._known.pop(transactional_id, None)
            before = known[1] if known is not None and known[0] == producer else set()
            self._known[transactional_id] = producer, before | partitions
            while len(self._known) > _MAX_IDS:
                self._known.popitem(last=False)
