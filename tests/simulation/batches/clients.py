"""Simulated clients: what each of them has sent, and what it may be answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from spark_log.record.producer_append import ProducerAppend, sequence_after

VALUES_PER_BATCH = (1, 1, 2, 3)

MAX_IN_FLIGHT = 3
"""Batches that a client sends before the first is answered (``max.in.flight.requests``)."""


@dataclass(slots=True)
class SentBatch:
    """A batch that a client sends until it is answered.

    Attributes:
        values: the values of its records, which are unique.
        producer: the producer's identity; None of a client that is not idempotent.
        is_answered: whether the client has an answer with offsets, or gives the batch up.
        times_sent: number of times that it was given to a gateway. One of them may have put it.
    """

    values: list[bytes]
    producer: ProducerAppend | None
    is_answered: bool = False
    times_sent: int = 0


@dataclass(slots=True)
class SimulatedClient:
    """One client. Each of its batches may be sent through several gateways at once.

    Attributes:
        name: the beginning of its records' values.
        random: source of its batches.
        producer_id: its producer id; None of a client that is not idempotent.
        epoch: its producer epoch.
        sequence: the sequence number after its last batch.
        window: the batches that it waits for, in order.
        numbers: numbers of its batches.
    """

    name: str
    random: Random
    producer_id: int | None
    epoch: int = 0
    sequence: int = 0
    window: list[SentBatch] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    def in_flight(self) -> list[SentBatch]:
        """Return the batches that it waits for, some of which may be new.

        A client that is not idempotent sends each batch once: it would be in the log twice.
        """
        if self.producer_id is None:
            return [self._next_batch()]
        self.window = [batch for batch in self.window if not batch.is_answered]
        wanted = self.random.randint(1, MAX_IN_FLIGHT)
        while len(self.window) < wanted:
            self.window.append(self._next_batch())
        return self.window[:wanted]

    def begin_epoch(self) -> None:
        """Give up what is not answered, and begin a newer epoch (``InitProducerId``)."""
        for batch in self.window:
            batch.is_answered = True
        self.window, self.sequence = [], 0
        self.epoch += 1

    def batch_after_gap(self) -> SentBatch:
        """Return a batch that leaves a gap in the sequence: nobody may acknowledge it."""
        assert self.producer_id is not None
        sequence = sequence_after(self.sequence, 1000 + next(self.numbers))
        producer = ProducerAppend(self.producer_id, self.epoch, sequence)
        return SentBatch([f"gap {self.name}/{next(self.numbers)}".encode()], producer)

    def _next_batch(self) -> SentBatch:
        number = next(self.numbers)
        size = self.random.choice(VALUES_PER_BATCH)
        values = [f"{self.name}.{self.epoch}/{number}.{each}".encode() for each in range(size)]
        if self.producer_id is None:
            return SentBatch(values, None)
        producer = ProducerAppend(self.producer_id, self.epoch, self.sequence)
        self.sequence = sequence_after(self.sequence, size)
        return SentBatch(values, producer)


def draw_group(
    random: Random, clients: list[SimulatedClient], gap_chance: float
) -> list[SentBatch]:
    """Return the batches that wait for a gateway: of some clients, each client's in its order.

    A client that has lost its connection may have sent a batch a second time, through the same
    gateway.

    Args:
        random: the source of chance.
        clients: all clients.
        gap_chance: probability that an idempotent client's batch follows a batch that is missing.
    """
    group: list[SentBatch] = []
    for client in random.sample(clients, random.randint(1, len(clients))):
        if client.producer_id is not None and random.random() < gap_chance:
            group.append(client.batch_after_gap())
            continue
        in_flight = client.in_flight()
        group += in_flight
        if client.producer_id is not None and random.random() < 0.1:
            group.append(random.choice(in_flight))
    for batch in group:
        batch.times_sent += 1
    return group
