"""The simulation of one group of the consumer protocol that several gateways coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from spark_log.gateway.groups import consumer_groups
from tests.simulation.consumer_protocol.clients import ConsumerClient
from tests.simulation.consumer_protocol.gateways import ConsumerGateway
from tests.simulation.consumer_protocol.rules import (
    CONSUMER_PROTOCOL_SOUND,
    ConsumerProtocolVariant,
)
from tests.simulation.consumer_protocol.true_group import TrueConsumerGroup
from tests.simulation.consumer_protocol.world import (
    REBALANCE_MS,
    ConsumerProtocolProfile,
    ConsumerProtocolWorld,
    draw_consumer_protocol_profile,
)
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError

_CHECK_MS = 400
_SETTLED_WITHIN_MS = 30 * REBALANCE_MS
_QUIET_MS = 2 * REBALANCE_MS
_MAX_PARTITIONS = 6


class ConsumerProtocolSimulation(Simulation):
    """Clients of one group, and gateways that crash, stand still, and each coordinate it."""

    profile: ConsumerProtocolProfile
    world: ConsumerProtocolWorld

    def __init__(
        self, seed: int, variant: ConsumerProtocolVariant = CONSUMER_PROTOCOL_SOUND
    ) -> None:
        """Return a simulation of the shipped group, or of one without a safety rule."""
        profile = draw_consumer_protocol_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        clock = SimulatedClock(self.scheduler)
        disk = SimulatedDisk(clock)
        truth = TrueConsumerGroup(disk, clock)
        truth.note = self.scheduler.note
        store = SimulatedStore(disk, self.scheduler, truth, profile.faults)
        self.world = ConsumerProtocolWorld(
            self.scheduler,
            clock,
            store,
            truth,
            profile,
            variant.offsets(
                self.scheduler, truth, store, profile.slow_offsets, profile.lost_fences
            ),
            variant.groups,
            variant.group,
            profile.network,
        )
        self.world.set_partitions("t", profile.partitions)
        self.clients: list[ConsumerClient] = []
        self.patches = ((consumer_groups, "CHECK_INTERVAL_MS", _CHECK_MS), *variant.patches)

    @property
    def records(self) -> int:
        """The group's last generation."""
        return self.world.truth.group.generation

    def spawn_actors(self) -> None:
        """Make the gateways and the members that the profile has."""
        world, spawn = self.world, self.scheduler.spawn_mortal
        gateways = [ConsumerGateway(world, number) for number in range(world.profile.gateways)]
        for gateway in gateways:
            spawn(f"gateway{gateway.number}", gateway.run)
        for number in range(world.profile.members + world.profile.statics):
            is_static = number >= world.profile.members
            name = f"{'s' if is_static else 'm'}{number}"
            client = ConsumerClient(world, gateways, name, name if is_static else None)
            self.clients.append(client)
            spawn(name, client.run)
        self.scheduler.spawn("mover", self._move, is_mortal=False)
        self.scheduler.spawn("admin", self._change_topics, is_mortal=False)

    def _move(self) -> None:
        """Send the clients from one gateway to another."""
        world = self.world
        while not world.is_ending:
            world.rest(world.profile.move_ms)
            if not world.is_ending:
                world.preferred = self.scheduler.random.randrange(world.profile.gateways)

    def _change_topics(self) -> None:
        """Add partitions and a topic."""
        world, random = self.world, self.scheduler.random
        while not world.is_ending:
            world.rest(world.profile.topics_ms)
            name = random.choice(("t", "u"))
            present = world.truth.topics.get(name)
            partitions = 1 if present is None else present.partitions + 1
            if not world.is_ending and partitions <= _MAX_PARTITIONS:
                world.set_partitions(name, partitions)
                self.scheduler.note(f"{name} has {partitions} partitions")

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
        found = {each.reader.member_id for each in self.clients}
        if group.members.keys() != found:
            yield f"the group is {sorted(group.members)}, the clients are {sorted(found)}"
            return
        for client in self.clients:
            reader = client.reader
            if reader.reading.keys() != group.members[reader.member_id].owned:
                yield f"{reader.member_id} reads {sorted(reader.reading)}"
        partitions = sum(topic.partitions for topic in self.world.truth.topics.values())
        if len(group.owners) != partitions:
            yield f"{len(group.owners)} of {partitions} partitions have a member"
