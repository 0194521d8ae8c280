"""Records of one producer that are appended together with those of others, in one segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_log.record import EndTransactionMarker, ProducerAppend, SmallBatch, sequence_after


@dataclass(frozen=True, slots=True)
class BatchAppend:
    """One record batch of one producer, to be appended beside those of other producers.

    Attributes:
        content: columns of `RECORD_SCHEMA`, at least one row; or the buffers of few records.
        producer: the identity that makes the append idempotent; None for an append that is not.
    """

    content: pa.RecordBatch | SmallBatch
    producer: ProducerAppend | None = None

    @property
    def records(self) -> pa.RecordBatch:
        """The records as an Arrow batch, which is made of those that are few."""
        content = self.content
        return content.records() if isinstance(content, SmallBatch) else content

    @property
    def record_count(self) -> int:
        """Number of records."""
        content = self.content
        return content.rows if isinstance(content, SmallBatch) else int(content.num_rows)

    @property
    def size_bytes(self) -> int:
        """Approximate size of the records in memory."""
        content = self.content
        return len(content.content) if isinstance(content, SmallBatch) else int(content.nbytes)


class ConsecutiveBatches:
    """Chooses the batches and markers of one partition that one put may append, in order.

    By one put each producer's batches follow each other in sequence, in one epoch, and all of them
    are transactional or none. So the log decides the first of them by the producer state, and the
    others follow from it. Any other batch waits for a later put. It may repeat one of this put, for
    example: then the log has that one when the repeat is checked. A transaction marker is the only
    thing of its producer.
    """

    def __init__(self) -> None:
        self._last_of: dict[int, BatchAppend] = {}
        self._held_back: set[int] = set()

    def accepts(self, entry: BatchAppend | EndTransactionMarker) -> bool:
        """Return whether the next batch or marker may be appended by this put."""
        if isinstance(entry, EndTransactionMarker):
            producer_id = entry.producer_id
            is_alone = producer_id not in self._last_of and producer_id not in self._held_back
            self._held_back.add(producer_id)
            return is_alone
        producer = entry.producer
        if producer is None:
            return True
        producer_id = producer.producer_id
        last = self._last_of.get(producer_id)
        if producer_id in self._held_back or not (last is None or _follows(last, producer)):
            self._held_back.add(producer_id)
            return False
        self._last_of[producer_id] = entry
        return True


def _follows(last: BatchAppend, producer: ProducerAppend) -> bool:
    """Return whether a batch of a producer is the next one after another of the same id."""
    before = last.producer
    assert before is not None
    sequence = sequence_after(before.base_sequence, last.record_count)
    return replace(before, base_sequence=sequence) == producer


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
