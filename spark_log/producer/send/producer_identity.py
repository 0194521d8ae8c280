"""Producer id, epochs and sequence numbers of an idempotent producer (KIP-98, KIP-360)."""

from __future__ import annotations

from spark_log.metadata import random_producer_id
from spark_log.producer.batch import PartitionQueue
from spark_log.record import MAX_PRODUCER_EPOCH, ProducerAppend, ProducerIdAndEpoch


class ProducerIdentity:
    """One producer's id, and the identity of its next append to each partition.

    The id is random, which takes no request. Unlike in Kafka, each partition has its own epoch,
    because the producer state of one partition's log is independent of other partitions: an unknown
    outcome in one partition bumps only the epoch of this partition.
    """

    def __init__(self, *, is_idempotent: bool, given: ProducerIdAndEpoch | None) -> None:
        """Create an identity with a random id, unless one is given."""
        self.is_idempotent = is_idempotent
        self.first_epoch = 0 if given is None else given.producer_epoch
        self.producer_id = random_producer_id() if given is None else given.producer_id
        self._replacement_ids: dict[tuple[str, int], int] = {}

    def next_append(self, queue: PartitionQueue) -> ProducerAppend:
        """Return id, epoch and sequence number of the next append to a busy partition."""
        partition = (queue.route.topic.topic_id, queue.partition)
        if queue.epoch > MAX_PRODUCER_EPOCH:  # a new id, as in `bumpIdempotentProducerEpoch`
            self._replacement_ids[partition] = random_producer_id()
            queue.begin_epoch(0)
        producer_id = self._replacement_ids.get(partition, self.producer_id)
        return ProducerAppend(producer_id, queue.epoch, queue.sequence)

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """Begin a new epoch in a partition; it fences this producer's earlier appends to it."""
        queue.begin_epoch(queue.epoch + 1)
