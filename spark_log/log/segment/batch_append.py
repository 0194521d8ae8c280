"""Records of one producer that are appended together with those of others, in one segment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_log.record import ProducerAppend, sequence_after


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


def consecutive_batches(batches: Sequence[BatchAppend], waiting: Iterable[int]) -> list[int]:
    """Return which of the waiting batches one segment may hold.

    In one segment each producer's batches follow each other in sequence, in one epoch, and all of
    them are transactional or none. So the log decides the first of them by the producer state, and
    the others follow from it. Any other batch waits for a later segment. It may repeat one of this
    segment, for example: then the log has that one when the repeat is checked.

    Args:
        batches: all batches of an append, in order.
        waiting: indexes of the batches that are not in the log and not refused, in order.

    Returns:
        Indexes of the batches, in order; at least one if a batch waits.
    """
    chosen: list[int] = []
    next_of: dict[int, ProducerAppend] = {}
    held_back: set[int] = set()
    for index in waiting:
        batch = batches[index]
        producer = batch.producer
        if producer is not None:
            producer_id = producer.producer_id
            if producer_id in held_back or next_of.get(producer_id, producer) != producer:
                held_back.add(producer_id)
                continue
            next_of[producer_id] = replace(
                producer, base_sequence=sequence_after(producer.base_sequence, batch.record_count)
            )
        chosen.append(index)
    return chosen
