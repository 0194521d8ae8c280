"""Actors of a simulated table: they commit, clean, delete records, read, and change settings."""

from __future__ import annotations

import math
from contextlib import suppress

from spark_log.errors import (
    ClockSkewError,
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
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.merger import merge
from spark_log.record import BatchHeader
from spark_log.table import TopicTable, both
from spark_log.table.partition_table import CleanupPolicy, PartitionTable, TableSetting
from tests.simulation.compaction.compacted_log import ReadTable, keyed_records
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.readers import only_faults
from tests.simulation.log.records import Record
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.table.profile import CHANGING
from tests.simulation.table.world import TableProcess, TableWorld, open_table
from tests.simulation.violation import ViolationError

_SLOW_CHANCE = 0.05
"""Probability that a step of a compaction takes longer than a whole compaction of others."""

_SHORT_CHANCE = 0.15
"""Probability that a compaction ends before it might."""

_PARQUET_CHANCE = 0.6
"""Probability that a merge writes a Parquet file, as if the table were on."""


class _Actor:
    def __init__(self, world: TableWorld) -> None:
        self._world = world


# --- commits -------------------------------------------------------------------------------------


class VersionCommitter(_Actor):
    """Appends versions, and stands still at times."""

    def run(self) -> None:
        """Commit until the simulation ends."""
        world = self._world
        process = TableProcess(world)
        while not world.is_ending:
            world.rest(world.conditions.commit_ms)
            with suppress(StorageError):
                process.read_metadata().commit()
                if world.scheduler.random.random() < world.conditions.deletes_versions:
                    process.committer.delete_versions(world.storage_time_us())


class RecordDeleter(_Actor):
    """Deletes the records before random offsets, from the log and the table."""

    def run(self) -> None:
        """Delete until the simulation ends."""
        world = self._world
        log, process = world.open_log(), TableProcess(world)
        while not world.is_ending:
            world.rest(2 * world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                view = log.observe()
                if view.log_start_offset == view.log_end_offset:
                    continue
                extent = view.log_end_offset - view.log_start_offset
                offset = view.log_start_offset + world.scheduler.random.randint(1, extent)
                move_log_start(log, offset)
                process.read_metadata().move_start(0, offset)
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


class TableMerger(_Actor):
    """Merges random runs of segments that no compaction wrote, into files of both kinds."""

    def run(self) -> None:
        """Merge until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                view = world.directory().observe()
                segments = view.live.segments
                if segments:
                    first = last = random.randrange(len(segments))
                    while last + 1 < len(segments) and random.random() < 0.7:
                        last += 1
                    to_parquet = never_aborted if random.random() < _PARQUET_CHANCE else None
                    name = merge(world.directory(), view, first, last, to_parquet=to_parquet).name
                    world.scheduler.note(f"merged into {name.file_name}")


def never_aborted(header: BatchHeader, base_offset: int) -> bool:
    """Return that no batch was aborted: the simulation has no transactions."""
    return False


class TableCompactor(_Actor):
    """Compacts the log as a whole or a part of it, or removes old tombstones, and commits after."""

    def run(self) -> None:
        """Compact until the simulation ends."""
        world, random = self._world, self._world.scheduler.random
        process = TableProcess(world)
        log = process.open_log()
        while not world.is_ending:
            world.rest(world.conditions.log.compactor_rest_ms)
            process.read_metadata()
            process.configure(log)
            if process.setting.policy == CleanupPolicy.DELETE:
                continue
            with suppress(StorageError, OffsetOutOfRangeError):
                self.compact(process, log)
                if random.random() < world.conditions.commits_after:
                    process.committer.commit()

    def compact(self, process: TableProcess, log: LocalLog) -> None:
        """Compact once."""
        world, random = self._world, self._world.scheduler.random
        end = world.truth.end
        limit = random.randint(0, end) if random.random() < _SHORT_CHANCE else math.inf
        rewrite = random.choice((compact, compact, remove_expired_tombstones))
        done = rewrite(
            log,
            now_us=world.storage_time_us(),
            memory_bytes=2**20,
            on_progress=self._step,
            limit_offset=limit,
            table=process.table_of(log),
        )
        world.scheduler.note(
            f"{rewrite.__name__} {done.start_offset} to {done.end_offset}: "
            f"{done.records_read} to {done.records_written}, "
            f"{done.tombstones_removed} tombstones removed"
        )

    def _step(self, done_bytes: int) -> None:
        if not self._world.is_ending and self._world.scheduler.random.random() < _SLOW_CHANCE:
            self._world.rest(2 * DELETE_DELAY_MS)


class TableCleaner(_Actor):
    """Does the work of the clean job, and commits."""

    def run(self) -> None:
        """Clean until the simulation ends."""
        world = self._world
        process = TableProcess(world)
        log = process.open_log()
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            with suppress(StorageError, OffsetOutOfRangeError):
                process.read_metadata()
                self.clean(process, log)
                if world.scheduler.random.random() < world.conditions.commits_after:
                    process.committer.commit([0])

    def clean(self, process: TableProcess, log: LocalLog) -> None:
        """Clean once."""
        world = self._world
        process.configure(log)
        cleaner = CleanerOfTable(
            log,
            fan_in=world.profile.fan_in,
            max_clock_skew_ms=world.clock.max_skew_ms,
            table=process.table_of(log),
            table_at_once=world.is_ending or world.scheduler.random.random() < 0.5,
        )
        cleaner.world = world
        with suppress(ClockSkewError):
            report = cleaner.clean()
            world.scheduler.note(
                f"cleaned: {report.merged_segments} merged, {report.deleted_files} deleted"
            )


class CleanerOfTable(PartitionCleaner):
    """The shipped cleaner, which stands still at times, and whose deletions are checked.

    Attributes:
        world: the world of the simulation.
    """

    world: TableWorld

    def _retain(self) -> DirectoryListing:
        listed = super()._retain()
        self.world.table.check_deleted(listed.view.log_start_offset)
        return listed

    def _table_allows(self, name: SegmentName) -> bool:
        self.world.stand_still()
        is_allowed = super()._table_allows(name)
        self.world.stand_still()
        return is_allowed


# --- readers -------------------------------------------------------------------------------------


class VersionReader(_Actor):
    """Reads versions, new ones and old ones, within the retention of their files."""

    def run(self) -> None:
        """Read until the simulation ends."""
        world = self._world
        table = open_table(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            with suppress(StorageError):
                newest = table.refresh().number
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
        log, table = world.open_log(), open_table(world)
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            with only_faults():
                self.read(log, table)

    def read(self, log: LocalLog, table: TopicTable) -> None:
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
    world: TableWorld, log: LocalLog, table: TopicTable
) -> tuple[PartitionTable, int, int]:
    """Return a version, and the extent of the log, read after it (protocol B12)."""
    version = table.refresh().partitions.get(0, PartitionTable())
    view = log.observe()
    return version, view.log_start_offset, view.log_end_offset
