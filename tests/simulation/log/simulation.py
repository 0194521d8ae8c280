"""Runs one simulation of a partition log; a broken guarantee is an error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.simulation.log.maintenance import Vandal
from tests.simulation.log.profile import DELETE_DELAY_MS, Profile, draw_profile
from tests.simulation.log.readers import Follower, Seeker
from tests.simulation.log.records import records_of
from tests.simulation.log.rules import SOUND, Variant
from tests.simulation.log.small_numbers import small_numbers
from tests.simulation.log.true_log import TrueLog, ViolationError
from tests.simulation.log.world import World
from tests.simulation.log.writers import (
    ConditionalWriter,
    IdempotentWriter,
    SimulatedProducer,
    Writer,
)
from tests.simulation.patches import patched
from tests.simulation.scheduler import Scheduler, SimulatedClock, TraceEntry
from tests.simulation.store import RangedSimulatedStore, SimulatedDisk, SimulatedStore
from tests.simulation.wall_clocks import WallClocks

_MAX_STEPS_TO_END = 5000
"""Maximum number of steps until all actors end, after the faults have ended."""


class SimulationFailedError(AssertionError):
    """A guarantee did not hold, or an actor failed unexpectedly.

    Attributes:
        seed: the seed that reproduces it.
        profile: the conditions that the seed drew.
        reason: the guarantee that did not hold, or the unexpected error.
        details: the traceback of an unexpected error.
        trace: the events until then.
    """

    def __init__(
        self,
        message: str,
        *,
        seed: int = -1,
        profile: object = None,
        reason: str = "",
        details: str = "",
        trace: Sequence[TraceEntry] = (),
    ) -> None:
        super().__init__(message)
        self.seed = seed
        self.profile = profile
        self.reason = reason
        self.details = details
        self.trace = tuple(trace)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation without a violation.

    Attributes:
        steps: number of steps.
        records: number of records that were appended.
        trace: the events.
    """

    steps: int
    records: int
    trace: Sequence[TraceEntry] = field(repr=False)


def simulate(seed: int, variant: Variant = SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped log, or one without a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_profile(Random(seed))
    scheduler = Scheduler(seed)
    storage_clock, clock = SimulatedClock(scheduler), WallClocks(scheduler, seed)
    disk = SimulatedDisk(storage_clock)
    true_log = TrueLog(disk, storage_clock, profile.expiration_ms, retention_of(profile))
    store_class = RangedSimulatedStore if profile.range_bytes else SimulatedStore
    store = store_class(disk, scheduler, true_log, profile)
    world = World(scheduler, clock, store, true_log, profile, variant.log)
    with (
        patched(*small_numbers(profile), *variant.patches),
        report_failures(seed, profile, scheduler),
    ):
        _spawn_all(world, variant)
        _run(world)
    return SimulationResult(scheduler.steps, len(true_log.records), scheduler.trace)


@contextmanager
def report_failures(seed: int, profile: object, scheduler: Scheduler) -> Iterator[None]:
    """Turn an exception into a failure with seed, profile and trace; end the actors at exit.

    The last context to be entered: actors end while everything is still as the simulation has it.

    Raises:
        SimulationFailedError: the block raised an exception.
    """
    try:
        yield
    except (Exception, ViolationError) as error:
        is_violation = isinstance(error, ViolationError)
        reason = str(error) if is_violation else f"{type(error).__name__}: {error}"
        raise SimulationFailedError(
            f"seed {seed}: {reason}",
            seed=seed,
            profile=profile,
            reason=reason,
            details="" if is_violation else "".join(traceback.format_exception(error)),
            trace=scheduler.trace,
        ) from error
    finally:
        scheduler.close()


class FaultyWorld(Protocol):
    """The world of a simulation in which processes crash and the store fails."""

    is_ending: bool

    @property
    def scheduler(self) -> Scheduler:
        """Runs the actors."""

    @property
    def store(self) -> SimulatedStore:
        """The store of all actors."""


def run_to_end(world: FaultyWorld, faults: Profile, steps: int, max_steps_to_end: int) -> None:
    """Run the actors with faults, then without them until all have ended.

    Args:
        world: the actors' world; ``is_ending`` is set when the faults end.
        faults: conditions of the store and of crashes until then.
        steps: number of steps with faults.
        max_steps_to_end: number of steps after which every actor must have ended.

    Raises:
        ViolationError: an actor does not end.
    """
    scheduler = world.scheduler
    scheduler.crash_chance = faults.crash
    scheduler.run(lambda: scheduler.steps >= steps)
    scheduler.note("--- faults end ---")
    scheduler.crash_chance = 0.0
    world.store.profile = faults.without_faults()
    world.is_ending = True
    until = scheduler.steps + max_steps_to_end
    scheduler.run(lambda: scheduler.steps >= until)
    for actor in scheduler.actors:
        if not actor.is_done:
            raise ViolationError(f"{actor.name} does not come to an end")


def retention_of(profile: Profile) -> int | None:
    """Return ``retention.ms``; None if records are deleted for other reasons, too."""
    return None if profile.retentions or profile.retention_bytes >= 0 else profile.retention_ms


def _spawn_all(world: World, variant: Variant) -> None:
    profile = world.profile
    spawn = world.scheduler.spawn_mortal
    for number in range(profile.writers):
        spawn(f"writer {number}", Writer(world, f"w{number}").run)
    for number in range(profile.conditional_writers):
        spawn(f"conditional {number}", ConditionalWriter(world, f"c{number}").run)
    for number in range(profile.idempotent_writers):
        spawn(f"idempotent {number}", IdempotentWriter(world).run)
    random = world.scheduler.random
    for _ in range(profile.twins):
        producer = SimulatedProducer(world.next_producer_id(), 0, 0, random.getrandbits(32))
        for which in ("left", "right"):
            spawn(f"twin {which}", IdempotentWriter(world, producer).run)
    for _ in range(profile.epoch_pairs):
        old_epoch = SimulatedProducer(world.next_producer_id(), 0, 0, random.getrandbits(32))
        new_epoch = SimulatedProducer(old_epoch.producer_id, 1, 0, old_epoch.seed + 1)
        after_ms = DELETE_DELAY_MS * random.choice((0.1, 0.5, 1))
        spawn("old epoch", IdempotentWriter(world, old_epoch).run)
        spawn("new epoch", IdempotentWriter(world, new_epoch, after_ms=after_ms).run)
    for number in range(profile.followers):
        spawn(f"follower {number}", Follower(world).run)
    for number in range(profile.seekers):
        spawn(f"seeker {number}", Seeker(world).run)
    for number in range(profile.mergers):
        spawn(f"merger {number}", variant.merger(world).run)
    for number in range(profile.retentions):
        spawn(f"retention {number}", variant.retention(world).run)
    for number in range(profile.cleaners):
        spawn(f"cleaner {number}", variant.cleaner(world).run)
    for number in range(profile.vandals):
        spawn(f"vandal {number}", Vandal(world).run)


def _run(world: World) -> None:
    run_to_end(world, world.profile, world.profile.steps, _MAX_STEPS_TO_END)
    _check_end(world)


def _check_end(world: World) -> None:
    """Check what a new handle reads of the whole log."""
    true_log = world.true_log
    log = world.open_log()
    view = log.observe()
    true_log.check_extent(view.log_start_offset, view.log_end_offset, true_log.now)
    records = records_of(log.scan(true_log.start), true_log.start)
    true_log.check_read(true_log.start, records, true_log.now)
    if len(records) != true_log.end - true_log.start:
        raise ViolationError(
            f"{len(records)} records can be read of {true_log.end - true_log.start}"
        )
