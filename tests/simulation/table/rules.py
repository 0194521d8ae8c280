"""Variants of the table without one of its safety rules (docs/protocol/table.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_log.delta import DeltaLog, Version
from spark_log.errors import LogEndOffsetMismatchError
from spark_log.log import LocalLog
from spark_log.log.clean import CompactionLimits, cold_segments, generations
from spark_log.log.files import LiveLog
from spark_log.log.files.file_names import SegmentName
from spark_log.storage import FileInfo
from spark_log.table import (
    TableCommitter,
    TableOfLog,
    TableVersion,
    TopicTable,
    free_names,
    listing,
    next_version,
    topic_table,
)
from spark_log.table.partition_table import PartitionTable, TableSetting, end_offset
from tests.simulation.patches import PatchVariant
from tests.simulation.table import actors
from tests.simulation.table.world import SimulatedCommitter, TableWorld

# --- the files of a version ----------------------------------------------------------------------


_shipped_append = DeltaLog.append


def _rebases(log: DeltaLog, actions: list[Any], operation: str) -> Version:
    """Append after the newest version, as writers of other tables do."""
    while True:
        try:
            return _shipped_append(log, actions, operation)
        except LogEndOffsetMismatchError:
            log.refresh()


_shipped_fits = PartitionTable.fits


def _overlaps(
    table: PartitionTable, name: SegmentName, overlapped: tuple[SegmentName, ...]
) -> bool:
    return bool(overlapped) or max(name.base_offset, table.start) == table.end


def _leaves_gaps(
    table: PartitionTable, name: SegmentName, overlapped: tuple[SegmentName, ...]
) -> bool:
    return not overlapped or _shipped_fits(table, name, overlapped)


_shipped_with_file = PartitionTable.with_file


def _ends_with_the_last_added(
    table: PartitionTable, name: SegmentName, replaced: tuple[SegmentName, ...]
) -> PartitionTable:
    return replace(_shipped_with_file(table, name, replaced), end=end_offset(name))


def _any(files: Iterable[FileInfo]) -> set[SegmentName]:
    names = (SegmentName.parse(file.name) for file in files)
    return {name for name in names if name is not None and name.is_parquet}


_shipped_commit = TableCommitter.commit


def _lists_first(
    self: SimulatedCommitter, partitions: Collection[int] | None = None
) -> TableVersion:
    """List the log, then read the newest version, and decide."""
    logs = self.list_log()
    self.world.stand_still()
    vars(self)["_list"] = lambda *_, **__: logs
    try:
        return _shipped_commit(self, partitions)
    finally:
        del vars(self)["_list"]


def _never(*_: Any) -> bool:
    return False


# --- compactions ---------------------------------------------------------------------------------


_shipped_compaction = listing.complete_compaction


def _part_of_a_compaction(live: LiveLog, end: int) -> listing.Compaction | None:
    ends = [each.end_offset for each in live.segments if each.name.is_compacted]
    found = [_shipped_compaction(live, end or 0) for end in ends]
    return next((each for each in reversed(found) if each is not None), None)


def _its_own_end(own_end: int, newest: int | None, log_end_offset: int, *, is_first: bool) -> int:
    return own_end


def _trusts_the_unnamed(
    own_end: int, newest: int | None, log_end_offset: int, *, is_first: bool
) -> int:
    return max(own_end, newest or 0)


# --- settings ------------------------------------------------------------------------------------


_shipped_decide = TableCommitter.decide


def _adds_at_once(
    self: SimulatedCommitter,
    version: TableVersion,
    setting: TableSetting,
    partitions: Collection[int] | None,
) -> dict[int, PartitionTable]:
    logs = self.list_log()
    before = version.partitions[0]
    changed = next_version.with_setting(before, setting, logs.log_start_offset)
    if changed is before:
        return _shipped_decide(self, version, setting, partitions)
    return {0: next_version.with_files(changed, logs)}


def _is_different(setting: TableSetting, known: TableSetting) -> bool:
    return known != setting


# --- deletions -----------------------------------------------------------------------------------


def _moves_nothing(self: TableCommitter, partition: int, offset: int) -> None:
    """Leave the table as it is: the next commit moves its start."""


_shipped_allows = TableOfLog.allows


def _knows_an_earlier_version(self: TableOfLog, name: SegmentName, now_us: int) -> bool:
    """Go by the versions that the process has read first."""
    assert isinstance(self._committer, SimulatedCommitter)
    world = self._committer.world
    actor = "" if world.scheduler.current is None else world.scheduler.current.name
    if actor not in world.histories:
        retention_ms = self._config.table_deleted_file_retention_ms
        world.histories[actor] = self._history(retention_ms, now_us)
    history = world.histories[actor]
    return history is not None and not free_names.is_needed(name, history)


def _goes_by_its_own_clock(self: TableOfLog, name: SegmentName, now_us: int) -> bool:
    return _shipped_allows(self, name, self._table.clock.time_us())


def _needs_the_newest(times_us: Mapping[int, int], before_us: int) -> int:
    return max(times_us)


# --- both ----------------------------------------------------------------------------------------


def _files_and_end_of_two_versions(
    world: TableWorld, log: LocalLog, table: TopicTable
) -> tuple[PartitionTable, int, int]:
    version = table.refresh().partitions.get(0, PartitionTable())
    view = log.observe()
    world.rest(world.conditions.commit_ms)
    end = table.refresh().partitions.get(0, PartitionTable()).end
    return replace(version, end=end), view.log_start_offset, view.log_end_offset


_shipped_limits = TableOfLog.compaction_limits


def _removes_all(self: TableOfLog, now_us: int) -> CompactionLimits:
    return _shipped_limits(self, now_us)._replace(tombstones_from=float("inf"))


def _looks_at_the_newest(self: TableOfLog, now_us: int) -> CompactionLimits:
    limits = _shipped_limits(self, now_us)
    newest = self._table.known.partitions.get(0)
    history = [] if newest is None else [newest]
    return limits._replace(tombstones_from=free_names.tombstone_limit(history))


def _trusts_its_setting(self: TableOfLog, file_names: Iterable[str] | None) -> bool:
    return self._config.table_format == "none"


TABLE_RULES: dict[str, PatchVariant] = {
    "a version is appended at the state that was read": PatchVariant(
        ((DeltaLog, "append", _rebases),)
    ),
    "a file covers whole files": PatchVariant(((PartitionTable, "fits", _overlaps),)),
    "a file leaves no gap": PatchVariant(((PartitionTable, "fits", _leaves_gaps),)),
    "the end is that of the last file": PatchVariant(
        ((PartitionTable, "with_file", _ends_with_the_last_added),)
    ),
    "nothing spent is added": PatchVariant(((listing, "unspent", _any),)),
    "the log is listed after the version was read": PatchVariant(
        ((TableCommitter, "commit", _lists_first),)
    ),
    "only a complete compaction is added": PatchVariant(
        ((listing, "complete_compaction", _part_of_a_compaction),)
    ),
    "no compaction names an end below an earlier one": PatchVariant(
        ((generations, "end_to_name", _its_own_end),)
    ),
    "after a compaction that named no end the log's end is named": PatchVariant(
        ((generations, "end_to_name", _trusts_the_unnamed),)
    ),
    "only a later compaction replaces one": PatchVariant(
        (
            (PartitionTable, "has_compaction", _never),
            (TableCommitter, "commit", _lists_first),
        )
    ),
    "the table's start moves before a deletion returns": PatchVariant(
        ((TableCommitter, "move_start", _moves_nothing),)
    ),
    "a version that changes the setting adds no file": PatchVariant(
        ((TableCommitter, "decide", _adds_at_once),)
    ),
    "an older setting changes nothing": PatchVariant(
        ((TableSetting, "is_newer_than", _is_different),)
    ),
    "a name is freed only if no next version could add it": PatchVariant(
        ((free_names, "could_add", _never),)
    ),
    "the version is read after the name was spent": PatchVariant(
        ((TableOfLog, "allows", _knows_an_earlier_version),)
    ),
    "replaced files stay for their time": PatchVariant(
        ((topic_table, "first_version_needed", _needs_the_newest),)
    ),
    "replaced files go by the storage's time": PatchVariant(
        ((TableOfLog, "allows", _goes_by_its_own_clock),)
    ),
    "the log is read from the end of the version that is read": PatchVariant(
        ((actors, "version_and_view", _files_and_end_of_two_versions),)
    ),
    "tombstones behind the table's end stay": PatchVariant(
        ((TableOfLog, "compaction_limits", _removes_all),)
    ),
    "tombstones stay for their time behind the table's end": PatchVariant(
        ((TableOfLog, "compaction_limits", _looks_at_the_newest),)
    ),
    "a log with Parquet files is asked for its table": PatchVariant(
        ((TableOfLog, "is_certainly_empty", _trusts_its_setting),)
    ),
    "a segment that another one cuts is written anew": PatchVariant(
        ((cold_segments, "is_cut", _never),)
    ),
    "a compaction's Arrow file becomes Parquet": PatchVariant(
        ((cold_segments, "is_convertible", _never),)
    ),
}
"""The name of each safety rule, and the variant without it."""
