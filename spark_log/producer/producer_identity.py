"""Producer id, epochs and sequence numbers of an idempotent producer (KIP-98, KIP-360)."""

from __future__ import annotations

import threading

from spark_log.log import MAX_PRODUCER_EPOCH, ProducerAppend, ProducerIdAndEpoch
from spark_log.metadata import Cluster
from spark_log.producer.topic_route import PartitionQueue


class ProducerIdentity:
    """One producer's id, and the identity of its next append to each partition.

    The cluster never assigns an id twice. Unlike in Kafka, each partition has its own epoch,
    because the producer state of one partition's log is independent of the others: an unknown
    outcome in one partition bumps the epoch there, and changes nothing in the others.
    """

    def __init__(
        self, cluster: Cluster, *, is_idempotent: bool, given: ProducerIdAndEpoch | None
    ) -> None:
        """Return an identity whose id is assigned at the first append, unless one is given."""
        self.is_idempotent = is_idempotent
        self.first_epoch = 0 if given is None else given.producer_epoch
        self._cluster = cluster
        self._lock = threading.Lock()
        self._producer_id = None if given is None else given.producer_id
        self._replaced: dict[tuple[str, int], int] = {}

    @property
    def producer_id(self) -> int | None:
        """The producer id; None before the first append."""
        return self._producer_id

    def next_append(self, queue: PartitionQueue) -> ProducerAppend:
        """Return id, epoch and sequence number of the next append to a busy partition.

        Raises:
            StorageError, UnknownOutcomeError: no id could be assigned; nothing was appended.
        """
        if queue.epoch > MAX_PRODUCER_EPOCH:  # a new id, as in `bumpIdempotentProducerEpoch`
            place = (queue.route.topic.topic_id, queue.partition)
            self._replaced[place] = self._cluster.producer_ids.next_id()
            queue.epoch = queue.sequence = 0
        return ProducerAppend(self._id_in(queue), queue.epoch, queue.sequence)

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """Begin a new epoch in a partition; it fences this producer's earlier appends there."""
        queue.epoch += 1
        queue.sequence = 0

    def _id_in(self, queue: PartitionQueue) -> int:
        replaced = self._replaced.get((queue.route.topic.topic_id, queue.partition))
        if replaced is not None:
            return replaced
        if self._producer_id is None:
            with self._lock:
                if self._producer_id is None:
                    self._producer_id = self._cluster.producer_ids.next_id()
        return self._producer_id
