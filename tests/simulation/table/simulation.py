"""The simulation of a topic's table beside its log."""

from __future__ import annotations

import uuid
from random import Random
from typing import ClassVar

from spark_log.log import LocalLog
from spark_log.table.topic_table import CleanupPolicy, TableSetting
from tests.simulation.compaction.actors import TableFollower, TableReader, TailMerging
from tests.simulation.compaction.compacted_log import ReadTable, keyed_records
from tests.simulation.log.small_numbers import small_numbers
from tests.simulation.log.writers import IdempotentWriter, Writer
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import DeltaStore, SimulatedDisk
from tests.simulation.table.actors import (
    ReaderOfBoth,
    RecordDeleter,
    TableCleaner,
    TableCompactor,
    TableOperator,
    VersionCommitter,
    VersionReader,
)
from tests.simulation.table.profile import CHANGING, TableProfile, draw_table_profile
from tests.simulation.table.true_table import TrueTable
from tests.simulation.table.world import (
    SimulatedTable,
    TableWorld,
    compactions_know_the_table,
)
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_MAX_COMMITS = 20


class TableSimulation(Simulation):
    """Committers, mergers, compactors, cleaners and readers of one partition and its table."""

    MAX_STEPS_TO_END: ClassVar[int] = 5000
    profile: TableProfile
    world: TableWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the rules of the table, or of all but one."""
        profile = draw_table_profile(Random(seed))
        faults = profile.log.faults
        super().__init__(seed, profile, faults, faults.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        disk = SimulatedDisk(storage_clock)
        truth = TrueTable(
            disk,
            storage_clock,
            faults.expiration_ms,
            profile.log.delete_retention_ms,
            profile.file_retention_ms,
        )
        self.world = TableWorld(
            self.scheduler,
            clock,
            DeltaStore(disk, self.scheduler, truth, faults),
            truth,
            faults,
            LocalLog,
            settings={
                "delete_retention_ms": profile.log.delete_retention_ms,
                "min_cleanable_dirty_ratio": profile.log.dirty_ratio,
                "segment_bytes": profile.log.segment_bytes,
            },
            conditions=profile,
        )
        self.world.topic_settings.append(TableSetting(_first_policy(profile), 0))
        self.patches = (
            *small_numbers(faults),
            (uuid, "uuid4", self._uuid4),
            *compactions_know_the_table(self.world),
            *variant.patches,
        )

    @property
    def records(self) -> int:
        """Number of versions of the table."""
        return len(self.world.table.versions)

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        world, profile = self.world, self.profile
        faults, spawn = profile.log.faults, world.scheduler.spawn_mortal
        for number in range(faults.writers):
            spawn(f"writer {number}", Writer(world, f"w{number}").run)
        for number in range(faults.idempotent_writers):
            spawn(f"idempotent {number}", IdempotentWriter(world).run)
        for number in range(faults.mergers):
            spawn(f"merger {number}", TailMerging(world).run)
        for number in range(profile.log.compactors):
            spawn(f"compactor {number}", TableCompactor(world).run)
        for number in range(profile.table_cleaners):
            spawn(f"cleaner {number}", TableCleaner(world).run)
        for number in range(faults.retentions):
            spawn(f"deletes records {number}", RecordDeleter(world).run)
        for number in range(profile.committers):
            spawn(f"committer {number}", VersionCommitter(world).run)
        for number in range(faults.followers):
            spawn(f"follower {number}", TableFollower(world).run)
        for number in range(profile.log.tables):
            spawn(f"log reader {number}", TableReader(world).run)
        for number in range(profile.version_readers):
            spawn(f"version reader {number}", VersionReader(world).run)
        for number in range(profile.both_readers):
            spawn(f"reader of both {number}", ReaderOfBoth(world).run)
        if profile.toggles or profile.policy == CHANGING:
            spawn("operator", TableOperator(world).run)

    def check_end(self) -> None:
        """Check the log as new processes read it, and that commits come to an end."""
        world = self.world
        truth, now_ms = world.table, world.scheduler.now_ms
        log = world.open_log()
        view = log.observe()
        truth.check_extent(view.log_start_offset, view.log_end_offset, truth.now)
        given = list(keyed_records(log.scan(truth.start)))
        ReadTable(truth).read(truth.start, given, truth.end, began_ms=now_ms, now_ms=now_ms)
        table = SimulatedTable(world)
        for _ in range(_MAX_COMMITS):
            if not VersionCommitter(world).commit(table):
                break
        else:
            raise ViolationError("one committer alone does not come to an end")
        ReaderOfBoth(world).read(log, table)

    def _uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.scheduler.random.getrandbits(128), version=4)


def _first_policy(profile: TableProfile) -> CleanupPolicy:
    if profile.toggles:
        return CleanupPolicy.NONE
    if profile.policy == CHANGING:
        return CleanupPolicy.DELETE
    return CleanupPolicy(profile.policy)
