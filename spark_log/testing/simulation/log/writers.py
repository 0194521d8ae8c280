"""Actors that append: at will, at an offset that they expect, and idempotently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random

import pyarrow as pa

from spark_log.errors import (
    InvalidProducerEpochError,
    LogEndOffsetMismatchError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo, PartitionLog
from spark_log.log.append.producer_state import ProducerAppend, sequence_after
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS
from spark_log.testing.simulation.log.true_log import Record, ViolationError
from spark_log.testing.simulation.log.world import World
from spark_log.testing.simulation.scheduler import START_US

_GAP_CHANCE = 0.1
"""How often an idempotent writer tries whether it may leave a gap."""

_SKIP_CHANCE = 0.5
"""How often one that has its producer to itself gives up an append that failed, and goes on."""

_ZOMBIE_CHANCE = 0.8
"""How often one that was fenced goes on nevertheless."""

_IDLE_CHANCE = 0.15
"""How often one waits until it has expired, where that does not take ages."""

_LONG_MS = 10 * DELETE_DELAY_MS
"""More than most simulations last."""


class Writer:
    """Appends new records. What is not acknowledged it does not send again."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._count = 0

    def run(self) -> None:
        """Append until the simulation ends."""
        log = self._world.open_log()
        while not self._world.is_ending:
            self._world.rest(self._world.profile.think_ms)
            self._count += 1
            records = draw_records(self._world.scheduler.random, f"{self._name}/{self._count}")
            self._append(log, records)

    def _append(self, log: PartitionLog, records: list[Record]) -> None:
        expected_leo = self._expected_leo(log)
        try:
            info = log.append(split(records, self._world), expected_leo=expected_leo)
        except UnknownOutcomeError:
            self._world.scheduler.note(f"append {records[0].value!r}: unknown")
        except LogEndOffsetMismatchError as error:
            self._world.scheduler.note(f"append {records[0].value!r}: the end is {error.actual}")
            self._world.true_log.check_refused(records)
        except StorageError as error:
            self._world.scheduler.note(f"append {records[0].value!r}: {error}")
            self._world.true_log.check_refused(records)
        else:
            acknowledge(self._world, records, info, expected_leo)

    def _expected_leo(self, log: PartitionLog) -> int | None:
        return None


class ConditionalWriter(Writer):
    """Decides by the whole log, and appends only at the end that it decided on."""

    def _expected_leo(self, log: PartitionLog) -> int | None:
        while True:
            try:
                return log.log_end_offset()
            except StorageError:
                self._world.rest(self._world.profile.think_ms)


@dataclass(slots=True)
class Producer:
    """What one idempotent producer has to append, the same for everyone who appends it.

    Attributes:
        producer_id: its id.
        epoch: its epoch.
        first_sequence: of its first record.
        seed: of its records.
    """

    producer_id: int
    epoch: int
    first_sequence: int
    seed: int

    def batches(self) -> Iterator[tuple[int, list[Record]]]:
        """Yield base sequences and records, without end."""
        random = Random(self.seed)
        sequence = self.first_sequence
        for number in count():
            records = draw_records(random, f"p{self.producer_id}.{self.epoch}/{number}")
            yield sequence, records
            sequence = sequence_after(sequence, len(records))


class IdempotentWriter:
    """Appends each batch, again and again, until it knows that it is in the log.

    After a crash, or when it is refused, it goes on as a new producer, or as the next epoch of the
    same one. One whose producer others have too begins again with its first batch after a crash.
    """

    def __init__(
        self, world: World, producer: Producer | None = None, *, after_ms: float = 0.0
    ) -> None:
        """Append what a producer has that others have too, after some time; or one's own."""
        self._after_ms = after_ms
        self._world = world
        self._given = producer
        self._producer = producer
        self._is_zombie = False
        self._begun: set[int] = set()

    def run(self) -> None:
        """Append until the simulation ends, or this producer is fenced."""
        random = self._world.scheduler.random
        log = self._world.open_log()
        self._world.scheduler.pass_time(self._after_ms)
        while not self._world.is_ending:
            if self._given is None:
                self._producer = self._next_producer(random)
            assert self._producer is not None
            for base_sequence, records in self._producer.batches():
                self._think()
                if self._world.is_ending or not self._append(log, base_sequence, records):
                    break
            if self._given is not None:
                return

    def _think(self) -> None:
        expiration_ms = self._world.profile.expiration_ms
        if expiration_ms < _LONG_MS and self._world.scheduler.random.random() < _IDLE_CHANCE:
            self._world.scheduler.pass_time(expiration_ms)
        self._world.rest(self._world.profile.think_ms)

    def _next_producer(self, random: Random) -> Producer:
        before = self._producer
        if before is not None and random.random() < 0.5:
            return Producer(before.producer_id, before.epoch + 1, 0, random.getrandbits(32))
        first = random.choice((0, 0, 2**31 - 3))
        return Producer(self._world.next_producer_id(), 0, first, random.getrandbits(32))

    def _append(self, log: PartitionLog, base_sequence: int, records: list[Record]) -> bool:
        """Append one batch, and return whether this producer may go on."""
        producer = self._producer
        assert producer is not None
        append = ProducerAppend(producer.producer_id, producer.epoch, base_sequence)
        scheduler, true_log = self._world.scheduler, self._world.true_log
        if scheduler.random.random() < (0.5 if self._is_zombie else _GAP_CHANCE):
            self._leave_a_gap(log, append)
        is_own = self._given is None
        may_be_there = not is_own and base_sequence in self._begun  # before a crash
        self._begun.add(base_sequence)
        while True:
            try:
                info = log.append(split(records, self._world), producer=append)
            except InvalidProducerEpochError as error:
                scheduler.note(f"append {records[0].value!r}: fenced by {error.current_epoch}")
                true_log.check_fenced(append)
                if not may_be_there:
                    true_log.check_refused(records, is_final=is_own)
                self._is_zombie = not is_own and scheduler.random.random() < _ZOMBIE_CHANCE
                return self._is_zombie
            except OutOfOrderSequenceError as error:
                scheduler.note(f"append {records[0].value!r}: {error.expected_sequence} is next")
                # A put whose answer was lost may take effect later, as it may after a fencing: it
                # was allowed when it was sent, if the producer had expired, and a merge that has
                # shown its last batch to be newer since then does not take it back.
                is_final = is_own and not may_be_there
                true_log.check_out_of_order(append, records, is_final=is_final)
                return not is_own
            except StorageError as error:
                scheduler.note(f"append {records[0].value!r}: {error}")
                may_be_there = may_be_there or isinstance(error, UnknownOutcomeError)
                if is_own and scheduler.random.random() < _SKIP_CHANCE:
                    scheduler.note(f"append {records[0].value!r}: is given up")
                    if not may_be_there:
                        true_log.check_refused(records)
                    return True
                self._world.rest(self._world.profile.latency_ms)
            else:
                acknowledge(self._world, records, info)
                if 0 < info.base_offset == true_log.producers[append.producer_id].known_from:
                    scheduler.note(f"producer {append.producer_id} had expired")
                return True

    def _leave_a_gap(self, log: PartitionLog, append: ProducerAppend) -> None:
        """Append with a later sequence number than the next, which has to be refused.

        Taken when the producer has expired: whether it had, the true log sees.
        """
        if append.producer_id not in self._world.true_log.producers:
            return  # of a producer that is not known, every sequence number is taken
        # By the step it is another one than any that was taken, which it would be a repeat of.
        step = self._world.scheduler.steps
        later = replace(append, base_sequence=sequence_after(append.base_sequence, 1000 * step))
        place = f"p{append.producer_id}.{append.producer_epoch}/{append.base_sequence}"
        name = f"gap before {place} in step {step}"
        records = draw_records(self._world.scheduler.random, name)
        true_log = self._world.true_log
        try:
            info = log.append(split(records, self._world), producer=later)
        except (StorageError, OutOfOrderSequenceError, InvalidProducerEpochError) as error:
            self._world.scheduler.note(f"append {records[0].value!r}: {type(error).__name__}")
            if isinstance(error, InvalidProducerEpochError):
                true_log.check_fenced(later)
            if not isinstance(error, UnknownOutcomeError):
                true_log.check_refused(records)
        else:
            acknowledge(self._world, records, info)
            if not true_log.producers[append.producer_id].known_from:
                raise ViolationError(f"{later} was taken, but leaves a gap")


def acknowledge(
    world: World, records: list[Record], info: LogAppendInfo, expected_leo: int | None = None
) -> None:
    """Hold an acknowledgement against the truth."""
    world.scheduler.note(
        f"append {records[0].value!r}: at {info.base_offset} to {info.last_offset}"
    )
    world.true_log.check_appended(records, info.base_offset, info.last_offset, expected_leo)


def draw_records(random: Random, name: str) -> list[Record]:
    """Return a few new records, with timestamps that go back and forth and meet."""
    return [
        Record(f"{name}.{number}".encode(), START_US + random.randrange(40))
        for number in range(random.choice((1, 1, 1, 2, 3, 9)))
    ]


def split(records: list[Record], world: World) -> list[pa.RecordBatch]:
    """Return records as one record batch, or as two."""
    at = world.scheduler.random.randrange(len(records))
    return [record_batch(part) for part in (records[:at], records[at:]) if part]


def record_batch(records: list[Record]) -> pa.RecordBatch:
    """Return records as the log takes them."""
    columns = [
        pa.nulls(len(records), pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.nulls(len(records), HEADERS_TYPE),
        pa.array([record.timestamp_us for record in records], pa.int64()).view(TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
