"""The simulation of one group of Kafka's clients that several gateways coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from spark_log.gateway.groups import group_coordinators
from tests.simulation.gateway_groups.gateways import ClassicClient, ClassicGateway
from tests.simulation.gateway_groups.rules import GATEWAY_GROUP_SOUND, GatewayGroupVariant
from tests.simulation.gateway_groups.world import (
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GatewayGroupProfile,
    GatewayGroupWorld,
    TrueClassicGroup,
    draw_gateway_group_profile,
)
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError

_CHECK_MS = 400
_SETTLED_WITHIN_MS = 30 * REBALANCE_MS
_QUIET_MS = 2 * SESSION_MS


class GatewayGroupSimulation(Simulation):
    """Clients of one group, and gateways that crash, pause, and each think that they lead it."""

    profile: GatewayGroupProfile
    world: GatewayGroupWorld

    def __init__(self, seed: int, variant: GatewayGroupVariant = GATEWAY_GROUP_SOUND) -> None:
        """Return a simulation of the shipped group, or of one without a safety rule."""
        profile = draw_gateway_group_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        clock = SimulatedClock(self.scheduler)
        disk = SimulatedDisk(clock)
        truth = TrueClassicGroup(disk, clock)
        truth.note = self.scheduler.note
        truth.set_topic("topic", TOPIC)
        store = SimulatedStore(disk, self.scheduler, truth, profile.faults)
        offsets = variant.offsets(
            self.scheduler, truth, store, profile.slow_offsets, profile.lost_fences
        )
        self.world = GatewayGroupWorld(
            self.scheduler, clock, store, truth, profile, offsets, variant.group, profile.network
        )
        self.clients: list[ClassicClient] = []
        self.patches = ((group_coordinators, "CHECK_INTERVAL_MS", _CHECK_MS), *variant.patches)

    @property
    def records(self) -> int:
        """The group's last generation."""
        return self.world.truth.group.generation

    def spawn_actors(self) -> None:
        """Make the gateways and the members that the profile has."""
        world, spawn = self.world, self.scheduler.spawn_mortal
        gateways = [ClassicGateway(world, number) for number in range(world.profile.gateways)]
        for gateway in gateways:
            spawn(f"gateway{gateway.number}", gateway.run)
        for number in range(world.profile.members + world.profile.statics):
            is_static = number >= world.profile.members
            name = f"{'s' if is_static else 'm'}{number}"
            client = ClassicClient(world, gateways, name, name if is_static else None)
            self.clients.append(client)
            spawn(name, client.run)
        self.scheduler.spawn("mover", self._move, is_mortal=False)

    def _move(self) -> None:
        """Send the clients from one gateway to another."""
        world = self.world
        while not world.is_ending:
            world.rest(world.profile.move_ms)
            if not world.is_ending:
                world.preferred = self.scheduler.random.randrange(world.profile.gateways)

    def settle(self) -> None:
        """Run until the clients have all partitions, then until all actors have ended."""
        world, scheduler = self.world, self.scheduler
        until_ms = scheduler.now_ms + _SETTLED_WITHIN_MS
        quiet_ms, generation = scheduler.now_ms, -1

        def is_settled() -> bool:
            nonlocal quiet_ms, generation
            if world.truth.group.generation != generation or next(self._problems(), ""):
                generation, quiet_ms = world.truth.group.generation, scheduler.now_ms
            return scheduler.now_ms - quiet_ms > _QUIET_MS or scheduler.now_ms > until_ms

        scheduler.run(is_settled)
        if problem := next(self._problems(), ""):
            raise ViolationError(f"{_SETTLED_WITHIN_MS} ms after faults ended: {problem}")
        world.is_over = True
        scheduler.run(lambda: False)
        self.check_all_ended()

    def check_end(self) -> None:
        """Check nothing more: `settle` has seen the group as it has to be."""

    def _problems(self) -> Iterator[str]:
        group = self.world.truth.group
        if group.state != "Stable":
            yield f"the group is {group.state}"
        found = {each.member_id for each in self.clients}
        if group.members.keys() != found:
            yield f"the group is {sorted(group.members)}, the clients are {sorted(found)}"
            return
        for each in self.clients:
            if each.generation != group.generation:
                yield f"{each.member_id} is in generation {each.generation}"
            elif set(each.reading) != group.members[each.member_id].owned:
                yield f"{each.member_id} reads {sorted(each.reading)}"
