"""Runs one simulation of a consumer group; a broken guarantee is an error."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import cast

from spark_log.storage import GROUPS_DIRECTORY, TRANSACTIONS_DIRECTORY
from tests.simulation.groups.members import SimulatedMember, TopicChanger
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS, draw_group_profile
from tests.simulation.groups.rules import GROUP_SOUND, GroupVariant
from tests.simulation.groups.true_group import TrueGroup
from tests.simulation.groups.world import GroupWorld
from tests.simulation.log.simulation import SimulationResult, report_failures
from tests.simulation.log.true_log import TrueLog, ViolationError
from tests.simulation.log.wrong_clocks import WrongClock
from tests.simulation.patches import patched
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore

_SETTLED_WITHIN_MS = 26 * SESSION_TIMEOUT_MS
"""Maximum time after the faults until live members own all partitions: paused members continue
within four delete delays, dead ones expire within two session timeouts, revoked partitions are
released at the next poll, and a new group waits for its members for up to two session timeouts.
Seed 5035 takes 21: its members' transactions hold up each rebalance."""

_QUIET_MS = 2 * SESSION_TIMEOUT_MS
"""Time without a change after which the group counts as settled."""


def simulate_group(seed: int, variant: GroupVariant = GROUP_SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped group, or one without a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_group_profile(Random(seed))
    scheduler = Scheduler(seed)
    clock = WrongClock(scheduler, seed, profile.wrong_clocks)
    storage_clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(storage_clock)
    for directory in (GROUPS_DIRECTORY, TRANSACTIONS_DIRECTORY):
        disk.delete_directory(directory)
    truth = TrueGroup(disk, storage_clock)
    store = SimulatedStore(disk, scheduler, cast(TrueLog, truth), profile.faults)
    world = GroupWorld(
        scheduler,
        clock,
        store,
        truth,
        profile,
        variant.offsets(scheduler, truth, store, profile.slow_offsets),
        variant.log,
        variant.coordinator,
        variant.commits,
        variant.transactions,
    )
    with patched(*variant.patches), report_failures(seed, profile, scheduler):
        _run(world, _spawn_all(world))
    return SimulationResult(scheduler.steps, truth.group.generation, scheduler.trace)


def _spawn_all(world: GroupWorld) -> list[SimulatedMember]:
    profile = world.profile
    members: list[SimulatedMember] = []

    spawn = world.scheduler.spawn_mortal

    def member(name: str, instance_id: str | None = None) -> None:
        members.append(SimulatedMember(world, name, instance_id))
        spawn(name, members[-1].run)

    changer = TopicChanger(world)
    for number in range(profile.topics):
        changer.create(f"topic{number}")
    for number in range(profile.members):
        member(f"m{number}")
    for number in range(profile.statics):
        member(f"s{number}", f"i{number}")
    for number in range(profile.twins):
        member(f"left{number}", f"t{number}")
        member(f"right{number}", f"t{number}")
    if profile.topics_change_ms:
        spawn("topics", changer.run)
    return members


def _run(world: GroupWorld, members: list[SimulatedMember]) -> None:
    scheduler, profile = world.scheduler, world.profile
    scheduler.crash_chance = profile.faults.crash
    scheduler.run(lambda: scheduler.steps >= profile.steps)
    scheduler.note("--- faults end ---")
    scheduler.crash_chance = 0.0
    world.store.profile = profile.faults.without_faults()
    world.offsets.slow = 0.0
    world.is_ending = True
    until_ms = scheduler.now_ms + _SETTLED_WITHIN_MS
    quiet_ms, generation = scheduler.now_ms, -1

    def is_settled() -> bool:
        nonlocal quiet_ms, generation
        if world.truth.group.generation != generation or _unsettled(world, members):
            generation, quiet_ms = world.truth.group.generation, scheduler.now_ms
        return scheduler.now_ms - quiet_ms > _QUIET_MS or scheduler.now_ms > until_ms

    scheduler.run(is_settled)
    problem = _unsettled(world, members)
    is_alive = not all(each.is_dead for each in members)
    if problem or (is_alive and scheduler.now_ms - quiet_ms <= _QUIET_MS):
        raise ViolationError(
            f"{_SETTLED_WITHIN_MS} ms after faults ended: {problem or 'the group keeps changing'}"
        )
    world.is_over = True
    scheduler.run(lambda: False)
    for actor in scheduler.actors:
        if not actor.is_done:
            raise ViolationError(f"{actor.name} does not come to an end")


def _unsettled(world: GroupWorld, members: list[SimulatedMember]) -> str:
    """Return what is wrong with a group that should be settled; empty: nothing."""
    if all(each.is_dead for each in members):
        return ""  # no member is left
    return next(_problems(world, members), "")


def _problems(world: GroupWorld, members: list[SimulatedMember]) -> Iterator[str]:
    group = world.truth.group
    living = {
        each.status.member_id: each
        for each in members
        if not each.is_dead and each.is_member and each.status is not None
    }
    if not all(each.is_member or each.is_dead for each in members):
        yield "somebody is no member"
    if group.members.keys() != living.keys():
        yield f"the group is {sorted(group.members)}, the living are {sorted(living)}"
        return
    if group.state == "Reconciling":
        yield "partitions are on their way"
    for name, topic in group.topics.items():
        if world.truth.topics.get(name) != topic:
            yield f"the group does not know {name} as it is"
    unowned = sorted(group.unowned())
    if unowned:
        yield f"nobody has {unowned}"
    for member_id, each in living.items():
        read = {partition for _, partition in each.reading}
        if read != group.members[member_id].owned:
            yield f"{member_id} reads {sorted(read)}"
