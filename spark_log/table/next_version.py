"""The next version of a table, given the newest version and a listing of the log.

A process that commits reads the newest version, lists the log, decides here, and appends the next
version at exactly the state that was read (protocol B1). The decision needs no clock, and does not
depend on which of two files a reader of the log would take.
"""

from __future__ import annotations

from dataclasses import replace

from spark_log.log.files import SegmentName
from spark_log.table.listing import LogFiles
from spark_log.table.partition_table import (
    CleanupPolicy,
    PartitionTable,
    TableSetting,
    end_offset,
)


def next_partition(table: PartitionTable, setting: TableSetting, log: LogFiles) -> PartitionTable:
    """Return the partition in the next version; ``table`` itself if nothing changes.

    A version that changes the setting adds no file (protocol B8). The files that the new setting
    allows are added by later versions, whose listings begin later.

    Args:
        table: the partition in the newest version.
        setting: the topic's setting, as this process knows it.
        log: the files that a listing offers; it began after the newest version was read.
    """
    changed = with_setting(table, setting, log.log_start_offset)
    return with_files(table, log) if changed is table else changed


def with_setting(table: PartitionTable, setting: TableSetting, log_start: int) -> PartitionTable:
    """Return the partition with the topic's setting, if it is newer (protocol B8).

    A change to or from ``NONE`` removes all files. Another change of the policy keeps them, as
    those of no compaction. A change of the typed columns alone changes nothing else.

    Args:
        table: the partition in the newest version.
        setting: the topic's setting, as this process knows it.
        log_start: the log start offset in a listing.
    """
    if not setting.is_newer_than(table.setting):
        return table
    if CleanupPolicy.NONE in (setting.policy, table.setting.policy):
        start = max(table.start, log_start)
        return PartitionTable(setting, start, start)
    if setting.policy == table.setting.policy:
        return replace(table, setting=setting)
    return replace(table, setting=setting, compaction=0)


def with_start(table: PartitionTable, start: int) -> PartitionTable:
    """Return the partition after the log's start has moved (protocol B11).

    Files before the start are removed. A file with offsets before and after it stays: spark-log
    reads it from the start on, other programs read all of it.
    """
    if start <= table.start or table.setting.policy == CleanupPolicy.NONE:
        return table
    files = tuple(name for name in table.files if end_offset(name) > start)
    return replace(table, start=start, end=max(table.end, start), files=files)


def with_files(table: PartitionTable, log: LogFiles) -> PartitionTable:
    """Return the partition with the files that its setting allows, from the log's start on."""
    table = with_start(table, log.log_start_offset)
    match table.setting.policy:
        case CleanupPolicy.DELETE:
            return _with_segments(table, log)
        case CleanupPolicy.COMPACT:
            return _with_compaction(table, log)
    return table


def could_add(table: PartitionTable, name: SegmentName) -> bool:
    """Return whether the next version could have a file that this one does not have (protocol B9).

    A file after a gap counts, too: the next version may also add the files in the gap. After the
    start has moved or the setting has changed, a later version may add other files, but none that
    was spent before (protocol B4).
    """
    if table.setting.policy == CleanupPolicy.NONE or end_offset(name) <= table.start:
        return False
    if table.setting.policy == CleanupPolicy.COMPACT:
        return name.is_compacted and not table.has_compaction(name.generation)
    return name.base_offset > table.end or _replaced(table, name) is not None


# --- topics that are not compacted ---------------------------------------------------------------


def _with_segments(table: PartitionTable, log: LogFiles) -> PartitionTable:
    """Add segments until no more can be added, the widest first (protocol B2)."""
    offered = sorted(log.segments, key=lambda name: (-_width(name), -name.generation))
    for _ in offered:
        before = table
        for name in offered:
            replaced = _replaced(table, name)
            if replaced is not None:
                table = table.with_file(name, replaced)
        if table is before:
            break
    return table


def _replaced(table: PartitionTable, name: SegmentName) -> tuple[SegmentName, ...] | None:
    """Return the files that a segment may replace; None if it may not be added (protocol B2, B3).

    The segment must cover whole files of this version, or begin at its end, or both. Offsets before
    the table's start do not count. Two segments of one range have the same records: the higher
    generation wins, so that two processes do not exchange them for ever.
    """
    first, end = max(name.base_offset, table.start), end_offset(name)
    overlapped = tuple(
        each for each in table.files if end_offset(each) > first and each.base_offset < end
    )
    if end <= table.start or not table.fits(name, overlapped):
        return None
    if any(each.is_compacted and each.generation >= name.generation for each in overlapped):
        return None  # a merge has records that the compaction left out
    if len(overlapped) == 1 and end == end_offset(overlapped[0]):
        return overlapped if name.generation > overlapped[0].generation else None
    return overlapped


def _width(name: SegmentName) -> int:
    return end_offset(name) - name.base_offset


# --- compacted topics ----------------------------------------------------------------------------


def _with_compaction(table: PartitionTable, log: LogFiles) -> PartitionTable:
    """Replace all files by those of a complete compaction (protocol B5, B7).

    The end decreases only if the table still has the files of a topic that was not compacted.
    """
    found = log.compaction
    if found is None or table.has_compaction(found.generation):
        return table
    files = tuple(name for name in found.files if end_offset(name) > table.start)
    if not files or files[0].base_offset > table.start:
        return table
    if table.is_compacted and found.end < table.end:
        return table
    return replace(table, files=files, end=found.end, compaction=found.generation)
