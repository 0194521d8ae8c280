"""Variants of the table without one of its safety rules (docs/protocol/table.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_log.delta import DeltaLog
from spark_log.errors import LogEndOffsetMismatchError
from spark_log.log import LocalLog
from spark_log.log.files import LiveLog
from spark_log.log.files.file_names import SegmentName
from spark_log.storage import FileInfo
from spark_log.table import compaction_end, free_names, listing, next_version
from spark_log.table.topic_table import PartitionTable, TableSetting, end_offset
from tests.simulation.patches import PatchVariant
from tests.simulation.table import actors, world
from tests.simulation.table.actors import CleanerOfTable
from tests.simulation.table.world import CompactionsTable, SimulatedTable, TableWorld

# --- the files of a version ----------------------------------------------------------------------


def _rebases(log: DeltaLog, actions: list[Any]) -> None:
    """Append after the newest version, as writers of other tables do."""
    while True:
        try:
            log.append(actions, "WRITE")
        except LogEndOffsetMismatchError:
            log.refresh()
        else:
            return


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


def _any(files: Iterable[FileInfo], parquet: Collection[SegmentName]) -> set[SegmentName]:
    return set(parquet)


def _list_and_read(
    world: TableWorld, table: SimulatedTable
) -> tuple[PartitionTable, listing.LogFiles] | None:
    log = actors.list_log(world)
    world.stand_still()
    before = table.read()
    return None if log is None else (before, log)


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


def _adds_at_once(
    table: PartitionTable, setting: TableSetting, log: listing.LogFiles
) -> PartitionTable:
    changed = next_version.with_setting(table, setting, log.log_start_offset)
    return next_version.with_files(changed, log)


def _is_different(setting: TableSetting, known: TableSetting) -> bool:
    return known != setting


# --- deletions -----------------------------------------------------------------------------------


def _moves_nothing(world: TableWorld, table: SimulatedTable, offset: int) -> None:
    """Leave the table as it is: the next commit moves its start."""


_shipped_names_needed = actors.names_needed


def _knows_an_earlier_version(
    table_world: TableWorld, names: list[SegmentName], now_us: int
) -> set[SegmentName]:
    """Go by the versions that the process has read first."""
    histories = table_world.histories
    earlier = histories.get(table_world.actor_name())
    needed = _shipped_names_needed(table_world, names, now_us)
    if earlier is None:
        return needed
    histories[table_world.actor_name()] = earlier
    return {n for n in names if world.is_parquet(n) and free_names.is_needed(n, earlier)}


def _needs_the_newest(times_us: Mapping[int, int], before_us: int) -> int:
    return max(times_us)


class _GoesByItsOwnClock(CleanerOfTable):
    @property
    def now_us(self) -> int:
        return self.world.clock.time_us()


# --- both ----------------------------------------------------------------------------------------


def _files_and_end_of_two_versions(
    world: TableWorld, log: LocalLog, table: SimulatedTable
) -> tuple[PartitionTable, int, int]:
    version = table.read()
    view = log.observe()
    world.rest(world.conditions.commit_ms)
    return replace(version, end=table.read().end), view.log_start_offset, view.log_end_offset


def _removes_all(self: CompactionsTable) -> float:
    self.newest = self._table.read()
    return float("inf")


def _looks_at_the_newest(self: CompactionsTable) -> float:
    self.newest = self._table.read()
    return free_names.tombstone_limit([self.newest])


TABLE_RULES: dict[str, PatchVariant] = {
    "a version is appended at the state that was read": PatchVariant(
        ((world, "append", _rebases),)
    ),
    "a file covers whole files": PatchVariant(((PartitionTable, "fits", _overlaps),)),
    "a file leaves no gap": PatchVariant(((PartitionTable, "fits", _leaves_gaps),)),
    "the end is that of the last file": PatchVariant(
        ((PartitionTable, "with_file", _ends_with_the_last_added),)
    ),
    "nothing spent is added": PatchVariant(((listing, "unspent", _any),)),
    "the log is listed after the version was read": PatchVariant(
        ((actors, "read_and_list", _list_and_read),)
    ),
    "only a complete compaction is added": PatchVariant(
        ((listing, "complete_compaction", _part_of_a_compaction),)
    ),
    "no compaction names an end below an earlier one": PatchVariant(
        ((compaction_end, "end_to_name", _its_own_end),)
    ),
    "after a compaction that named no end the log's end is named": PatchVariant(
        ((compaction_end, "end_to_name", _trusts_the_unnamed),)
    ),
    "only a later compaction replaces one": PatchVariant(
        (
            (PartitionTable, "has_compaction", _never),
            (actors, "read_and_list", _list_and_read),
        )
    ),
    "the table's start moves before a deletion returns": PatchVariant(
        ((actors, "move_table_start", _moves_nothing),)
    ),
    "a version that changes the setting adds no file": PatchVariant(
        ((next_version, "next_partition", _adds_at_once),)
    ),
    "an older setting changes nothing": PatchVariant(
        ((TableSetting, "is_newer_than", _is_different),)
    ),
    "a name is freed only if no next version could add it": PatchVariant(
        ((free_names, "could_add", _never),)
    ),
    "the version is read after the name was spent": PatchVariant(
        ((actors, "names_needed", _knows_an_earlier_version),)
    ),
    "replaced files stay for their time": PatchVariant(
        ((free_names, "first_version_needed", _needs_the_newest),)
    ),
    "replaced files go by the storage's time": PatchVariant(
        ((actors, "CleanerOfTable", _GoesByItsOwnClock),)
    ),
    "the log is read from the end of the version that is read": PatchVariant(
        ((actors, "version_and_view", _files_and_end_of_two_versions),)
    ),
    "tombstones behind the table's end stay": PatchVariant(
        ((CompactionsTable, "read_limit", _removes_all),)
    ),
    "tombstones stay for their time behind the table's end": PatchVariant(
        ((CompactionsTable, "read_limit", _looks_at_the_newest),)
    ),
}
"""The name of each safety rule, and the variant without it."""
