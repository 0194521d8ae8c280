"""Records of one producer that are appended together with those of others, in one segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_log.record import EndTransactionMarker, ProducerAppend, sequence_after


@dataclass(frozen=True, slots=True)
class BatchAppend:
    """One record batch of one producer, to be appended beside those of other producers.

    Attributes:
        records: columns of `RECORD_SCHEMA`, at least one row.
        producer: the identity that makes the append idempotent; None for an append that is not.
    """

    records: pa.RecordBatch
    producer: ProducerAppend | None = None

    @property
    def record_count(self) -> int:
        """Number of records."""
        return int(self.records.num_rows)


class ConsecutiveBatches:
    """Chooses the batches and markers of one partition that one put may append, in order.

    By one put each producer's batches follow each other in sequence, in one epoch, and all of them
    are transactional or none. So the log decides the first of them by the producer state, and the
    others follow from it. Any other batch waits for a later put. It may repeat one of this put, for
    example: then the log has that one when the repeat is checked. A transaction marker is the only
    thing of its producer.
    """

    def __init__(self) -> None:
        self._next_of: dict[int, ProducerAppend] = {}
        self._held_back: set[int] = set()

    def accepts(self, entry: BatchAppend | EndTransactionMarker) -> bool:
        """Return whether the next batch or marker may be appended by this put."""
        if isinstance(entry, EndTransactionMarker):
            producer_id = entry.producer_id
            is_alone = producer_id not in self._next_of and producer_id not in self._held_back
            self._held_back.add(producer_id)
            return is_alone
        producer = entry.producer
        if producer is None:
            return True
        producer_id = producer.producer_id
        if producer_id in self._held_back or self._next_of.get(producer_id, producer) != producer:
            self._held_back.add(producer_id)
            return False
        self._next_of[producer_id] = replace(
            producer, base_sequence=sequence_after(producer.base_sequence, entry.record_count)
        )
        return True


def consecutive_batches(batches: Sequence[BatchAppend], waiting: Iterable[int]) -> list[int]:
    """Return which of the waiting batches one segment may hold (`ConsecutiveBatches`).

    Args:
        batches: all batches of an append, in order.
        waiting: indexes of the batches that are not in the log and not refused, in order.

    Returns:
        Indexes of the batches, in order; at least one if a batch waits.
    """
    consecutive = ConsecutiveBatches()
    return [index for index in waiting if consecutive.accepts(batches[index])]
