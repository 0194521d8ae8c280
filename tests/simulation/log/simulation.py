"""The simulation of a partition log."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.maintenance import Vandal
from tests.simulation.log.profile import Profile, draw_log_profile
from tests.simulation.log.readers import Follower, Seeker
from tests.simulation.log.records import records_of
from tests.simulation.log.rules import SOUND, Variant
from tests.simulation.log.small_numbers import small_numbers
from tests.simulation.log.true_log import TrueLog
from tests.simulation.log.world import World
from tests.simulation.log.writers import (
    ConditionalWriter,
    IdempotentWriter,
    SimulatedProducer,
    Writer,
)
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import RangedSimulatedStore, SimulatedDisk, SimulatedStore
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks


class LogSimulation(Simulation):
    """Writers, readers, mergers and cleaners of one partition's log."""

    MAX_STEPS_TO_END: ClassVar[int] = 5000
    draw_profile = staticmethod(draw_log_profile)
    true_log_class: ClassVar[type[TrueLog]] = TrueLog
    world: World

    def __init__(self, seed: int, variant: Variant = SOUND) -> None:
        """Return a simulation of the shipped log, or of one without a safety rule."""
        profile = self.draw_profile(Random(seed))
        super().__init__(seed, profile, profile, profile.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        disk = SimulatedDisk(storage_clock)
        true_log = self.true_log_class(
            disk, storage_clock, profile.expiration_ms, _retention_of(profile)
        )
        store_class = RangedSimulatedStore if profile.range_bytes else SimulatedStore
        store = store_class(disk, self.scheduler, true_log, profile)
        self.variant = variant
        self.world = World(self.scheduler, clock, store, true_log, profile, variant.log)
        self.patches = (*small_numbers(profile), *variant.patches)

    @property
    def records(self) -> int:
        """Number of records that were appended."""
        return len(self.world.true_log.records)

    def spawn_actors(self) -> None:
        world, variant = self.world, self.variant
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

    def check_end(self) -> None:
        """Check what a new handle reads of the whole log."""
        world = self.world
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


def _retention_of(profile: Profile) -> int | None:
    """Return ``retention.ms``; None if records are deleted for other reasons, too."""
    return None if profile.retentions or profile.retention_bytes >= 0 else profile.retention_ms
