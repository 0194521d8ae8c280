"""The live log: the files of a partition's directory that are part of the log.

One listing decides it, by pure functions over file names (protocol L1, L2, L3, L4, L5). Segments
form a chain from the log start offset to the log end offset. A file that the chain does not reach
is not part of the log, no matter who wrote it and when. Examples are a put that was delivered late,
an orphan, and a segment that a rewritten one covers and that waits for its deletion:
`spent_segments` finds the ones that readers need no longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_log.log.files.file_names import (
    GENERATION_BYTES,
    MAX_MERGE_GENERATION,
    SegmentName,
    StartMarker,
    parse_generation_name,
    parse_snapshot_name,
)
from spark_log.storage import FileInfo, newest_modified_us


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A segment of the live log.

    Attributes:
        name: parsed file name.
        file: the file's name, size and time in the listing.
        start_offset: first offset that is read from the segment. This is its base offset, unless
            the log start offset or an earlier rewritten segment cuts off its beginning.
        end_offset: the offset after the segment's last. None for the last plain segment of the log,
            whose last batch header alone contains it.
    """

    name: SegmentName
    file: FileInfo
    start_offset: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class LiveLog:
    """The chain of segments that one listing shows.

    Attributes:
        log_start_offset: offset of the highest start marker; 0 without one.
        segments: in offset order, without gaps; empty for an empty log.
        base_after_gap: base offset of the first segment behind a gap; None without a gap. The chain
            ends at a gap. Either a segment is lost, or it appeared during the listing.
        snapshots: offsets of the snapshots that the listing shows, in ascending order.
        compaction_generation: the highest generation that a compaction has reserved
            (`log.clean.generations`).
        clean_generation: generation of the newest compaction that read all keys. Later ones
            only removed tombstones. Equal to ``compaction_generation`` if there are none.
        newest_us: the newest last-modified time of the listing, microseconds since the epoch. It is
            never later than the storage's present time. 0 for an empty directory.
        reached_offset: the log has reached at least this offset. Snapshots, indexes, and a start
            marker inside a segment show it. If the log ends before it, segments were removed.
        last_before_start: the last segment before the start of an emptied log if no snapshot has
            this start's offset, else None. Unless the segment ends at the start, the marker is
            another log's: a snapshot is written before a start is moved, and offsets have no gaps.
    """

    log_start_offset: int
    segments: Sequence[LiveSegment]
    base_after_gap: int | None = None
    snapshots: tuple[int, ...] = ()
    compaction_generation: int = MAX_MERGE_GENERATION
    clean_generation: int = MAX_MERGE_GENERATION
    newest_us: int = 0
    reached_offset: int = 0
    last_before_start: LiveSegment | None = None

    @property
    def chain_end_offset(self) -> int:
        """End offset of the last segment; its start offset if the listing does not show its end."""
        if not self.segments:
            return self.log_start_offset
        last = self.segments[-1]
        return last.start_offset if last.end_offset is None else last.end_offset

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that contains ``offset``; -1 if all begin later."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.start_offset) - 1

    def appeared_us(self, offset: int) -> int:
        """Return when the record at an offset was appended by the storage's clock, or a later time.

        The time is later if the record's segment was rewritten. If the record was deleted, the
        newest time of the listing is returned.
        """
        index = self.index_of(offset)
        return self.newest_us if index < 0 else self.segments[index].file.modified_us


def live_log(files: Iterable[FileInfo]) -> LiveLog:
    """Return the log that a listing of a partition's directory shows.

    At each offset the chain continues with the rewritten segment that contains it: the one of the
    highest generation, then the widest, then the one that begins first; of a Parquet and an Arrow
    file that are equal in all this, the Parquet file. Without a rewritten segment it continues with
    the plain segment whose base offset is exactly this offset. At the log start offset alone, a
    plain segment may be entered in its middle: the one that the start marker names.
    """
    files = list(files)
    plain: dict[int, FileInfo] = {}
    rewritten: list[tuple[SegmentName, FileInfo]] = []
    others: list[FileInfo] = []
    for file in files:
        name = SegmentName.parse(file.name)
        if name is None:
            others.append(file)
        elif name.last_offset is None:
            plain[name.base_offset] = file
        else:
            rewritten.append((name, file))
    start, snapshots, min_end, taken = _read_others(others)
    compaction = max([MAX_MERGE_GENERATION, *taken, *(name.generation for name, _ in rewritten)])
    rewritten.sort(key=lambda pair: pair[0].base_offset)
    starts = sorted({*plain, *(name.base_offset for name, _ in rewritten)})

    chain: list[LiveSegment] = []
    position = start.log_start_offset
    candidates: list[tuple[SegmentName, FileInfo]] = []
    next_rewritten = 0
    while True:
        while (
            next_rewritten < len(rewritten) and rewritten[next_rewritten][0].base_offset <= position
        ):
            candidates.append(rewritten[next_rewritten])
            next_rewritten += 1
        candidates = [pair for pair in candidates if _last_offset(pair[0]) >= position]
        if candidates:
            name, file = max(candidates, key=lambda pair: pair[0].precedence)
            end = _last_offset(name) + 1
            chain.append(LiveSegment(name, file, position, end))
            position = end
            continue
        following = bisect_right(starts, position)
        next_start = starts[following] if following < len(starts) else None
        at_start = position == start.log_start_offset
        base = start.segment_base_offset if at_start else position
        if base not in plain:
            break
        # A plain segment that nothing covers ends where the next file begins. So only the last
        # segment has to be opened to know its end.
        chain.append(LiveSegment(SegmentName(base), plain[base], position, next_start))
        if next_start is None:
            break
        position = next_start
    is_told = position <= max(snapshots, default=0) or start.segment_base_offset < position
    return LiveLog(
        start.log_start_offset,
        tuple(chain),
        next_start,
        tuple(sorted(snapshots)),
        compaction,
        _clean_generation(compaction, taken.get(compaction)),
        newest_modified_us(files),
        max(min_end, *snapshots, _min_end_by_marker(start, chain)),
        None if chain or next_start or is_told else _last_before(files, start),
    )


def spent_segments(
    files: Iterable[FileInfo], appeared_before_us: float = float("inf")
) -> Iterator[SegmentName]:
    """Yield the segments of a listing whose names are spent.

    A segment is spent when a rewritten segment covers it, or a start marker is above it. Both are
    durable, so the name stays spent. The file may be deleted ``file.delete.delay.ms`` after its
    name became spent. Until then writers rely on the fact that the name is in use.

    Args:
        files: the listing.
        appeared_before_us: yield only segments that became spent before this time, in microseconds
            since the epoch, by the storage's clock.
    """
    files = list(files)
    names = [name for file in files if (name := SegmentName.parse(file.name))]
    markers = [marker for file in files if (marker := StartMarker.parse(file.name))]
    old = {file.name for file in files if file.modified_us <= appeared_before_us}
    start = max(markers, key=lambda marker: marker.log_start_offset, default=StartMarker(0, 0))
    rewritten = [name for name in names if name.generation and name.file_name in old]
    is_start_covered = any(
        name.base_offset <= start.log_start_offset <= (name.last_offset or 0) for name in rewritten
    )
    old_start = max(
        (marker.log_start_offset for marker in markers if marker.name in old), default=0
    )
    for name in names:
        last_offset = name.base_offset if name.last_offset is None else name.last_offset
        is_entry = not name.generation and name.base_offset == start.segment_base_offset
        is_behind = last_offset < old_start and (not is_entry or is_start_covered)
        if is_behind or any(_covers(other, name, old_start) for other in rewritten):
            yield name


def _read_others(
    files: Iterable[FileInfo],
) -> tuple[StartMarker, list[int], int, dict[int, FileInfo]]:
    """Parse the names of the files that are not segments.

    Returns:
        The highest start marker; the offsets of the snapshots; the lowest log end offset that the
        indexes show; and the generations' files.
    """
    start = StartMarker(0, 0)
    snapshots: list[int] = []
    min_end = 0
    taken: dict[int, FileInfo] = {}
    for file in files:
        marker = StartMarker.parse(file.name)
        if marker is not None and marker.log_start_offset >= start.log_start_offset:
            start = marker
        snapshot = parse_snapshot_name(file.name)
        if snapshot is not None:
            snapshots.append(snapshot)
        generation = parse_generation_name(file.name)
        if generation is not None:
            taken[generation] = file
        min_end = max(min_end, _min_end_by_index(file.name))
    return start, snapshots, min_end, taken


def _clean_generation(newest: int, taken: FileInfo | None) -> int:
    """Return the generation of the newest compaction which read all keys.

    The size of the newest generation's file shows how many generations lie between the two.
    """
    passes = 0 if taken is None else max(0, taken.size_bytes - GENERATION_BYTES)
    return max(MAX_MERGE_GENERATION, newest - passes)


def _min_end_by_marker(start: StartMarker, chain: list[LiveSegment]) -> int:
    """Return a lower bound of the log end offset if the start marker's segment is missing; else 0.

    A marker inside a segment shows that this segment held at least one record behind it.
    """
    is_missing = not chain and start.segment_base_offset < start.log_start_offset
    return start.log_start_offset + 1 if is_missing else 0


def _last_before(files: Sequence[FileInfo], start: StartMarker) -> LiveSegment | None:
    """Return the last segment of the log that the listing would show without a start marker.

    Returns:
        The segment; None if the other files are no whole log, since names before the start were
        freed. A file before the start may then be a put that was delivered late.
    """
    before = live_log(file for file in files if file.name != start.name)
    is_log = before.segments and before.base_after_gap is None
    return before.segments[-1] if is_log else None


def _min_end_by_index(name: str) -> int:
    """Return the lowest end offset that the segment of an index can have; 0 for other files."""
    segment = SegmentName.parse_index(name)
    if segment is None:
        return 0
    return 1 + (segment.base_offset if segment.last_offset is None else segment.last_offset)


def _last_offset(name: SegmentName) -> int:
    assert name.last_offset is not None
    return name.last_offset


def _covers(rewritten: SegmentName, name: SegmentName, start_offset: int) -> bool:
    """Return whether readers read all offsets of ``name`` from ``rewritten``.

    Offsets before the log's start do not count.
    """
    assert rewritten.last_offset is not None
    if name.last_offset is None:
        return rewritten.base_offset <= name.base_offset <= rewritten.last_offset
    return (
        rewritten.base_offset <= max(name.base_offset, start_offset)
        and name.last_offset <= rewritten.last_offset
        and rewritten.precedence > name.precedence
    )
