"""The identity of a producer, and of an idempotent append by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SEQUENCES: Final = 2**31
"""Number of sequence numbers: 0 follows 2**31 - 1."""

MAX_PRODUCER_EPOCH: Final = 2**15 - 1
"""The last epoch of a producer id."""


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The identity of a producer, as in Kafka's class of this name.

    A producer that is opened with the same id and a newer epoch fences the older one.
    """

    producer_id: int
    producer_epoch: int


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence number ``records`` later (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + records) % SEQUENCES


@dataclass(frozen=True, slots=True)
class ProducerAppend:
    """The identity of an idempotent append, by which a retry of it is recognised.

    Attributes:
        producer_id: the idempotent producer's id, from `metadata.producer_ids`.
        producer_epoch: the producer's epoch; a newer epoch fences all older ones.
        base_sequence: sequence number of the first record in this partition and epoch, from 0.
        is_transactional: whether the records belong to the producer's transaction, which a marker
            ends (`EndTransactionMarker`).
        continues: the identities under which the producer's sequence numbers have counted so far,
            oldest first: each producer id with its first epoch. Empty if they begin in this epoch,
            with 0 (protocol A18).
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool = False
    continues: tuple[ProducerIdAndEpoch, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError if a value does not fit the batch header."""
        in_range = (
            0 <= self.producer_id < 2**63
            and 0 <= self.producer_epoch <= MAX_PRODUCER_EPOCH
            and 0 <= self.base_sequence < SEQUENCES
        )
        if not in_range:
            raise ValueError(
                f"producer id 0 to 2**63 - 1, epoch 0 to 2**15 - 1 and base sequence 0 to "
                f"2**31 - 1 are expected, got {self}"
            )
