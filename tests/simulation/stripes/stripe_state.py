"""The state after a prefix of a stripe: ends of partitions, and the batches of their producers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

MAX_BATCHES: Final = 5
"""Number of batches of a producer that a repeat is recognised among."""


class Entry(NamedTuple):
    """The batch of one partition in an object of a stripe. It has no offset: that follows.

    Attributes:
        partition: the partition.
        producer_id, epoch, sequence: the producer's id, epoch and sequence in this partition.
        values: the records.
    """

    partition: int
    producer_id: int
    epoch: int
    sequence: int
    values: tuple[str, ...]


class Refusal(Enum):
    """Why an entry is not appended."""

    FENCED = "the producer has a newer epoch"
    OUT_OF_ORDER = "the sequence is not the next one"


@dataclass(frozen=True, slots=True)
class ProducerBatches:
    """The batches that a producer has written to a partition.

    Attributes:
        epoch: its newest epoch.
        next_sequence: the sequence of its next batch.
        recent: the sequences and base offsets of its last batches in this epoch.
    """

    epoch: int
    next_sequence: int
    recent: tuple[tuple[int, int], ...] = ()


@dataclass
class StripeState:
    """The state after the objects before `next_number`. Every process derives the same one.

    Attributes:
        next_number: number of the next object.
        ends: partition → its log end offset.
        producers: partition and producer id → what it has written.
    """

    next_number: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    producers: dict[tuple[int, int], ProducerBatches] = field(default_factory=dict)

    def copy(self) -> StripeState:
        """Return a copy that changes by itself."""
        return StripeState(self.next_number, dict(self.ends), dict(self.producers))

    def check(self, entry: Entry) -> int | Refusal | None:
        """Return the offset of an entry that is a repeat, why it is refused, or None: append it."""
        known = self.producers.get((entry.partition, entry.producer_id))
        if known is None:
            return None if entry.sequence == 0 else Refusal.OUT_OF_ORDER
        if entry.epoch < known.epoch:
            return Refusal.FENCED
        is_same_epoch = entry.epoch == known.epoch
        if is_same_epoch and entry.sequence in dict(known.recent):
            return dict(known.recent)[entry.sequence]
        expected = known.next_sequence if is_same_epoch else 0
        return None if entry.sequence == expected else Refusal.OUT_OF_ORDER

    def apply(self, entries: Iterable[Entry]) -> list[int]:
        """Take in the next object; return the base offsets of its entries."""
        offsets = []
        for entry in entries:
            offset = self.ends.get(entry.partition, 0)
            key = entry.partition, entry.producer_id
            known = self.producers.get(key)
            recent = known.recent if known is not None and known.epoch == entry.epoch else ()
            self.producers[key] = ProducerBatches(
                entry.epoch,
                entry.sequence + len(entry.values),
                (*recent, (entry.sequence, offset))[-MAX_BATCHES:],
            )
            self.ends[entry.partition] = offset + len(entry.values)
            offsets.append(offset)
        self.next_number += 1
        return offsets

    def encode(self) -> bytes:
        """Return the content of a home marker."""
        producers = [
            [*key, known.epoch, known.next_sequence, known.recent]
            for key, known in self.producers.items()
        ]
        return json.dumps([self.next_number, list(self.ends.items()), producers]).encode()

    @classmethod
    def decode(cls, content: bytes) -> StripeState:
        """Return the state in a home marker."""
        next_number, ends, producers = json.loads(content)
        return cls(
            next_number,
            dict(ends),
            {
                (partition, producer_id): ProducerBatches(
                    epoch, next_sequence, tuple((sequence, offset) for sequence, offset in recent)
                )
                for partition, producer_id, epoch, next_sequence, recent in producers
            },
        )


def encode_object(entries: Iterable[Entry]) -> bytes:
    """Return the content of an object."""
    return json.dumps(list(entries)).encode()


def decode_object(content: bytes) -> list[Entry]:
    """Return the entries of an object."""
    return [
        Entry(partition, producer_id, epoch, sequence, tuple(values))
        for partition, producer_id, epoch, sequence, values in json.loads(content)
    ]
