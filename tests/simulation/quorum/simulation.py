"""Runs one simulation of a quorum of roots; a broken guarantee is an error."""

from __future__ import annotations

from random import Random

from spark_log.storage.quorum import Membership
from spark_log.storage.quorum.founding import found_quorum
from tests.simulation.log.simulation import SimulationResult, report_failures
from tests.simulation.log.true_log import ViolationError
from tests.simulation.patches import PatchVariant, patched
from tests.simulation.quorum.actors import Allocator, Operator, Proposer, Reader
from tests.simulation.quorum.profile import draw_quorum_profile
from tests.simulation.quorum.world import QUORUM_SOUND, QuorumWorld, seeded
from tests.simulation.scheduler import Scheduler, SimulatedClock

_MAX_STEPS_TO_END = 60_000


def simulate_quorum(seed: int, variant: PatchVariant = QUORUM_SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped code, or what is replaced to leave out a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_quorum_profile(Random(seed))
    scheduler = Scheduler(seed)
    world = QuorumWorld(scheduler, SimulatedClock(scheduler), profile)
    world.impatience = profile.impatience
    with (
        patched(*seeded(scheduler, profile.haste), *variant.patches),
        report_failures(seed, profile, scheduler),
    ):
        _run(world)
    return SimulationResult(scheduler.steps, len(world.truth.contents), scheduler.trace)


def _run(world: QuorumWorld) -> None:
    scheduler, profile = world.scheduler, world.profile
    _found(world)
    for number in range(profile.proposers):
        scheduler.spawn_mortal(f"proposer {number}", Proposer(world, f"p{number}").run)
    for number in range(profile.readers):
        scheduler.spawn_mortal(f"reader {number}", Reader(world).run)
    for number in range(profile.allocators):
        scheduler.spawn_mortal(f"allocator {number}", Allocator(world).run)
    if profile.has_operator:
        scheduler.spawn("operator", Operator(world).run, is_mortal=False)
    scheduler.crash_chance = profile.faults.crash
    scheduler.run(lambda: scheduler.steps >= profile.steps)
    scheduler.note("--- faults end ---")
    scheduler.crash_chance = world.impatience = 0.0
    world.set_faults(profile.faults.without_faults())
    world.is_ending = True
    until = scheduler.steps + _MAX_STEPS_TO_END
    scheduler.run(lambda: scheduler.steps >= until)
    for actor in scheduler.actors:
        if not actor.is_done:
            raise ViolationError(f"{actor.name} does not come to an end")
    _check_end(world)


def _found(world: QuorumWorld) -> Membership:
    stores = {}
    for number in range(world.profile.roots):
        url = world.root(number)
        stores[url] = world.roots[url].files
    return found_quorum(stores)


def _check_end(world: QuorumWorld) -> None:
    """Check that a new process sees all that was acknowledged, with its bytes."""
    store = world.open_store()
    for log in range(world.profile.names):
        Reader(world).list(store, f"log-{log}")
    for path in sorted(world.truth.acknowledged):
        world.truth.check_shown(path, store.open_buffer(path).to_pybytes())
