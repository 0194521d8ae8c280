"""Merging at the log's end, by those who append (DESIGN.md, section 6).

An appender knows what it put, and to whom it lost races: so it merges the newest segments without
listing the directory, and frees their names itself when they may be. What it has forgotten, since
it died, say, is left to the cleaner.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Final

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError, OffsetOutOfRangeError
from spark_log.log.clean.file_deletion import delete_segments
from spark_log.log.clean.merge_policy import MergeCandidate, MergePolicy, candidates_of_view
from spark_log.log.clean.merger import merge
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveLog, LiveSegment
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.storage import FileInfo

_MOST_BYTES: Final = 16_777_216
"""Merged at once, so that no append waits for longer than this takes."""

_COARSE_MS: Final = 1_000
"""Some storages tell the time in whole seconds."""


class TailMerger:
    """One appender's merges. It can be forgotten at any time."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        self._directory = directory
        self._config = config
        self._clock = directory.clock
        self._fan_in = config.merge_tail_segments
        self._policy = MergePolicy(
            segment_bytes=config.segment_bytes,
            segment_us=config.segment_ms * 1000,
            fan_in=max(2, self._fan_in),
            most_bytes=_MOST_BYTES,
            finishes=False,
        )
        self._tail: list[MergeCandidate] = []
        self._observed_ms = 0.0
        self._shown_us, self._shown_ms = 0, 0.0
        self._has_anothers = False
        self._has_to_look = False
        self._merges = 0
        self._spent: deque[tuple[float, list[tuple[SegmentName, bool]]]] = deque()

    def saw(self, view: LogView) -> None:
        """Take in what a look at the log showed."""
        if not self._fan_in:
            return
        candidates = candidates_of_view(view)
        self._shown_us = max(self._storage_time_us(view.observed_ms), view.live.newest_us)
        self._shown_ms = view.observed_ms
        self._has_to_look = bool(self._policy.runs(candidates))
        self._tail, self._observed_ms, self._has_anothers = [], view.observed_ms, False
        while candidates and not candidates[-1].generation and len(self._tail) < self._fan_in:
            self._tail.append(candidates.pop())
        self._tail.reverse()

    def came(
        self,
        base_offset: int,
        end_offset: int,
        size_bytes: int,
        *,
        observed_ms: float,
        is_own: bool,
    ) -> None:
        """Take in a segment that was appended at the log's end.

        Args:
            base_offset: its first offset.
            end_offset: the offset after its last.
            size_bytes: of its file.
            observed_ms: when the log's end before it was known, by the monotonic clock.
            is_own: whether this appender put it.
        """
        if not self._fan_in:
            return
        if not self._tail or self._tail[-1].end_offset != base_offset:
            self._tail, self._observed_ms, self._has_anothers = [], observed_ms, False
        now_us = self._storage_time_us(self._clock.monotonic_ms())
        self._tail.append(MergeCandidate(0, size_bytes, base_offset, end_offset, now_us, now_us))
        self._has_anothers = self._has_anothers or not is_own

    def _storage_time_us(self, at_ms: float) -> int:
        """Return about what time it is by the storage's clock, which dates all other segments.

        The newest time that a listing showed, and what has passed since on the monotonic clock.
        By this segments are kept apart (``segment.ms``), nothing else.
        """
        return self._shown_us + max(0, int((at_ms - self._shown_ms) * 1000))

    def merge_if_due(self) -> list[SegmentSummary]:
        """Merge the log's end if it is time, and return what came of it.

        Raises:
            StorageError, CorruptRecordError, InvalidRecordError: it could not be merged, or names
                could not be freed; the next one may.
        """
        self._free()
        if not self._has_to_look and len(self._tail) < max(1, self._fan_in):
            return []
        view = self._known() or self._look()
        runs = self._policy.runs(candidates_of_view(view))
        if runs or len(self._tail) >= self._fan_in:
            self._tail = []
        made: list[SegmentSummary] = []
        with suppress(NotFoundError, OffsetOutOfRangeError):  # another was first
            made += (self._merge(view, run) for run in runs)
        # Whether there are enough merged ones to be merged in turn, a look tells now and then.
        self._merges += len(made)
        if self._merges >= self._fan_in:
            self._merges, self._has_to_look = 0, True
        return made

    def _known(self) -> LogView | None:
        """Return a view of the tail as it is remembered, None where a look is needed.

        A name that was part of the log when it was observed cannot have been freed since.
        """
        if self._has_to_look or self._directory.is_outdated(self._observed_ms):
            return None
        if self._has_anothers:
            self._leave_out_merged()
        segments = tuple(
            LiveSegment(
                name := SegmentName(each.base_offset),
                FileInfo(self._directory.file_path(name.log), each.size_bytes, each.last_us),
                each.base_offset,
                each.end_offset,
            )
            for each in self._tail
        )
        start, end = self._tail[0].base_offset, self._tail[-1].end_offset
        return LogView(LiveLog(start, segments), end, self._observed_ms)

    def _leave_out_merged(self) -> None:
        """Forget what another appender has merged already, but for the last segment.

        Two that do the same at once do no harm; but they would do all the work twice.
        """
        start, end = self._tail[0].base_offset, self._tail[-1].end_offset
        # Theirs may begin before ours, but is hardly longer than twice as long.
        start_after = f"{max(0, start - (end - start)):020d}"
        listed = self._directory.store.list(self._directory.path, start_after=start_after)
        names = (SegmentName.parse(file.name) for file in listed)
        ends = (name.last_offset for name in names if name and name.last_offset is not None)
        merged_to = max(ends, default=-1)
        *before, last = self._tail
        self._tail = [*(each for each in before if each.base_offset > merged_to), last]

    def _look(self) -> LogView:
        view = self._directory.observe()
        self.saw(view)
        self._has_to_look = False
        return view

    def _merge(self, view: LogView, run: range) -> SegmentSummary:
        merged = merge(
            self._directory,
            view,
            run[0],
            run[-1],
            index_interval_bytes=self._config.index_interval_bytes,
        )
        delay_ms = self._config.file_delete_delay_ms + _COARSE_MS
        interval_bytes = self._config.index_interval_bytes
        segments = (view.live.segments[index] for index in run)
        spent = [(each.name, each.file.size_bytes > interval_bytes) for each in segments]
        self._spent.append((self._clock.monotonic_ms() + delay_ms, spent))
        return merged

    def _free(self) -> None:
        """Free the names that own merges have covered for long enough."""
        while self._spent and self._spent[0][0] <= self._clock.monotonic_ms():
            _, names = self._spent.popleft()
            delete_segments(self._directory, names)
