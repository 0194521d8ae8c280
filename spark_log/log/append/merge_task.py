"""Merges of a log's end that are due, and their results; another thread may do them.

A `MergeTask` shares no state with the appender that has decided on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, zip_longest

from spark_log.config import TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    SparkLogError,
)
from spark_log.log.directory import LogView, PartitionDirectory, SegmentTable
from spark_log.log.files import LiveLog
from spark_log.log.rewrite import RecentBatch
from spark_log.log.segment import SegmentSummary

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergeExecutor:
    """Another thread, for merges at a log's end, and another time, for snapshots.

    Attributes:
        run: runs a function on that thread, soon; returns False if it will not be run. Called once
            per merge.
        pause: called on that thread between reads of a merge. It may block, so that appends
            proceed.
        leave_snapshot: gets a function that writes a snapshot that is due, to be called by any
            thread while the log appends nothing; None writes it in the append.
    """

    run: Callable[[Callable[[], None]], bool]
    pause: Callable[[], None] = lambda: None
    leave_snapshot: Callable[[Callable[[], None]], None] | None = None


@dataclass(frozen=True, slots=True)
class MergedSegment:
    """A segment that a task has made.

    Attributes:
        summary: the segment's summary.
        covered: the segments that were merged into it.
        deletable_ms: monotonic time from which the covered segments may be deleted.
    """

    summary: SegmentSummary
    covered: SegmentTable
    deletable_ms: float


@dataclass(slots=True)
class MergeResult:
    """The result of a task, filled in by the thread that runs it.

    Attributes:
        is_done: whether the task has ended. The other attributes may be read only then.
        merged: the segments that were made.
        misses_files: whether files were missing or damaged.
    """

    is_done: bool = False
    merged: list[MergedSegment] = field(default_factory=list)
    misses_files: bool = False


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges and deletions that are due at a log's end. Nothing in it changes.

    Attributes:
        directory: a copy of the partition's directory, for this task alone. Later appends do not
            change it.
        config: the topic's settings.
        segments: the tail's segments; empty if none are to be merged.
        log_start_offset: the log start offset, or the first offset of ``segments``.
        log_end_offset: the log end offset, or the end offset of ``segments``.
        observed_ms: monotonic time before the log was listed.
        runs: ranges of indexes of ``segments``; each range is merged into one segment.
        backlog: number of segments to merge, in multiples of ``merge.tail.segments``; at least 1.
        deletable: segments that may be deleted.
        recent: for each of ``runs``, the batches of its segments that are in memory; None where
            the segments have to be read.
    """

    directory: PartitionDirectory
    config: TopicConfig
    segments: SegmentTable
    log_start_offset: int = 0
    log_end_offset: int = 0
    observed_ms: float = 0
    runs: Sequence[range] = ()
    backlog: int = 1
    deletable: Sequence[SegmentTable] = ()
    recent: Sequence[Sequence[RecentBatch] | None] = ()

    def run(self, result: MergeResult, pause: Callable[[], None] = lambda: None) -> None:
        """Do the task; errors are counted. Any thread may call it at any time.

        Args:
            result: gets the merged segments.
            pause: called between reads; may block.
        """
        calls, suppressed = count(1), self.directory.suppressed

        def on_progress(_: int) -> None:
            # Pause less often when merges lag, so that many small appends cannot outrun them.
            if not next(calls) % self.backlog:
                pause()

        try:
            with suppressed.suppress("tail merge", self.directory.path, SparkLogError):
                try:
                    for each in self._merged(on_progress):
                        result.merged.append(each)
                except (NotFoundError, CorruptRecordError):
                    result.misses_files = True
                    raise
                self._delete()
        finally:
            result.is_done = True

    def _merged(self, on_progress: Callable[[int], None]) -> Iterator[MergedSegment]:
        """Merge each run, and yield the merged segment.

        Raises:
            NotFoundError, CorruptRecordError: segments are missing or damaged. A segment that was
                observed so recently was not deleted by a cleaner.
            StorageError, InvalidRecordError: segments could not be merged. A cleaner does it later.
        """
        live = LiveLog(self.log_start_offset, self.segments)
        url = self.directory.url
        view = LogView(live, self.log_end_offset, self.observed_ms, origin=url)
        with suppress(OffsetOutOfRangeError):  # the log's start has moved
            for run, recent in zip_longest(self.runs, self.recent):
                try:
                    yield self._merge(view, run, recent, on_progress)
                except NotFoundError:
                    if not self.directory.is_outdated(self.observed_ms):
                        raise
                    break

    def _merge(
        self,
        view: LogView,
        run: range,
        recent: Sequence[RecentBatch] | None,
        on_progress: Callable[[int], None],
    ) -> MergedSegment:
        # A late import: most processes merge nothing, and none does before its first appends.
        from spark_log.log.rewrite import merge, merge_recent

        directory, interval_bytes = self.directory, self.config.index_interval_bytes
        covered = self.segments.part(run)
        if recent is not None:
            merged = merge_recent(
                directory,
                covered.start_offset,
                recent,
                index_interval_bytes=interval_bytes,
                on_progress=on_progress,
            )
        else:
            merged = merge(
                directory,
                view,
                run[0],
                run[-1],
                index_interval_bytes=interval_bytes,
                on_progress=on_progress,
            )
        now_ms = directory.clock.monotonic_ms()
        resolution_ms = directory.store.time_resolution_us / 1000
        delay_ms = self.config.file_delete_delay_ms + resolution_ms
        return MergedSegment(merged, covered, now_ms + delay_ms)

    def _delete(self) -> None:
        """Delete segments that earlier merges have covered.

        Raises:
            StorageError: segments could not be deleted. A cleaner does it later.
        """
        deletable = [
            (name, size_bytes > self.config.index_interval_bytes)
            for each in self.deletable
            for name, (_, _, size_bytes, _) in zip(each.names(), each.rows(), strict=True)
        ]
        if deletable:
            from spark_log.log.rewrite import delete_segments  # late, as in `_merge`

            delete_segments(self.directory, deletable)
            _log.debug("%s: deleted %d merged segments", self.directory.path, len(deletable))
