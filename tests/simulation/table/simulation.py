"""The simulation of a topic's table beside its log."""

from __future__ import annotations

import uuid
from random import Random
from typing import ClassVar

from spark_log.delta import DeltaLog
from spark_log.log import LocalLog
from spark_log.table import committer, schema
from spark_log.table.partition_table import CleanupPolicy, PartitionTable, TableSetting
from tests.simulation.compaction.actors import TableFollower, TableReader
from tests.simulation.compaction.compacted_log import ReadTable, keyed_records
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.small_numbers import small_numbers
from tests.simulation.log.writers import IdempotentWriter, Writer
from tests.simulation.patches import SHIPPED, Patch, PatchVariant
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import DeltaStore, SimulatedDisk
from tests.simulation.table.actors import (
    ReaderOfBoth,
    RecordDeleter,
    TableCleaner,
    TableCompactor,
    TableMerger,
    TableOperator,
    VersionCommitter,
    VersionReader,
)
from tests.simulation.table.profile import CHANGING, TableProfile, draw_table_profile
from tests.simulation.table.true_table import TrueTable
from tests.simulation.table.world import TableProcess, TableWorld, open_table
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_SMALL_NUMBERS: tuple[Patch, ...] = (
    (DeltaLog, "deletion_delay_ms", float(DELETE_DELAY_MS)),
    (DeltaLog, "listing_valid_ms", DELETE_DELAY_MS / 4),
    (schema, "TABLE_PROPERTIES", {schema.CHECKPOINT_INTERVAL: "4"}),
    (committer, "VERSION_RETENTION_MS", 0.0),
)
"""Times and counts of the table, in proportion to the other times of a simulation."""


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
            *_SMALL_NUMBERS,
            (uuid, "uuid4", self._uuid4),
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
            spawn(f"merger {number}", TableMerger(world).run)
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
        self._check_table(log)
        ReaderOfBoth(world).read(log, open_table(world))

    def _check_table(self, log: LocalLog) -> None:
        """Check that one cleaner alone brings the table up to date, and then changes nothing."""
        world, truth = self.world, self.world.table
        process = TableProcess(world)
        TableCleaner(world).clean(process, log)
        process.committer.commit()
        count = len(truth.versions)
        process.committer.commit()
        if len(truth.versions) > count:
            raise ViolationError("one committer alone does not come to an end")
        newest = truth.newest
        is_behind = newest.setting.policy == CleanupPolicy.DELETE and newest.end != truth.end
        if is_behind and not _is_cut(log, newest):
            raise ViolationError(f"the log ends at {truth.end}, its table stays at {newest.end}")

    def _uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.scheduler.random.getrandbits(128), version=4)


def _is_cut(log: LocalLog, table: PartitionTable) -> bool:
    """Return whether the table ends where no segment of the log may be added (protocol B16).

    The first part of a compaction's segment is replaced, or a segment begins inside of the table's
    last file.
    """
    segments = log.observe().live.segments[1:]
    last = table.files[-1].base_offset if table.files else table.end
    return any(
        last < each.start_offset < table.end
        or (each.name.is_compacted and each.start_offset > each.name.base_offset)
        for each in segments
    )


def _first_policy(profile: TableProfile) -> CleanupPolicy:
    if profile.toggles:
        return CleanupPolicy.NONE
    if profile.policy == CHANGING:
        return CleanupPolicy.DELETE
    return CleanupPolicy(profile.policy)
