"""Merges at the log's end, by the processes that append (docs/adr/0013) (protocol W3).

An appender knows the newest segments: it put some of them and lost races to the others. It can
therefore merge them without listing the directory. It deletes the merged segments itself after
``file.delete.delay.ms``; if the process ends before, the cleaner deletes them.

The appender's thread decides which segments are merged, and records the result. The merge itself is
a `MergeTask`, which another thread may do.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Final

from spark_log.config import TopicConfig
from spark_log.log.append.merge_task import MergedSegment, MergeTask
from spark_log.log.directory import LogView, PartitionDirectory, SegmentTable
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.rewrite import (
    MergeCandidate,
    MergePolicy,
    RecentBatch,
    RecentBatches,
    candidates_of_view,
    segment_span_us,
)

_MAX_MERGE_BYTES: Final = 16_777_216
"""Maximum bytes merged at once."""

_MOST_LATE: Final = 4
"""Segments of the tail that are remembered while merges are late, as a multiple of
``merge.tail.segments``. Beyond that the next merge lists the log."""

_SPREAD: Final = 8
"""Divisor of ``merge.tail.segments`` that limits how much later than partition 0 others merge."""


class TailMerger:
    """Decides on the merges of one appender. Its state can be lost at any time."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        self._directory = directory
        self._config = config
        self._clock = directory.clock
        self._fan_in = config.merge_tail_segments
        # Partitions that are written together are not all merged by the same call of a producer.
        self._due = self._fan_in + directory.partition % max(1, self._fan_in // _SPREAD)
        self._policy = MergePolicy(
            segment_bytes=config.segment_bytes,
            segment_us=segment_span_us(config),
            fan_in=max(2, self._fan_in),
            most_bytes=_MAX_MERGE_BYTES,
            finishes=False,
            takes_parquet=False,
        )
        self._tail = SegmentTable(directory.path)
        self._observed_ms = 0.0
        self._listed_us, self._listed_ms = 0, 0.0
        self._has_others = False
        self._needs_listing = False
        self._merges = 0
        self._covered: list[MergedSegment] = []
        self._recent = RecentBatches()

    def on_listed(self, view: LogView) -> None:
        """Update the tail from a listing of the log."""
        if not self._fan_in:
            return
        self._recent.drop()
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
        batch: RecentBatch | None,
    ) -> None:
        """Add a segment that was appended at the log's end to the tail.

        Args:
            base_offset: the segment's first offset.
            end_offset: the offset after the segment's last offset.
            size_bytes: size of the segment's file.
            observed_ms: monotonic time when the log end offset before the segment was observed.
            is_own: whether this appender put it.
            batch: its records, if they are known and few; else None.
        """
        if not self._fan_in:
            return
        if not self._tail or self._tail.end_offset != base_offset:
            self._tail, self._observed_ms, self._has_others = self._empty(), observed_ms, False
        elif len(self._tail) >= _MOST_LATE * self._due:
            self._tail, self._needs_listing = self._empty(), True
        now_us = self._storage_time_us(self._clock.monotonic_ms())
        self._tail.append(base_offset, end_offset, size_bytes, now_us)
        self._has_others |= not is_own
        if batch is not None and self._directory.store.is_local:
            self._recent.add(base_offset, batch)

    def _storage_time_us(self, at_ms: float) -> int:
        """Return the approximate time of the storage's clock, which dates listed segments.

        This is the newest last-modified time that a listing showed, plus the monotonic time since
        that listing. It only decides which segments are too far apart to be merged
        (``segment.ms``).

        Args:
            at_ms: the monotonic time to convert.
        """
        return self._listed_us + max(0, int((at_ms - self._listed_ms) * 1000))

    @property
    def may_be_due(self) -> bool:
        """Whether `due_task` may return something; it takes no time to ask this."""
        return self._needs_listing or bool(self._covered) or len(self._tail) >= max(1, self._due)

    def due_task(self, limit_offset: float) -> MergeTask | None:
        """Return the merges and deletions that are due, once; None if nothing is due.

        Args:
            limit_offset: segments that end after this offset are not merged.

        Raises:
            CorruptRecordError: segments are missing or damaged.
            StorageError: the log could not be listed. A later call tries again.
        """
        task: MergeTask | None = None
        if self._needs_listing or len(self._tail) >= max(1, self._due):
            task = self._mergeable(limit_offset)
        deletable = self._take_deletable()
        if not deletable:
            return task
        if task is None:
            task = MergeTask(copy(self._directory), self._config, self._empty())
        return replace(task, deletable=deletable)

    def _mergeable(self, limit_offset: float) -> MergeTask | None:
        """Return the newest segments to merge, and drop them from the tail; None for no merge."""
        if self._is_remembered():
            candidates = [
                MergeCandidate(0, size_bytes, base_offset, end, us, us)
                for base_offset, end, size_bytes, us in self._tail.rows()
            ]
            runs = self._runs(candidates, limit_offset)
            segments, start, end = self._tail, self._tail.start_offset, self._tail.end_offset
            observed_ms = self._observed_ms
            recent = [
                self._recent.take(row[:3] for row in segments.part(run).rows()) for run in runs
            ]
        else:
            view = self._observe()
            candidates = candidates_of_view(view)
            runs = self._runs(candidates, limit_offset)
            listed: Sequence[LiveSegment] = ()
            if runs:
                first = runs[0].start
                listed = view.live.segments[first : runs[-1].stop]
                runs = [range(each.start - first, each.stop - first) for each in runs]
            segments = SegmentTable(self._directory.path, listed)
            start, end = view.log_start_offset, view.log_end_offset
            observed_ms = view.observed_ms
            recent = []
        if runs or len(candidates) >= self._fan_in:
            self._tail = self._tail.behind(limit_offset)
        if not runs:
            return None
        backlog = max(1, sum(map(len, runs)) // self._policy.fan_in)
        return MergeTask(
            copy(self._directory),
            self._config,
            segments,
            start,
            end,
            observed_ms,
            runs,
            backlog,
            recent=recent,
        )

    def _runs(self, candidates: list[MergeCandidate], limit: float) -> Sequence[range]:
        """Return the runs of candidates to merge; remove candidates that end after a limit."""
        while candidates and candidates[-1].end_offset > limit:
            candidates.pop()
        return self._policy.runs(candidates)

    def on_merged(self, merged: Sequence[MergedSegment]) -> None:
        """Update the state from segments that a task has made."""
        self._covered.extend(merged)
        # An occasional listing shows whether enough merged segments wait to be merged again.
        self._merges += len(merged)
        if self._merges >= self._fan_in and merged:
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

    def _take_deletable(self) -> list[SegmentTable]:
        """Return segments that a merge of this appender has covered for long enough."""
        found: list[SegmentTable] = []
        while self._covered and self._covered[0].deletable_ms <= self._clock.monotonic_ms():
            found.append(self._covered.pop(0).covered)
        return found
