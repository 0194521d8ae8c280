"""The files that a listing of a partition's directory offers to its table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from spark_log.log.files import LiveLog, SegmentName, live_log, spent_segments
from spark_log.storage import FileInfo
from spark_log.table.topic_table import end_offset


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction that is complete: its files reach the end that it named (protocol B5).

    Attributes:
        generation: the compaction's generation.
        end: the end that it named: the files have the last record of each key before this offset.
        files: the files, in offset order; later passes, which only removed tombstones, may have
            rewritten some.
    """

    generation: int
    end: int
    files: tuple[SegmentName, ...]


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files that one listing offers; it began after the table's version was read (protocol B4).

    Attributes:
        log_start_offset: the log start offset.
        segments: the Parquet segments that are not spent.
        compaction: the newest compaction, if it is complete and all its files are Parquet.
    """

    log_start_offset: int
    segments: tuple[SegmentName, ...] = ()
    compaction: Compaction | None = None


def log_files(
    files: Iterable[FileInfo], parquet: Collection[SegmentName], named_end: int | None
) -> LogFiles:
    """Return the files that a listing of a partition's directory offers to the table.

    Args:
        files: the listing; it took less than half of ``file.delete.delay.ms``.
        parquet: the segments in it that are Parquet.
        named_end: the end that the newest generation in the listing names; None if it names none.
    """
    files = list(files)
    live = live_log(files)
    offered = unspent(files, parquet)
    compaction = None if named_end is None else complete_compaction(live, named_end)
    if compaction is not None and not offered.issuperset(compaction.files):
        compaction = None
    return LogFiles(
        live.log_start_offset,
        tuple(sorted(offered, key=lambda name: (name.base_offset, name.generation))),
        compaction,
    )


def unspent(files: Iterable[FileInfo], parquet: Collection[SegmentName]) -> set[SegmentName]:
    """Return the Parquet segments that are not spent: the others may be freed (protocol B4)."""
    return set(parquet).difference(spent_segments(files))


def complete_compaction(live: LiveLog, end: int) -> Compaction | None:
    """Return the newest compaction if its files reach its end (protocol B5).

    A compaction is not offered any more when a later one, finished or not, has taken a generation:
    the later one may have read the table before, and removes tombstones (protocol B13).
    """
    names = []
    position = live.log_start_offset
    for segment in live.segments:
        is_clean = live.clean_generation <= segment.name.generation <= live.compaction_generation
        if not (segment.name.is_compacted and is_clean) or position >= end:
            break
        if segment.name.base_offset < segment.start_offset != live.log_start_offset:
            break  # another file replaces its first part, so it cannot be added as a whole
        names.append(segment.name)
        position = end_offset(segment.name)
    if not names or position != end:
        return None
    return Compaction(live.compaction_generation, end, tuple(names))
