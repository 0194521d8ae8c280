"""Which files of a directory are the log: decided by one listing (DESIGN.md, section 5).

Pure functions over names. A file that the chain does not reach is not part of the log, whoever
made it and whenever: a put delivered late, an orphan, a covered segment that waits for deletion.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from spark_log.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_MERGE_GENERATION,
    TIME_INDEX_SUFFIX,
    SegmentName,
    StartMarker,
    parse_generation_name,
    parse_snapshot_name,
)
from spark_log.storage import FileInfo, newest_modified_us


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A segment that counts, and from which offset on.

    Attributes:
        name: what its file name says.
        file: as the listing showed it.
        start_offset: the first offset that is read from it; its base, but for one that the log
            start or an earlier rewritten segment cuts.
        end_offset: the offset after its last; None for the log's last plain segment, where only
            the file itself knows.
    """

    name: SegmentName
    file: FileInfo
    start_offset: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class LiveLog:
    """The chain of segments that one listing shows.

    Attributes:
        log_start_offset: from the highest start marker, 0 without one.
        segments: in offset order, without a gap; empty for an empty log.
        base_after_gap: base offset of the first segment behind a gap, which the chain does not
            cross; None without a gap. Either a segment is lost, or it appeared during the listing.
        snapshots: offsets of the snapshots that the listing shows, in order.
        compaction_generation: the highest generation that a compaction has taken
            (`log.clean.generations`).
        newest_us: the newest last-modified time of the listing, microseconds since the epoch: the
            storage's present time or earlier. 0 for an empty directory.
        witnessed_offset: the log reached this offset at least, as other files than segments tell:
            snapshots, indexes, and a start marker inside of a segment. Where it lies behind the
            log's end, segments were removed.
    """

    log_start_offset: int
    segments: tuple[LiveSegment, ...]
    base_after_gap: int | None = None
    snapshots: tuple[int, ...] = ()
    compaction_generation: int = MAX_MERGE_GENERATION
    newest_us: int = 0
    witnessed_offset: int = 0

    @property
    def chain_end_offset(self) -> int:
        """Where the next segment would begin; of a plain last one, where it begins itself."""
        if not self.segments:
            return self.log_start_offset
        last = self.segments[-1]
        return last.start_offset if last.end_offset is None else last.end_offset

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that ``offset`` would be read from, -1 if before all."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.start_offset) - 1

    def appeared_us(self, offset: int) -> int:
        """Return when what is at an offset appeared, by the storage's clock, or a later time.

        Later where it was rewritten since; the listing's newest time where it is deleted.
        """
        index = self.index_of(offset)
        return self.newest_us if index < 0 else self.segments[index].file.modified_us


def live_log(files: Iterable[FileInfo]) -> LiveLog:
    """Return the log that a listing of a partition's directory shows.

    At each offset the file that counts is the rewritten segment of the highest generation that
    contains it (then the widest), else the plain segment whose base is exactly this offset. Only at
    the start marker is a plain segment entered in its middle, and only the one that the marker
    names.
    """
    files = list(files)
    start = StartMarker(0, 0)
    plain: dict[int, FileInfo] = {}
    rewritten: list[tuple[SegmentName, FileInfo]] = []
    snapshots: list[int] = []
    compaction = MAX_MERGE_GENERATION
    reached: list[int] = []
    for file in files:
        name = SegmentName.parse(file.name)
        if name is None:
            marker = StartMarker.parse(file.name)
            if marker is not None and marker.log_start_offset >= start.log_start_offset:
                start = marker
            snapshot = parse_snapshot_name(file.name)
            if snapshot is not None:
                snapshots.append(snapshot)
            reached.append(_end_of_indexed(file.name))
            compaction = max(compaction, parse_generation_name(file.name) or 0)
        elif name.last_offset is None:
            plain[name.base_offset] = file
        else:
            rewritten.append((name, file))
            compaction = max(compaction, name.generation)
    rewritten.sort(key=lambda pair: pair[0].base_offset)
    starts = sorted({*plain, *(name.base_offset for name, _ in rewritten)})

    chain: list[LiveSegment] = []
    position = start.log_start_offset
    candidates: list[tuple[SegmentName, FileInfo]] = []
    unseen = 0
    while True:
        while unseen < len(rewritten) and rewritten[unseen][0].base_offset <= position:
            candidates.append(rewritten[unseen])
            unseen += 1
        candidates = [pair for pair in candidates if _last_offset(pair[0]) >= position]
        if candidates:
            name, file = max(candidates, key=lambda pair: _preference(pair[0]))
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
        # A plain segment that nothing covers ends where the next file begins: only the last one
        # has to be opened to know its end.
        chain.append(LiveSegment(SegmentName(base), plain[base], position, next_start))
        if next_start is None:
            break
        position = next_start
    return LiveLog(
        start.log_start_offset,
        tuple(chain),
        next_start,
        tuple(sorted(snapshots)),
        compaction,
        newest_modified_us(files),
        max(0, *reached, *snapshots, _end_of_entered(start, chain)),
    )


def _end_of_entered(start: StartMarker, chain: list[LiveSegment]) -> int:
    """Return how far the log reaches at least where it starts inside of a segment; else 0."""
    is_missing = not chain and start.segment_base_offset < start.log_start_offset
    return start.log_start_offset + 1 if is_missing else 0


def _end_of_indexed(name: str) -> int:
    """Return the offset behind what an index's name says of its segment; 0 for other files."""
    if not name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
        return 0
    segment = SegmentName.parse(name.rpartition(".")[0] + LOG_SUFFIX)
    if segment is None:
        return 0
    return 1 + (segment.base_offset if segment.last_offset is None else segment.last_offset)


def _last_offset(name: SegmentName) -> int:
    assert name.last_offset is not None
    return name.last_offset


def _preference(name: SegmentName) -> tuple[int, int]:
    return name.generation, _last_offset(name) - name.base_offset
