"""Actors that read: in sequence, and at random offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log import LocalLog
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import records_of
from tests.simulation.log.simulated_fetcher import SimulatedFetcher
from tests.simulation.log.world import World
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError


class Follower:
    """Reads in sequence as a consumer does, and must see every record."""

    def __init__(self, world: World) -> None:
        """Return an actor of a world."""
        self._world = world

    def run(self) -> None:
        """Read until the simulation ends and everything is read."""
        world, true_log = self._world, self._world.true_log
        start = world.scheduler.random.choice((true_log.start, true_log.end))
        fetcher = SimulatedFetcher(world, start)
        while not (world.is_ending and fetcher.position == true_log.end):
            self._poll(fetcher)
            world.rest(world.profile.think_ms)

    def _poll(self, fetcher: SimulatedFetcher) -> None:
        scheduler, true_log = self._world.scheduler, self._world.true_log
        position = fetcher.position
        try:
            rows = fetcher.poll(scheduler.random.choice((0, 0, DELETE_DELAY_MS)))
        except OffsetOutOfRangeError as error:
            scheduler.note(f"poll {position}: goes on at {error.log_start_offset}")
            fetcher.seek(error.log_start_offset)
            return
        records = records_of(rows, position)
        scheduler.note(f"poll {position}: {len(records)} records")
        if records:
            true_log.check_read(position, records, true_log.now)
        if fetcher.position != position + len(records):
            raise ViolationError(f"a reader was given {len(records)} and is at {fetcher.position}")


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
            with only_faults():
                ask(log)
            self._world.rest(self._world.profile.think_ms)

    def _observe(self, log: LocalLog) -> None:
        since = self._world.true_log.now
        view = log.observe()
        self._world.scheduler.note(f"observe: {view.log_start_offset} to {view.log_end_offset}")
        self._world.true_log.check_extent(view.log_start_offset, view.log_end_offset, since)

    def _look_up_time(self, log: LocalLog) -> None:
        since = self._world.true_log.now
        timestamp_us = START_US + self._world.scheduler.random.randrange(42)
        found = log.offset_for_time(timestamp_us)
        self._world.scheduler.note(f"offset for time {timestamp_us - START_US}: {found}")
        self._world.true_log.check_time_lookup(timestamp_us, found, since)

    def _look_up_offset(self, log: LocalLog) -> None:
        true_log = self._world.true_log
        since = true_log.now
        offset = self._world.scheduler.random.randrange(true_log.start, true_log.end + 2)
        try:
            records = records_of(log.scan(offset), offset)
        except OffsetOutOfRangeError:
            self._world.scheduler.note(f"scan {offset}: out of range")
            true_log.check_out_of_range(offset, since)
        else:
            self._world.scheduler.note(f"scan {offset}: {len(records)} records")
            true_log.check_read(offset, records, since)


@contextmanager
def only_faults() -> Iterator[None]:
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
