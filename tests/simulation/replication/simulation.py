"""Runs one simulation of a replicated partition; a broken guarantee is an error."""

from __future__ import annotations

from random import Random

from tests.simulation.log.simulation import SimulationResult, report_failures
from tests.simulation.log.true_log import ViolationError
from tests.simulation.patches import PatchVariant, patched
from tests.simulation.replication.clients import (
    Follower,
    IdempotentWriter,
    LeaderWriter,
    PlainWriter,
    Scanner,
    read_all,
)
from tests.simulation.replication.controllers import Controller, Outages, ReplicaCleaner, Retention
from tests.simulation.replication.profile import draw_replication_profile
from tests.simulation.replication.rules import REPLICATION_SOUND
from tests.simulation.replication.world import (
    ReplicationWorld,
    create_partition,
    create_world,
    small_replication,
)
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.wall_clocks import WallClocks

_MAX_STEPS_TO_END = 20_000


def simulate_replication(seed: int, variant: PatchVariant = REPLICATION_SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped code, or without a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_replication_profile(Random(seed))
    scheduler = Scheduler(seed)
    storage_clock, clock = SimulatedClock(scheduler), WallClocks(scheduler, seed)
    world = create_world(scheduler, clock, storage_clock, profile, seed)
    with (
        patched(*small_replication(world), *variant.patches),
        report_failures(seed, profile, scheduler),
    ):
        create_partition(world)
        _spawn_all(world)
        _run(world)
    return SimulationResult(scheduler.steps, world.truth.appended, scheduler.trace)


def _spawn_all(world: ReplicationWorld) -> None:
    profile, spawn = world.profile, world.scheduler.spawn_mortal
    for number in range(profile.writers):
        spawn(f"writer {number}", IdempotentWriter(world, f"w{number}").run)
    for number in range(profile.leader_writers):
        spawn(f"leader writer {number}", LeaderWriter(world, f"l{number}").run)
    for number in range(profile.plain_writers):
        spawn(f"plain {number}", PlainWriter(world, f"p{number}").run)
    for number in range(profile.followers):
        spawn(f"follower {number}", Follower(world).run)
    for number in range(profile.scanners):
        spawn(f"scanner {number}", Scanner(world).run)
    for number in range(profile.controllers):
        spawn(f"controller {number}", Controller(world).run)
    for number in range(profile.faults.cleaners):
        spawn(f"cleaner {number}", ReplicaCleaner(world).run)
    for number in range(profile.retentions):
        spawn(f"retention {number}", Retention(world).run)
    for number in range(profile.outages):
        world.scheduler.spawn(f"outages {number}", Outages(world).run, is_mortal=False)


def _run(world: ReplicationWorld) -> None:
    scheduler = world.scheduler
    scheduler.crash_chance = world.profile.faults.crash
    world.set_faults(world.profile.faults)
    scheduler.run(lambda: scheduler.steps >= world.profile.steps)
    scheduler.note("--- faults end ---")
    world.end_faults()
    _run_to_end(scheduler)
    # A put that was delivered late may have come after the last round of the controllers.
    scheduler.spawn("controller of the end", Controller(world).run, is_mortal=False)
    _run_to_end(scheduler)
    world.truth.check_end()
    read_all(world)


def _run_to_end(scheduler: Scheduler) -> None:
    until = scheduler.steps + _MAX_STEPS_TO_END
    scheduler.run(lambda: scheduler.steps >= until)
    for actor in scheduler.actors:
        if not actor.is_done:
            raise ViolationError(f"{actor.name} does not come to an end")
