"""Merges at the log's end, by the processes that append (docs/adr/0013).

An appender knows the newest segments: it put some of them and lost races to the others. It can
therefore merge them without listing the directory. It deletes the merged segments itself after
``file.delete.delay.ms``; if the process ends before, the cleaner deletes them.

The appender's thread decides which segments are merged, and records the result. The merge itself is
a `TailWork`, which another thread may do, as it shares no state with the appender.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError, OffsetOutOfRangeError
from spark_log.log.directory import LogView, PartitionDirectory, SegmentTable
from spark_log.log.files import LiveLog, LiveSegment, SegmentName
from spark_log.log.rewrite import (
    MergeCandidate,
    MergePolicy,
    candidates_of_view,
    delete_segments,
    merge,
)
from spark_log.log.segment import SegmentSummary

_MAX_MERGE_BYTES: Final = 16_777_216
"""Maximum bytes merged at once."""

_MOST_LATE: Final = 4
"""Segments of the tail that are remembered while merges are late, as a multiple of
``merge.tail.segments``. Beyond that the next merge lists the log."""

_SPREAD: Final = 8
"""Divisor of ``merge.tail.segments`` that limits how much later than partition 0 others merge."""


@dataclass(frozen=True, slots=True)
class TailMerge:
    """A merged segment.

    Attributes:
        summary: the merged segment's summary.
        covered: the segments that were merged into it.
        deletable_ms: monotonic time from which the covered segments may be deleted.
    """

    summary: SegmentSummary
    covered: SegmentTable
    deletable_ms: float


@dataclass(frozen=True, slots=True)
class TailWork:
    """Merges and deletions that are due at a log's end. Nothing in it changes.

    Attributes:
        directory: a copy of the partition's directory, for this work alone. Later appends do not
            change it.
        segments: the tail's segments; empty if none are to be merged.
        log_start_offset: the log start offset, or the first offset of ``segments``.
        log_end_offset: the log end offset, or the end offset of ``segments``.
        observed_ms: monotonic time before the log was listed.
        runs: ranges of indexes of ``segments``; each range is merged into one segment.
        backlog: number of segments to merge, in multiples of ``merge.tail.segments``; at least 1.
        deletable: segments that may be deleted.
    """

    directory: PartitionDirectory
    segments: SegmentTable
    log_start_offset: int
    log_end_offset: int
    observed_ms: float
    runs: Sequence[range]
    backlog: int
    deletable: Sequence[SegmentTable]

    @property
    def view(self) -> LogView:
        """A view of the segments."""
        live = LiveLog(self.log_start_offset, self.segments)
        return LogView(live, self.log_end_offset, self.observed_ms, origin=self.directory.url)


class TailMerger:
    """The merges of one appender. Its state can be lost at any time.

    Attributes:
        limit_offset: segments that end after this offset are not merged.
    """

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        self.limit_offset: float = math.inf
        self._directory = directory
        self._config = config
        self._clock = directory.clock
        self._fan_in = config.merge_tail_segments
        # Partitions that are written together are not all merged by the same call of a producer.
        self._due = self._fan_in + directory.partition % max(1, self._fan_in // _SPREAD)
        self._policy = MergePolicy(
            segment_bytes=config.segment_bytes,
            segment_us=config.segment_ms * 1000,
            fan_in=max(2, self._fan_in),
            most_bytes=_MAX_MERGE_BYTES,
            finishes=False,
        )
        self._tail = SegmentTable(directory.path)
        self._observed_ms = 0.0
        self._listed_us, self._listed_ms = 0, 0.0
        self._has_others = False
        self._needs_listing = False
        self._merges = 0
        self._covered: list[TailMerge] = []

    def on_listed(self, view: LogView) -> None:
        """Update the tail from a listing of the log."""
        if not self._fan_in:
            return
        candidates = candidates_of_view(view)
        self._listed_us = max(self._storage_time_us(view.observed_ms), view.live.newest_us)
        self._listed_ms = view.observed_ms
        self._needs_listing = bool(self._policy.runs(candidates))
        self._tail, self._observed_ms, self._has_others = self._empty(), view.observed_ms, False
        first = len(candidates)
        while (
            first
            and not candidates[first - 1].generation
            and len(candidates) - first < self._fan_in
        ):
            first -= 1
        for each in candidates[first:]:
            self._tail.append(each.base_offset, each.end_offset, each.size_bytes, each.last_us)

    def on_appended(
        self,
        base_offset: int,
        end_offset: int,
        size_bytes: int,
        *,
        observed_ms: float,
        is_own: bool,
    ) -> None:
        """Add a segment that was appended at the log's end to the tail.

        Args:
            base_offset: the segment's first offset.
            end_offset: the offset after the segment's last offset.
            size_bytes: size of the segment's file.
            observed_ms: monotonic time when the log end offset before the segment was observed.
            is_own: whether this appender put the segment.
        """
        if not self._fan_in:
            return
        if not self._tail or self._tail.end_offset != base_offset:
            self._tail, self._observed_ms, self._has_others = self._empty(), observed_ms, False
        elif len(self._tail) >= _MOST_LATE * self._due:
            self._tail, self._needs_listing = self._empty(), True
        now_us = self._storage_time_us(self._clock.monotonic_ms())
        self._tail.append(base_offset, end_offset, size_bytes, now_us)
        self._has_others = self._has_others or not is_own

    def _storage_time_us(self, at_ms: float) -> int:
        """Return the approximate time of the storage's clock, which dates listed segments.

        This is the newest last-modified time that a listing showed, plus the monotonic time since
        that listing. It only decides which segments are too far apart to be merged
        (``segment.ms``).

        Args:
            at_ms: the monotonic time to convert.
        """
        return self._listed_us + max(0, int((at_ms - self._listed_ms) * 1000))

    def merge_if_due(self, end_offset: float = math.inf) -> list[SegmentSummary]:
        """Merge the newest segments if they are enough, and return the merged segments.

        Raises:
            NotFoundError, CorruptRecordError, StorageError, InvalidRecordError: See `run`.
        """
        work = self.due_work(end_offset)
        merges: list[TailMerge] = []
        try:
            if work is not None:
                merges += self.run(work)
        finally:
            self.on_merged(merges)
        return [each.summary for each in merges]

    def due_work(self, end_offset: float = math.inf) -> TailWork | None:
        """Return the merges and deletions that are due, once; None if nothing is due.

        Args:
            end_offset: segments that end after this offset, or after `limit_offset`, are not
                merged.

        Raises:
            CorruptRecordError: segments are missing or damaged.
            StorageError: the log could not be listed. A later call tries again.
        """
        work: TailWork | None = None
        deletable: Sequence[SegmentTable] = ()
        if self._needs_listing or len(self._tail) >= max(1, self._due):
            work = self._mergeable(end_offset)
        deletable = self._take_deletable()
        if work is not None:
            return replace(work, deletable=deletable)
        if not deletable:
            return None
        return TailWork(copy(self._directory), self._empty(), 0, 0, 0, (), 1, deletable)

    def _mergeable(self, end_offset: float) -> TailWork | None:
        """Return the newest segments to merge, and drop them from the tail; None for no merge."""
        limit = min(self.limit_offset, end_offset)
        if self._is_remembered():
            candidates = [
                MergeCandidate(0, size_bytes, base_offset, end, us, us)
                for base_offset, end, size_bytes, us in self._tail.rows()
            ]
            runs = self._runs(candidates, limit)
            segments, start, end = self._tail, self._tail.start_offset, self._tail.end_offset
            observed_ms = self._observed_ms
        else:
            view = self._observe()
            candidates = candidates_of_view(view)
            runs = self._runs(candidates, limit)
            listed: Sequence[LiveSegment] = ()
            if runs:
                first = runs[0].start
                listed = view.live.segments[first : runs[-1].stop]
                runs = [range(each.start - first, each.stop - first) for each in runs]
            segments = SegmentTable(self._directory.path, listed)
            start, end = view.log_start_offset, view.log_end_offset
            observed_ms = view.observed_ms
        if runs or len(candidates) >= self._fan_in:
            self._tail = self._tail.behind(limit)
        if not runs:
            return None
        backlog = max(1, sum(map(len, runs)) // self._policy.fan_in)
        return TailWork(copy(self._directory), segments, start, end, observed_ms, runs, backlog, ())

    def _runs(self, candidates: list[MergeCandidate], limit: float) -> Sequence[range]:
        """Return the runs of candidates to merge; remove candidates that end after a limit."""
        while candidates and candidates[-1].end_offset > limit:
            candidates.pop()
        return self._policy.runs(candidates)

    def run(
        self, work: TailWork, on_progress: Callable[[int], None] = lambda done_bytes: None
    ) -> Iterator[TailMerge]:
        """Merge and delete, and yield each merged segment. Any thread may call it at any time.

        Args:
            work: the work to do, from `due_work`.
            on_progress: called with numbers of bytes as they are read and written; may block.

        Raises:
            NotFoundError, CorruptRecordError: segments are missing or damaged. A segment that was
                observed so recently was not deleted by a cleaner.
            StorageError, InvalidRecordError: segments could not be merged, or merged ones could not
                be deleted. A cleaner does it later.
        """
        with suppress(OffsetOutOfRangeError):  # the log's start has moved
            view = work.view
            for each in work.runs:
                try:
                    yield self._merge(work.directory, view, each, on_progress)
                except NotFoundError:
                    if not work.directory.is_outdated(work.observed_ms):
                        raise
                    break
        deletable = [
            (segment.name, segment.file.size_bytes > self._config.index_interval_bytes)
            for each in work.deletable
            for segment in each
        ]
        if deletable:
            delete_segments(work.directory, deletable)

    def on_merged(self, merges: Sequence[TailMerge]) -> None:
        """Update the state from merges that were made."""
        self._covered.extend(merges)
        # An occasional listing shows whether enough merged segments wait to be merged again.
        self._merges += len(merges)
        if self._merges >= self._fan_in and merges:
            self._merges, self._needs_listing = 0, True

    def _empty(self) -> SegmentTable:
        return SegmentTable(self._directory.path)

    def _is_remembered(self) -> bool:
        """Return whether the tail can be used; if not, the log has to be listed.

        In a usable tail no segment can have been deleted since the log was observed.
        """
        if self._needs_listing or self._directory.is_outdated(self._observed_ms):
            return False
        if self._has_others:
            self._drop_merged_by_others()
        return True

    def _drop_merged_by_others(self) -> None:
        """Remove segments that another appender has merged from the tail, except the last one.

        Two appenders may merge the same segments without harm, but one of the merges is wasted.
        """
        start, end = self._tail.start_offset, self._tail.end_offset
        # Another appender's merged segment may begin before this tail, but is rarely twice as long.
        start_after = f"{max(0, start - (end - start)):020d}"
        listed = self._directory.store.list(self._directory.path, start_after=start_after)
        names = (SegmentName.parse(file.name) for file in listed)
        ends = (name.last_offset for name in names if name and name.last_offset is not None)
        self._tail = self._tail.without(max(ends, default=-1))

    def _observe(self) -> LogView:
        view = self._directory.observe()
        self.on_listed(view)
        self._needs_listing = False
        return view

    def _merge(
        self,
        directory: PartitionDirectory,
        view: LogView,
        run: range,
        on_progress: Callable[[int], None],
    ) -> TailMerge:
        interval_bytes = self._config.index_interval_bytes
        merged = merge(
            directory,
            view,
            run[0],
            run[-1],
            index_interval_bytes=interval_bytes,
            on_progress=on_progress,
        )
        resolution_ms = directory.store.time_resolution_us / 1000
        delay_ms = self._config.file_delete_delay_ms + resolution_ms
        covered = SegmentTable(directory.path, view.live.segments[run.start : run.stop])
        return TailMerge(merged, covered, self._clock.monotonic_ms() + delay_ms)

    def _take_deletable(self) -> list[SegmentTable]:
        """Return segments that a merge of this appender has covered for long enough."""
        found: list[SegmentTable] = []
        while self._covered and self._covered[0].deletable_ms <= self._clock.monotonic_ms():
            found.append(self._covered.pop(0).covered)
        return found
