"""The simulation of a consumer group."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.coordinator.group_support import unowned
from tests.simulation.groups.members import SimulatedMember, TopicChanger
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS, GroupProfile, draw_group_profile
from tests.simulation.groups.rules import GROUP_SOUND, GroupVariant
from tests.simulation.groups.true_group import TrueGroup
from tests.simulation.groups.world import GroupWorld
from tests.simulation.log.wrong_clocks import WrongClock
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError

_SETTLED_WITHIN_MS = 26 * SESSION_TIMEOUT_MS
"""Maximum time after the faults until live members own all partitions: paused members continue
within four delete delays, dead ones expire within two session timeouts, revoked partitions are
released at the next poll, and a new group waits for its members for up to two session timeouts.
Seed 5035 takes 21: its members' transactions hold up each rebalance."""

_QUIET_MS = 2 * SESSION_TIMEOUT_MS
"""Time without a change after which the group counts as settled."""


class GroupSimulation(Simulation):
    """The members of one consumer group, and topics that change."""

    profile: GroupProfile
    world: GroupWorld

    def __init__(self, seed: int, variant: GroupVariant = GROUP_SOUND) -> None:
        """Return a simulation of the shipped group, or of one without a safety rule."""
        profile = draw_group_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        clock = WrongClock(self.scheduler, seed, profile.wrong_clocks)
        storage_clock = SimulatedClock(self.scheduler)
        disk = SimulatedDisk(storage_clock)
        truth = TrueGroup(disk, storage_clock)
        store = SimulatedStore(disk, self.scheduler, truth, profile.faults)
        self.world = GroupWorld(
            self.scheduler,
            clock,
            store,
            truth,
            profile,
            variant.offsets(self.scheduler, truth, store, profile.slow_offsets),
            variant.log,
            variant.coordinator,
            variant.commits,
            variant.transactions,
        )
        self.members: list[SimulatedMember] = []
        self.patches = variant.patches

    @property
    def records(self) -> int:
        """The group's last generation."""
        return self.world.truth.group.generation

    def spawn_actors(self) -> None:
        """Make the topics and the members that the profile has."""
        world = self.world
        profile = world.profile
        members = self.members
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

    def settle(self) -> None:
        """Run until the living members own all partitions, then until all have ended."""
        world, scheduler, members = self.world, self.scheduler, self.members
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
                f"{_SETTLED_WITHIN_MS} ms after faults ended: "
                f"{problem or 'the group keeps changing'}"
            )
        world.is_over = True
        scheduler.run(lambda: False)
        self.check_all_ended()

    def check_end(self) -> None:
        """Check nothing more: `settle` has seen the group as it has to be."""


def _unsettled(world: GroupWorld, members: list[SimulatedMember]) -> str:
    """Return the problem of a group that should be settled; empty if there is none."""
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
    if missing := unowned(group):
        yield f"nobody has {missing}"
    for member_id, each in living.items():
        read = {partition for _, partition in each.reading}
        if read != group.members[member_id].owned:
            yield f"{member_id} reads {sorted(read)}"
