"""The simulation of a compacted log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

from spark_log.log import LocalLog
from tests.simulation.compaction.actors import (
    ChangingCleaner,
    CompactedWorld,
    Compactor,
    StaleCleaner,
    TableFollower,
    TableReader,
    TailMerging,
)
from tests.simulation.compaction.compacted_log import CompactedTruth, ReadTable, keyed_records
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.maintenance import Retention, Vandal
from tests.simulation.log.profile import Profile, draw_profile
from tests.simulation.log.small_numbers import small_numbers
from tests.simulation.log.writers import IdempotentWriter, SimulatedProducer, Writer
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import RangedSimulatedStore, SimulatedDisk, SimulatedStore
from tests.simulation.wall_clocks import WallClocks


@dataclass(frozen=True, slots=True)
class CompactionProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the faults, actors and configs of a log that is not compacted.
        compactors, stale_cleaners, tables: numbers of actors.
        compactor_rest_ms: mean time between two compactions of a compactor.
        delete_retention_ms, segment_bytes, min_compaction_lag_ms: the topic's configs.
        dirty_ratio: the topic's ``min.cleanable.dirty.ratio``.
    """

    faults: Profile
    compactors: int
    stale_cleaners: int
    tables: int
    compactor_rest_ms: float
    delete_retention_ms: int
    segment_bytes: int
    min_compaction_lag_ms: int
    dirty_ratio: float

    def __str__(self) -> str:
        return (
            f"compactors={self.compactors} stale_cleaners={self.stale_cleaners} "
            f"tables={self.tables} compactor_rest_ms={self.compactor_rest_ms:g} "
            f"delete_retention_ms={self.delete_retention_ms} "
            f"segment_bytes={self.segment_bytes} dirty_ratio={self.dirty_ratio:g} {self.faults}"
        )


def draw_compaction_profile(random: Random) -> CompactionProfile:
    """Draw the conditions of a simulation."""
    # More time and less work than in a log that is not compacted: bugs show only after a key was
    # deleted, compacted, and compacted again after the delay, while another actor was late.
    faults = draw_profile(random)
    faults = replace(
        faults,
        latency_ms=DELETE_DELAY_MS / random.choice((100, 200) if faults.range_bytes else (40, 200)),
        writers=random.choice((0, 1)),
        idempotent_writers=random.choice((0, 1, 1)),
        twins=random.choice((0, 0, 0, 1)),
        followers=random.choice((0, 1, 2)),
        mergers=random.choice((0, 1, 1, 2)),
        retentions=random.choice((0, 0, 0, 1, 2)),
        vandals=random.choice((0, 0, 0, 1)),
        think_ms=DELETE_DELAY_MS * random.choice((0.3, 1, 2)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.5, 1, 3)),
        tail_segments=random.choice((0, 3, 8)),
        steps=random.choice((500, 1000, 1500)),
        slow_listing=random.choice((0.0, 0.0, 0.2)),
    )
    return CompactionProfile(
        faults=faults,
        compactors=random.choice((1, 2, 2, 3)),
        stale_cleaners=random.choice((0, 0, 1)),
        tables=random.choice((0, 1, 2)),
        compactor_rest_ms=DELETE_DELAY_MS * random.choice((0.05, 0.4, 0.4)),
        delete_retention_ms=int(random.choice((0, 0, 0.5, 1.5, 4)) * DELETE_DELAY_MS),
        segment_bytes=random.choice((2000, 4000, 16_000, 2**30)),
        min_compaction_lag_ms=random.choice((0, 0, 1)),
        dirty_ratio=random.choice((0.0, 0.5)),
    )


class CompactionSimulation(Simulation):
    """Writers, readers, compactors and cleaners of one compacted log."""

    MAX_STEPS_TO_END: ClassVar[int] = 5000
    profile: CompactionProfile
    world: CompactedWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped log, or of one without a safety rule."""
        profile = draw_compaction_profile(Random(seed))
        faults = profile.faults
        super().__init__(seed, profile, faults, faults.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        disk = SimulatedDisk(storage_clock)
        truth = CompactedTruth(
            disk, storage_clock, faults.expiration_ms, profile.delete_retention_ms
        )
        store_class = RangedSimulatedStore if faults.range_bytes else SimulatedStore
        self.world = CompactedWorld(
            self.scheduler,
            clock,
            store_class(disk, self.scheduler, truth, faults),
            truth,
            faults,
            LocalLog,
            settings=_settings(profile),
        )
        self.patches = (*small_numbers(faults), *variant.patches)

    @property
    def records(self) -> int:
        """Number of records that were appended."""
        return len(self.world.truth.records)

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        world, profile = self.world, self.profile
        faults = profile.faults
        spawn, random = world.scheduler.spawn_mortal, world.scheduler.random
        for number in range(faults.writers):
            spawn(f"writer {number}", Writer(world, f"w{number}").run)
        for number in range(faults.idempotent_writers):
            spawn(f"idempotent {number}", IdempotentWriter(world).run)
        for _ in range(faults.twins):
            producer = SimulatedProducer(world.next_producer_id(), 0, 0, random.getrandbits(32))
            for which in ("left", "right"):
                spawn(f"twin {which}", IdempotentWriter(world, producer).run)
        for number in range(faults.followers):
            spawn(f"follower {number}", TableFollower(world).run)
        for number in range(profile.tables):
            spawn(f"table {number}", TableReader(world).run)
        for number in range(faults.mergers):
            spawn(f"merger {number}", TailMerging(world).run)
        for number in range(profile.compactors):
            spawn(f"compactor {number}", Compactor(world, profile.compactor_rest_ms).run)
        for number in range(faults.cleaners):
            spawn(f"cleaner {number}", ChangingCleaner(world).run)
        for number in range(profile.stale_cleaners):
            spawn(f"stale {number}", StaleCleaner(world).run)
        for number in range(faults.retentions):
            spawn(f"retention {number}", Retention(world).run)
        for number in range(faults.vandals):
            spawn(f"vandal {number}", Vandal(world).run)

    def check_end(self) -> None:
        """Check what a new handle reads of the whole log."""
        world = self.world
        truth, now_ms = world.truth, world.scheduler.now_ms
        log = world.open_log()
        view = log.observe()
        truth.check_extent(view.log_start_offset, view.log_end_offset, truth.now)
        given = list(keyed_records(log.scan(truth.start)))
        ReadTable(truth).read(truth.start, given, truth.end, began_ms=now_ms, now_ms=now_ms)


def _settings(profile: CompactionProfile) -> dict[str, object]:
    has_retention = max(profile.faults.retention_ms, profile.faults.retention_bytes) >= 0
    return {
        "cleanup_policy": ("compact", "delete") if has_retention else ("compact",),
        "delete_retention_ms": profile.delete_retention_ms,
        "min_compaction_lag_ms": profile.min_compaction_lag_ms,
        "min_cleanable_dirty_ratio": profile.dirty_ratio,
        "segment_bytes": profile.segment_bytes,
    }
