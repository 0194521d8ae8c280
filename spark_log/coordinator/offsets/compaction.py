"""Compaction of the offsets table: many small files become a few that are sorted by group.

Files belong to tiers by their number of rows. When a tier has `FILES_PER_TIER` files, they are
merged into one. Each row is therefore rewritten only a few times, and the table never has many
files. While one process compacts the files of a full tier, the tier may fill again; another process
then takes the files of the second half: two that took the same files would do the work of one.

A reader of a group skips the row groups of a sorted file that cannot hold it. Rows that were
superseded longer ago than the retention time are dropped: the committed offsets at any later time
can still be read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.coordinator.offsets.commit_times import CommitTimes, RowId, row_ids, to_footer
from spark_log.coordinator.offsets.rows import EMPTY, is_followed, sort_rows
from spark_log.delta import DataFile, DataFiles
from spark_log.record import int_array, int_scalar, text_array, text_scalar

FILES_PER_TIER = 32
NO_TIMES: CommitTimes = {}

_ABANDONED = 4
"""Multiple of `FILES_PER_TIER` from which all files of a tier are merged at once: the processes
that were to merge the first ones have ended."""

_RANGE_ROWS = 262_144
_FILE_RANGES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """The files to merge.

    Attributes:
        inputs: the files.
        is_full: whether they are all files of the table, so that tombstones can be dropped.
    """

    inputs: tuple[DataFile, ...]
    is_full: bool


def plan(files: Collection[DataFile]) -> Plan | None:
    """Return the files to merge; None if no tier is full.

    Args:
        files: the files of the table, in the order in which versions added them. All processes have
            the same order, and therefore take different files.
    """
    tiers: dict[int, list[DataFile]] = {}
    for file in files:
        tiers.setdefault(_tier(file), []).append(file)
    for tier in sorted(tiers):
        full = len(tiers[tier]) // FILES_PER_TIER
        if 2 <= full < _ABANDONED:  # other processes merge those before the last ones
            last = tiers[tier][(full - 1) * FILES_PER_TIER : full * FILES_PER_TIER]
            return Plan(tuple(last), False)
        if full:
            if tier == max(tiers):
                return Plan(tuple(files), True)
            few = tiers[tier] if full > 1 else tiers[tier][:FILES_PER_TIER]
            return Plan(tuple(few), False)
    return None


def compact(
    files: DataFiles, planned: Plan, before_us: int, times: CommitTimes = NO_TIMES
) -> list[DataFile]:
    """Write the rows of some files into new files, with a bounded number of rows in memory.

    Args:
        files: the files of the table.
        planned: the files to merge.
        before_us: the time until which superseded rows are dropped, in microseconds since the
            epoch.
        times: commit times of rows with wrong timestamps.

    Returns:
        The new files; they are part of the table once a version adds them.

    Raises:
        StorageError: a file cannot be read or written; the new files were deleted.
    """
    bounds = _bounds(files, planned.inputs)
    written: list[DataFile] = []
    try:
        for at in range(0, len(bounds) - 1, _FILE_RANGES):
            some = bounds[at : at + _FILE_RANGES + 1]
            wrong_times: dict[RowId, int] = {}
            ranges = _needed_ranges(
                _ranges(files, planned.inputs, some), planned, before_us, times, wrong_times
            )
            first = next(ranges, None)
            if first is not None:
                parts = _chain(first, ranges)
                written.append(files.write(parts, footer=partial(to_footer, wrong_times)))
    except BaseException:
        for file in written:
            files.delete(file)
        raise
    return written


def _tier(file: DataFile) -> int:
    return int(math.log(max(1, file.num_rows), FILES_PER_TIER) + 1e-9)


def _bounds(files: DataFiles, inputs: Sequence[DataFile]) -> list[str | None]:
    """Return group ids that divide the rows into ranges of bounded size; None at both ends."""
    total = sum(max(0, file.num_rows) for file in inputs)
    bounds: list[str | None] = [None]
    if total > _RANGE_ROWS:
        starts = sorted(start for file in inputs for start in files.row_group_starts(file))
        rows = 0
        for first_group, count in starts:
            rows += count
            if rows > _RANGE_ROWS and (bounds[-1] is None or first_group > bounds[-1]):
                bounds.append(first_group)
                rows = count
    return [*bounds, None]


def _ranges(
    files: DataFiles, inputs: Sequence[DataFile], bounds: Sequence[str | None]
) -> Iterator[pa.Table]:
    for least, end in pairwise(bounds):
        parts = [EMPTY]
        for file in inputs:
            smallest, largest = file.min_values.get("group"), file.max_values.get("group")
            if (least is not None and largest is not None and largest < least) or (
                end is not None and smallest is not None and smallest >= end
            ):
                continue
            for part in files.parts(file, least, end):
                inside = part
                if least is not None:
                    is_inside = pc.greater_equal(inside.column("group"), text_scalar(least))
                    inside = inside.filter(is_inside)
                if end is not None:
                    is_inside = pc.less(inside.column("group"), text_scalar(end))
                    inside = inside.filter(is_inside)
                parts.append(inside)
        yield pa.concat_tables(parts)


def _needed_rows(rows: pa.Table, before_us: int, *, is_full: bool) -> pa.Table:
    """Return the rows, sorted, without those that were superseded before a time."""
    rows = sort_rows(rows).combine_chunks()
    if rows.num_rows == 0:
        return rows
    followed = is_followed(rows)
    stamps = pc.cast(rows.column("commit_timestamp").combine_chunks(), pa.int64())
    next_stamps = pa.concat_arrays([stamps.slice(1), int_array([0], pa.int64())])
    before = int_scalar(before_us, pa.int64())
    drop = pc.and_(followed, pc.less_equal(next_stamps, before))
    if is_full:
        is_tombstone = pc.less(rows.column("offset"), int_scalar(0, pa.int64()))
        forgotten = pc.and_(pc.invert(followed), is_tombstone)
        forgotten = pc.and_(forgotten, pc.less_equal(stamps, before))
        drop = pc.or_(drop, forgotten)
    return rows.filter(pc.invert(drop))


def _needed_ranges(
    ranges: Iterator[pa.Table],
    planned: Plan,
    before_us: int,
    times: CommitTimes,
    wrong_times: dict[RowId, int],
) -> Iterator[pa.Table]:
    """Yield the needed rows of each range; add those with wrong timestamps to ``wrong_times``."""
    groups = text_array(list({row.group for row in times}))
    for rows in ranges:
        part = _needed_rows(rows, before_us, is_full=planned.is_full)
        if times:
            latest = part.filter(pc.invert(is_followed(part)))
            latest = latest.filter(pc.is_in(latest.column("group"), groups))
            wrong_times.update((row, times[row]) for row in row_ids(latest) if row in times)
        if part.num_rows:
            yield part


def _chain(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from others
