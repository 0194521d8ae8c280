"""The simulation of a replicated partition."""

from __future__ import annotations

from random import Random

from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.replication.clients import (
    Follower,
    IdempotentWriter,
    LeaderWriter,
    PlainWriter,
    Scanner,
    read_all,
)
from tests.simulation.replication.controllers import (
    Controller,
    Outages,
    ReplicaCleaner,
    ReplicaRetention,
)
from tests.simulation.replication.profile import ReplicationProfile, draw_replication_profile
from tests.simulation.replication.world import (
    ReplicationWorld,
    create_partition,
    create_world,
    small_replication,
)
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.wall_clocks import WallClocks


class ReplicationSimulation(Simulation):
    """Clients, controllers and cleaners of a replicated partition whose brokers fail."""

    profile: ReplicationProfile
    world: ReplicationWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of one without a safety rule."""
        profile = draw_replication_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        self.world = create_world(self.scheduler, clock, storage_clock, profile, seed)
        self.patches = (*small_replication(self.world), *variant.patches)

    @property
    def records(self) -> int:
        """Number of acknowledged records."""
        return self.world.truth.appended

    def spawn_actors(self) -> None:
        """Create the partition, and make the actors that the profile has."""
        world = self.world
        create_partition(world)
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
            spawn(f"retention {number}", ReplicaRetention(world).run)
        for number in range(profile.outages):
            world.scheduler.spawn(f"outages {number}", Outages(world).run, is_mortal=False)
        world.set_faults(self.faults)

    def settle(self) -> None:
        """Run to the end, and let one more controller work on late copies of files."""
        self.run_to_end()
        end = Controller(self.world)
        self.scheduler.spawn("controller of the end", end.run, is_mortal=False)
        self.run_to_end()

    def check_end(self) -> None:
        """Check that all acknowledged records can be read."""
        self.world.truth.check_end()
        read_all(self.world)
