"""Actors that append: unconditionally, at an expected offset, and idempotently."""

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
from spark_log.log import LocalLog, LogAppendInfo
from spark_log.record.producer_append import ProducerAppend, sequence_after
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import Record
from tests.simulation.log.world import World
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_GAP_CHANCE = 0.1
"""Probability that an idempotent writer first tries to leave a gap in its sequence."""

_SKIP_CHANCE = 0.5
"""Probability that a writer with its own producer gives up a failed append."""

_ZOMBIE_CHANCE = 0.8
"""Probability that a fenced writer continues as a zombie."""

_IDLE_CHANCE = 0.15
"""Probability that a writer waits until its producer id has expired, if that is soon enough."""

_LONG_MS = 10 * DELETE_DELAY_MS
"""Longer than most simulations."""


class Writer:
    """Appends new records, and does not retry failed appends."""

    def __init__(self, world: World, name: str) -> None:
        """Return a writer whose records carry its name."""
        self._world = world
        self._name = name
        self._count = 0

    def run(self) -> None:
        """Append until the simulation ends."""
        log = self._world.open_log()
        while not self._world.is_ending:
            if self._count % self._world.profile.burst == 0:
                self._world.rest(self._world.profile.think_ms)
            self._count += 1
            records = draw_records(self._world.scheduler.random, f"{self._name}/{self._count}")
            self._append(log, records)

    def _append(self, log: LocalLog, records: list[Record]) -> None:
        expected_end_offset = self._expected_end_offset(log)
        try:
            info = log.append(split(records, self._world), expected_end_offset=expected_end_offset)
        except UnknownOutcomeError:
            self._world.scheduler.note(f"append {records[0].value!r}: unknown")
        except LogEndOffsetMismatchError as error:
            self._world.scheduler.note(f"append {records[0].value!r}: the end is {error.actual}")
            self._world.true_log.check_refused(records)
        except StorageError as error:
            self._world.scheduler.note(f"append {records[0].value!r}: {error}")
            self._world.true_log.check_refused(records)
        else:
            acknowledge(self._world, records, info, expected_end_offset)

    def _expected_end_offset(self, log: LocalLog) -> int | None:
        return None


class ConditionalWriter(Writer):
    """Appends at the log end offset that it read before, and nowhere else."""

    def _expected_end_offset(self, log: LocalLog) -> int | None:
        while True:
            try:
                return log.observe().log_end_offset
            except StorageError:
                self._world.rest(self._world.profile.think_ms)


@dataclass(slots=True)
class SimulatedProducer:
    """The batches of one idempotent producer, the same for each writer that appends them.

    Attributes:
        producer_id: its id.
        epoch: its epoch.
        first_sequence: the sequence number of its first record.
        seed: determines its records.
    """

    producer_id: int
    epoch: int
    first_sequence: int
    seed: int

    def batches(self) -> Iterator[tuple[int, list[Record]]]:
        """Yield the base sequence and the records of each batch, endlessly."""
        random = Random(self.seed)
        sequence = self.first_sequence
        for number in count():
            records = draw_records(random, f"p{self.producer_id}.{self.epoch}/{number}")
            yield sequence, records
            sequence = sequence_after(sequence, len(records))


class IdempotentWriter:
    """Appends each batch, and retries until it is acknowledged.

    After a crash or a refusal the writer continues with a new producer, or with the next epoch of
    the same one. A writer that shares its producer with others starts again with the first batch
    after a crash.
    """

    def __init__(
        self, world: World, producer: SimulatedProducer | None = None, *, after_ms: float = 0.0
    ) -> None:
        """Return a writer of a shared producer, which begins after a time, or of its own ones."""
        self._after_ms = after_ms
        self._world = world
        self._given = producer
        self._producer = producer
        self._is_zombie = False
        self._begun: set[int] = set()
        self._count = 0

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
        self._count += 1
        if self._count % self._world.profile.burst:
            return
        expiration_ms = self._world.profile.expiration_ms
        if expiration_ms < _LONG_MS and self._world.scheduler.random.random() < _IDLE_CHANCE:
            self._world.scheduler.pass_time(expiration_ms)
        self._world.rest(self._world.profile.think_ms)

    def _next_producer(self, random: Random) -> SimulatedProducer:
        before = self._producer
        if before is not None and random.random() < 0.5:
            return SimulatedProducer(
                before.producer_id, before.epoch + 1, 0, random.getrandbits(32)
            )
        first = random.choice((0, 0, 2**31 - 3))
        return SimulatedProducer(self._world.next_producer_id(), 0, first, random.getrandbits(32))

    def _append(self, log: LocalLog, base_sequence: int, records: list[Record]) -> bool:
        """Append one batch; return whether the writer continues with this producer."""
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
                # A put whose answer was lost may still take effect, as it may after a fencing: it
                # was allowed when it was sent, if the producer had expired. A later merge that
                # shows a newer last batch of the producer does not revoke it.
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

    def _leave_a_gap(self, log: LocalLog, append: ProducerAppend) -> None:
        """Append with a sequence number after the next one; the log must refuse it.

        The log may accept it if the producer has expired, which the model checks.
        """
        if append.producer_id not in self._world.true_log.producers:
            return  # an unknown producer may begin with any sequence number
        # The step makes the number unique: an accepted number would be a repeat.
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
    world: World, records: list[Record], info: LogAppendInfo, expected_end_offset: int | None = None
) -> None:
    """Check an acknowledgement against the model."""
    world.scheduler.note(
        f"append {records[0].value!r}: at {info.base_offset} to {info.last_offset}"
    )
    world.true_log.check_appended(records, info.base_offset, info.last_offset, expected_end_offset)


def draw_records(random: Random, name: str) -> list[Record]:
    """Return a few new records, with timestamps out of order and with duplicates."""
    return [
        Record(f"{name}.{number}".encode(), START_US + random.randrange(40))
        for number in range(random.choice((1, 1, 1, 2, 3, 9)))
    ]


def split(records: list[Record], world: World) -> list[pa.RecordBatch]:
    """Return records as one Arrow record batch, or as two if writers pause after each append."""
    at = world.scheduler.random.randrange(len(records)) if world.profile.burst == 1 else 0
    parts = (records[:at], records[at:])
    return [world.true_log.record_batch(part) for part in parts if part]
