"""Actors of a simulated table: they commit, clean, delete records, read, and change settings."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from spark_log.errors import (
    ClockSkewError,
    LogEndOffsetMismatchError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from spark_log.log import LocalLog, SegmentReader
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.expired_tombstones import remove_expired_tombstones
from spark_log.log.directory import DirectoryListing
from spark_log.log.files.file_names import SegmentName
from spark_log.log.files.live_segments import live_log
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite import DeletableFiles
from spark_log.table import both, free_names, listing, next_version
from spark_log.table.topic_table import CleanupPolicy, PartitionTable, TableSetting
from tests.simulation.compaction.compacted_log import ReadTable, keyed_records
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.readers import only_faults
from tests.simulation.log.records import Record
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.table.profile import CHANGING
from tests.simulation.table.world import (
    SimulatedTable,
    TableWorld,
    is_parquet,
    list_partition,
    named_end,
    parquet_names,
)
from tests.simulation.violation import ViolationError

_SLOW_CHANCE = 0.05
"""Probability that a step of a compaction takes longer than a whole compaction of others."""

_SHORT_CHANCE = 0.15
"""Probability that a compaction ends before it might."""


class _Actor:
    def __init__(self, world: TableWorld) -> None:
        self._world = world


# --- commits -------------------------------------------------------------------------------------


class VersionCommitter(_Actor):
    """Appends versions, and stands still at times."""

    def run(self) -> None:
        """Commit until the simulation ends."""
        world = self._world
        table = SimulatedTable(world)
        while not world.is_ending:
            world.rest(world.conditions.commit_ms)
            with suppress(StorageError, LogEndOffsetMismatchError):
                self.commit(table)

    def commit(self, table: SimulatedTable) -> bool:
        """Read the newest version, list the log, and append the next version if there is one."""
        world = self._world
        found = read_and_list(world, table)
        if found is None:
            return False
        before, log = found
        setting = world.known_setting()
        if not self._world.table.versions and setting.policy == CleanupPolicy.NONE:
            return False
        after = next_version.next_partition(before, setting, log)
        if after == before:
            return False
        world.stand_still()
        table.commit(before, after)
        return True


def read_and_list(
    world: TableWorld, table: SimulatedTable
) -> tuple[PartitionTable, listing.LogFiles] | None:
    """Return the newest version, and the files that a listing offers, made after it was read."""
    before = table.read()
    world.stand_still()
    log = list_log(world)
    return None if log is None else (before, log)


def list_log(world: TableWorld) -> listing.LogFiles | None:
    """Return the files that a listing of the log offers; None if the listing took too long."""
    files = list_partition(world)
    if files is None:
        return None
    end = named_end(world, live_log(files).compaction_generation)
    return listing.log_files(files, parquet_names(files), end)


def move_table_start(world: TableWorld, table: SimulatedTable, offset: int) -> None:
    """Move the table's start up to an offset that the log's start has reached (protocol B11)."""
    while True:
        before = table.read()
        after = next_version.with_start(before, offset)
        if after == before:
            return
        world.stand_still()
        with suppress(LogEndOffsetMismatchError):
            table.commit(before, after)
            return


class RecordDeleter(_Actor):
    """Deletes the records before random offsets, from the log and the table."""

    def run(self) -> None:
        """Delete until the simulation ends."""
        world = self._world
        log, table = world.open_log(), SimulatedTable(world)
        while not world.is_ending:
            world.rest(2 * world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                view = log.observe()
                if view.log_start_offset == view.log_end_offset:
                    continue
                extent = view.log_end_offset - view.log_start_offset
                offset = view.log_start_offset + world.scheduler.random.randint(1, extent)
                move_log_start(log, offset)
                move_table_start(world, table, offset)
                world.table.check_deleted(offset)


class TableOperator(_Actor):
    """Changes the settings of the topic."""

    def run(self) -> None:
        """Change settings until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        while not world.is_ending:
            world.rest(world.conditions.operator_ms)
            present = world.topic_settings[-1]
            policies = [CleanupPolicy.DELETE, CleanupPolicy.COMPACT]
            if world.conditions.policy != CHANGING:
                policies = [CleanupPolicy(world.conditions.policy)]
            if world.conditions.toggles and present.policy != CleanupPolicy.NONE:
                policies.append(CleanupPolicy.NONE)
            policy = random.choice(policies)
            if policy != present.policy:
                world.scheduler.note(f"sets {policy}")
                world.topic_settings.append(TableSetting(policy, present.metadata_offset + 1))


# --- the log -------------------------------------------------------------------------------------


class TableCompactor(_Actor):
    """Compacts the log as a whole or a part of it, or removes old tombstones, and commits after."""

    def run(self) -> None:
        """Compact until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        log, table = world.open_log(), SimulatedTable(world)
        while not world.is_ending:
            world.rest(world.conditions.log.compactor_rest_ms)
            if world.known_setting().policy == CleanupPolicy.DELETE:
                continue
            with suppress(StorageError, OffsetOutOfRangeError, LogEndOffsetMismatchError):
                self.compact(log)
                if random.random() < world.conditions.commits_after:
                    VersionCommitter(world).commit(table)

    def compact(self, log: LocalLog) -> None:
        """Compact once."""
        world, random = self._world, self._world.scheduler.random
        end = world.truth.end
        limit = random.randint(0, end) if random.random() < _SHORT_CHANCE else math.inf
        world.compactions_table().limit_offset = limit
        rewrite = random.choice((compact, compact, remove_expired_tombstones))
        try:
            done = rewrite(
                log,
                now_us=world.storage_time_us(),
                memory_bytes=2**20,
                on_progress=self._step,
                limit_offset=limit,
            )
        finally:
            world.compactions_table().limit_offset = math.inf
        world.scheduler.note(
            f"{rewrite.__name__} {done.start_offset} to {done.end_offset}: "
            f"{done.records_read} to {done.records_written}, "
            f"{done.tombstones_removed} tombstones removed"
        )

    def _step(self, done_bytes: int) -> None:
        if not self._world.is_ending and self._world.scheduler.random.random() < _SLOW_CHANCE:
            self._world.rest(2 * DELETE_DELAY_MS)


class TableCleaner(_Actor):
    """Does the work of the clean job, and keeps the names that the table needs."""

    def run(self) -> None:
        """Clean until the simulation ends."""
        world = self._world
        log = world.open_log()
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            policy = world.known_setting().policy
            policies = [CleanupPolicy.COMPACT] if policy == CleanupPolicy.COMPACT else []
            if max(world.profile.retention_ms, world.profile.retention_bytes) >= 0 or not policies:
                policies.append(CleanupPolicy.DELETE)
            if policy == CleanupPolicy.NONE:
                policies = []  # only deletes files
            log.config = world.config.model_copy(update={"cleanup_policy": tuple(policies)})
            with suppress(StorageError, OffsetOutOfRangeError):
                cleaner = CleanerOfTable(
                    log,
                    fan_in=world.profile.fan_in,
                    max_clock_skew_ms=world.clock.max_skew_ms,
                )
                cleaner.world = world
                with suppress(ClockSkewError):
                    report = cleaner.clean()
                    world.scheduler.note(
                        f"cleaned: {report.merged_segments} merged, {report.deleted_files} deleted"
                    )


class CleanerOfTable(PartitionCleaner):
    """The shipped cleaner, under the rules of the table.

    Attributes:
        world: the world of the simulation.
    """

    world: TableWorld

    @property
    def now_us(self) -> int:
        """The storage's time, by which replaced files are old (protocol B10, C1)."""
        return self._now_us

    def _rewrite(self, listed: DirectoryListing) -> DirectoryListing:
        return super()._rewrite(listed) if self._config.cleanup_policy else listed

    def _retain(self) -> DirectoryListing:
        listed = super()._retain()
        start = listed.view.log_start_offset
        move_table_start(self.world, SimulatedTable(self.world), start)
        self.world.table.check_deleted(start)
        return listed

    def _deletable(self, listed: DirectoryListing | None = None) -> DeletableFiles:
        return without_needed(self.world, super()._deletable(listed), self.now_us)


def without_needed(world: TableWorld, found: DeletableFiles, now_us: int) -> DeletableFiles:
    """Return the files that the log may free, without the segments that the table needs."""
    names = [name for file in found.segments if (name := SegmentName.parse(file.name))]
    if not any(map(is_parquet, names)):
        return found
    world.stand_still()
    needed = names_needed(world, names, now_us)
    freed = [file for file in found.segments if SegmentName.parse(file.name) not in needed]
    world.stand_still()
    return replace(found, segments=tuple(freed))


def names_needed(world: TableWorld, names: list[SegmentName], now_us: int) -> set[SegmentName]:
    """Return the names that the table needs, of names that the log may free (protocol B9, B10)."""
    table = SimulatedTable(world)
    table.read()
    history = table.history(world.conditions.file_retention_ms, now_us)
    parquet = [name for name in names if is_parquet(name)]
    if history is None:
        return set(parquet)
    world.histories[world.actor_name()] = history
    return {name for name in parquet if free_names.is_needed(name, history)}


# --- readers -------------------------------------------------------------------------------------


class VersionReader(_Actor):
    """Reads versions, new ones and old ones, within the retention of their files."""

    def run(self) -> None:
        """Read until the simulation ends."""
        world = self._world
        table = SimulatedTable(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            with suppress(StorageError):
                table.read()
                newest = table.log.state.version
                if newest >= 0:
                    self._read(world.scheduler.random.randint(max(0, newest - 3), newest))

    def _read(self, number: int) -> None:
        world = self._world
        truth = world.table
        table = truth.versions[number]
        for name in table.files:
            world.rest(world.conditions.file_retention_ms / 10)
            try:
                rows = read_file(world, name)
            except NotFoundError as error:
                if truth.may_be_read(number):
                    raise ViolationError(f"version {number} misses a file: {error}") from error
                return
            if [at for at, _ in rows] != truth.rows_of(name):
                raise ViolationError(f"{name.file_name} holds other rows than it was made with")
        world.scheduler.note(f"read version {number}: {len(table.files)} files")


def read_file(world: TableWorld, name: SegmentName) -> list[tuple[int, Record]]:
    """Return the offsets and records of a file of the table."""
    reader = SegmentReader(world.store, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)
    return list(keyed_records(reader.read(reader.base_offset)))


class ReaderOfBoth(_Actor):
    """Reads a version, and the log from its end on."""

    def run(self) -> None:
        """Read until the simulation ends."""
        world = self._world
        log, table = world.open_log(), SimulatedTable(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            with only_faults():
                self.read(log, table)

    def read(self, log: LocalLog, table: SimulatedTable) -> None:
        """Read once, and check all of it."""
        world, truth = self._world, self._world.table
        began_ms, deleted = world.scheduler.now_ms, truth.deleted
        found = version_and_view(world, log, table)
        version, log_start, log_end = found
        if version.setting.policy == CleanupPolicy.NONE:
            return
        plan = both.read_of_both(version, log_start)
        if plan.start < deleted:
            raise ViolationError(f"a read begins at {plan.start}, deleted up to {deleted}")
        rows: list[tuple[int, Record]] = []
        try:
            for name in plan.files:
                rows += [row for row in read_file(world, name) if row[0] >= plan.start]
        except NotFoundError:
            if world.scheduler.now_ms - began_ms < world.conditions.file_retention_ms:
                raise
            return  # too slow: files of replaced versions stay for their time only
        end = max(log_end, plan.log_start)
        try:
            rows += keyed_records(log.scan(plan.log_start, end))
        except OffsetOutOfRangeError:
            return  # deleted meanwhile
        now_ms = world.scheduler.now_ms
        world.scheduler.note(f"read both: {len(rows)} rows from {plan.start} to {end}")
        if not truth.was_compacted:
            truth.check_all(plan.start, [at for at, _ in rows], end)
        ReadTable(truth).read(plan.start, rows, end, began_ms=began_ms, now_ms=now_ms)


def version_and_view(
    world: TableWorld, log: LocalLog, table: SimulatedTable
) -> tuple[PartitionTable, int, int]:
    """Return a version, and the extent of the log, read after it (protocol B12)."""
    version = table.read()
    view = log.observe()
    return version, view.log_start_offset, view.log_end_offset
