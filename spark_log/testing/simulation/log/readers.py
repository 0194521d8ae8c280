"""Actors that read: in sequence, and at random offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log import LogBatch, PartitionLog
from spark_log.log.tail_reader import ProbeInterval, TailReader
from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS
from spark_log.testing.simulation.log.true_log import Record, ViolationError
from spark_log.testing.simulation.log.world import World
from spark_log.testing.simulation.scheduler import START_US

_PROBES = ProbeInterval(DELETE_DELAY_MS / 100, DELETE_DELAY_MS / 10)
"""Some reads wait for new records, and few enough steps are probes."""


class Follower:
    """Reads in sequence, and must see every record."""

    def __init__(self, world: World) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Read until the simulation ends and everything is read."""
        world, true_log = self._world, self._world.true_log
        start = world.scheduler.random.choice((true_log.start, true_log.end))
        reader = TailReader(world.open_log(), start, probes=_PROBES)
        while not (world.is_ending and reader.position == true_log.end):
            with _only_faults():
                self._read_on(reader)
            world.rest(world.profile.think_ms)

    def _read_on(self, reader: TailReader) -> None:
        random, true_log = self._world.scheduler.random, self._world.true_log
        position, since = reader.position, true_log.now
        try:
            batches = reader.fetch(
                max_bytes=random.choice((1, 1000)),
                timeout_ms=random.choice((0, 0, DELETE_DELAY_MS)),
            )
        except OffsetOutOfRangeError as error:
            true_log.check_out_of_range(position, since)
            self._world.scheduler.note(f"fetch {position}: goes on at {error.log_start_offset}")
            reader.position = error.log_start_offset
            return
        records = records_of(batches, position)
        self._world.scheduler.note(f"fetch {position}: {len(records)} records")
        true_log.check_read(position, records, since)
        if reader.position != position + len(records):
            raise ViolationError(f"a reader was given {len(records)} and is at {reader.position}")


class Seeker:
    """Looks up offsets, times and records at random, with a handle of any age."""

    def __init__(self, world: World) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Look up until the simulation ends."""
        random = self._world.scheduler.random
        log = self._world.open_log()
        while not self._world.is_ending:
            ask = random.choice((self._observe, self._look_up_time, self._look_up_offset))
            with _only_faults():
                ask(log)
            self._world.rest(self._world.profile.think_ms)

    def _observe(self, log: PartitionLog) -> None:
        since = self._world.true_log.now
        view = log.observe()
        self._world.scheduler.note(f"observe: {view.log_start_offset} to {view.log_end_offset}")
        self._world.true_log.check_extent(view.log_start_offset, view.log_end_offset, since)

    def _look_up_time(self, log: PartitionLog) -> None:
        since = self._world.true_log.now
        timestamp_us = START_US + self._world.scheduler.random.randrange(42)
        found = log.offset_for_time(timestamp_us)
        self._world.scheduler.note(f"offset for time {timestamp_us - START_US}: {found}")
        self._world.true_log.check_time_lookup(timestamp_us, found, since)

    def _look_up_offset(self, log: PartitionLog) -> None:
        true_log = self._world.true_log
        since = true_log.now
        offset = self._world.scheduler.random.randrange(true_log.start, true_log.end + 2)
        try:
            records = records_of(list(log.scan(offset)), offset)
        except OffsetOutOfRangeError:
            self._world.scheduler.note(f"scan {offset}: out of range")
            true_log.check_out_of_range(offset, since)
        else:
            self._world.scheduler.note(f"scan {offset}: {len(records)} records")
            true_log.check_read(offset, records, since)


@contextmanager
def _only_faults() -> Iterator[None]:
    """Ignore the storage's injected faults; a missing file must never reach a reader.

    Raises:
        ViolationError: a reader got a `NotFoundError`.
    """
    try:
        yield
    except NotFoundError as error:
        raise ViolationError(f"a reader was given an error: {error}") from error
    except StorageError:
        pass


def records_of(batches: list[LogBatch], offset: int) -> list[Record]:
    """Return the records of consecutive batches that begin at an offset.

    The value of a record at an unexpected offset is marked, so that it matches no written record.
    """
    records: list[Record] = []
    for batch in batches:
        for at, value, timestamp_us in zip(
            batch.offsets().tolist(),
            batch.records.column("value").to_pylist(),
            batch.records.column("timestamp").view("int64").to_pylist(),
            strict=True,
        ):
            is_next = at == offset + len(records)
            records.append(Record(value if is_next else b"at %d: " % at + value, timestamp_us))
    return records
