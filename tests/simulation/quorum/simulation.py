"""The simulation of a quorum of roots."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from spark_log.storage.quorum import Membership
from spark_log.storage.quorum.founding import found_quorum
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.quorum.actors import Allocator, NameReader, Proposer, QuorumOperator
from tests.simulation.quorum.profile import QuorumProfile, draw_quorum_profile
from tests.simulation.quorum.world import QuorumWorld, seeded
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation


class QuorumSimulation(Simulation):
    """Proposers, readers and allocators of a quorum of roots, and an operator who changes it."""

    MAX_STEPS_TO_END: ClassVar[int] = 60_000
    profile: QuorumProfile
    world: QuorumWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of one without a safety rule."""
        profile = draw_quorum_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        self.world = QuorumWorld(self.scheduler, SimulatedClock(self.scheduler), profile)
        self.world.impatience = profile.impatience
        self.patches = (*seeded(self.scheduler, profile.haste), *variant.patches)

    @property
    def records(self) -> int:
        """Number of names that have content."""
        return len(self.world.truth.contents)

    def spawn_actors(self) -> None:
        """Found the quorum, and make the actors that the profile has."""
        world, scheduler, profile = self.world, self.scheduler, self.profile
        found(world)
        for number in range(profile.proposers):
            scheduler.spawn_mortal(f"proposer {number}", Proposer(world, f"p{number}").run)
        for number in range(profile.readers):
            scheduler.spawn_mortal(f"reader {number}", NameReader(world).run)
        for number in range(profile.allocators):
            scheduler.spawn_mortal(f"allocator {number}", Allocator(world).run)
        if profile.has_operator:
            scheduler.spawn("operator", QuorumOperator(world).run, is_mortal=False)

    def check_end(self) -> None:
        """Check that a new process sees all that was acknowledged, with its bytes."""
        world = self.world
        store = world.open_store()
        for log in range(world.profile.names):
            NameReader(world).list(store, f"log-{log}")
        for path in sorted(world.truth.acknowledged):
            world.truth.check_shown(path, store.open_buffer(path).to_pybytes())


def found(world: QuorumWorld) -> Membership:
    """Create the quorum on empty roots."""
    stores = {}
    for number in range(world.profile.roots):
        url = world.root(number)
        stores[url] = world.roots[url].files
    return found_quorum(stores)
