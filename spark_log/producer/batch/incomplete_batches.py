"""The batches that are neither acknowledged nor failed (Kafka's ``IncompleteBatches``)."""

from __future__ import annotations

from collections.abc import Iterator

from spark_log.producer.batch.producer_batch import ProducerBatch
from spark_log.producer.batch.topic_route import NEVER_MS, PartitionQueue


class IncompleteBatches:
    """The incomplete batches of a producer, oldest first, each with the partition that it waits in.

    Callers hold the accumulator's lock for every method.
    """

    def __init__(self, delivery_timeout_ms: float) -> None:
        """Begin without batches; a batch expires after ``delivery.timeout.ms``."""
        self._delivery_timeout_ms = delivery_timeout_ms
        self._queues: dict[ProducerBatch, PartitionQueue] = {}

    def __iter__(self) -> Iterator[ProducerBatch]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, batch: ProducerBatch) -> bool:
        return batch in self._queues

    def items(self) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches with their partitions."""
        return list(self._queues.items())

    def put(self, batch: ProducerBatch, queue: PartitionQueue) -> None:
        """Add a batch, or set the partition of a batch that was moved."""
        self._queues[batch] = queue

    def remove(self, batch: ProducerBatch) -> bool:
        """Remove a batch that is complete; return whether it was here."""
        return self._queues.pop(batch, None) is not None

    def record_count(self) -> int:
        """Return the number of records in the batches."""
        return sum(batch.record_count for batch in self._queues)

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue | None:
        """Return the partition of a batch; None if the batch is complete."""
        return self._queues.get(batch)

    def of_queue(self, queue: PartitionQueue) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches of one partition."""
        return [(batch, of) for batch, of in self._queues.items() if of is queue]

    def waiting(self) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches that no append in progress has, with their partitions."""
        return [
            (batch, queue)
            for batch, queue in self._queues.items()
            if not (queue.is_busy and queue.has_in_flight(batch))
        ]

    def expired(self, now_ms: float) -> list[tuple[ProducerBatch, PartitionQueue]]:
        """Return the batches whose ``delivery.timeout.ms`` has passed, with their partitions."""
        expired = []
        for batch, queue in self._queues.items():
            if batch.created_ms + self._delivery_timeout_ms > now_ms:
                break
            expired.append((batch, queue))
        return expired

    def next_expiry_ms(self) -> float:
        """Return when ``delivery.timeout.ms`` of the oldest batch will have passed."""
        oldest = next(iter(self._queues), None)
        return NEVER_MS if oldest is None else oldest.created_ms + self._delivery_timeout_ms
