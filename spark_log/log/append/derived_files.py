"""Derived files that an appender writes: indexes, merged segments and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from spark_log.config import TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    SparkLogError,
)
from spark_log.log.append.tail_merger import MergedSegment, MergeTask, TailMerger
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.segment import SegmentReader, StagedSegment
from spark_log.log.snapshot import Snapshots


@dataclass(frozen=True, slots=True)
class MergeExecutor:
    """Another thread, for merges at a log's end.

    Attributes:
        run: runs a function on that thread, soon; returns False if it will not be run. Called once
            per merge.
        pause: called on that thread between reads of a merge. It may block, so that appends
            proceed.
    """

    run: Callable[[Callable[[], None]], bool]
    pause: Callable[[], None] = lambda: None


class DerivedFiles:
    """Writes the derived files of one appender's partition, after its appends.

    The records are durable before that. Readers and writers can do without these files, so an
    error is counted in `PartitionDirectory.suppressed` and does not fail the append.

    Attributes:
        merger: merges the newest segments.
        misses_files: whether files that the appender believes to be part of the log are missing or
            damaged. Then it must list the log before it appends again.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        snapshots: Snapshots,
        config: TopicConfig,
        merge_executor: MergeExecutor | None = None,
    ) -> None:
        self._merge_executor = merge_executor
        self._running: _RunningMerge | None = None
        self.merger = TailMerger(directory, config)
        self._directory = directory
        self._snapshots = snapshots
        self._config = config
        self._segments_until_snapshot = 0
        self.misses_files = False

    def create_witness(self) -> None:
        """Create the witness of a log that has just got its first records.

        This is done before the records are acknowledged: later the witness shows whether all files
        of the log were lost.
        """
        directory = self._directory
        if directory.witness is not None:
            # After an error the log has no witness, as a log of an older version.
            with directory.suppressed.suppress("witness", directory.path, SparkLogError):
                directory.witness.create(directory.store)

    def on_listed(self, view: LogView) -> None:
        """Update the state from a listing of the log."""
        self.misses_files = False
        self._segments_until_snapshot = self._snapshots.segments_until_due(view)
        self.merger.on_listed(view)

    def on_own_append(self, segment: StagedSegment, base_offset: int, observed_ms: float) -> None:
        """Update the state from a segment that this appender put at the log's end.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
            observed_ms: monotonic time when the log end offset before the segment was observed.
        """
        self._segments_until_snapshot -= 1
        self.merger.on_appended(
            base_offset,
            base_offset + segment.record_count,
            segment.size_bytes,
            observed_ms=observed_ms,
            is_own=True,
        )

    def on_append_of_other(self, winner: SegmentReader, observed_ms: float) -> None:
        """Update the state from a segment that another appender put at the log's end.

        Args:
            winner: reader of the segment.
            observed_ms: monotonic time when the log end offset before the segment was observed.
        """
        self.count_segments_of_others(1)
        self.merger.on_appended(
            winner.base_offset,
            winner.end_offset,
            winner.size_bytes,
            observed_ms=observed_ms,
            is_own=False,
        )

    def count_segments_of_others(self, count: int) -> None:
        """Count segments of other appenders towards the next snapshot.

        The appender whose own segment makes the snapshot due writes it. The other appenders check
        a quarter of ``snapshot.interval.segments`` later whether it was written.
        """
        self._segments_until_snapshot -= count
        if self._segments_until_snapshot <= 0:
            self._segments_until_snapshot = 1 + self._config.snapshot_interval_segments // 4

    def write(self, segment: StagedSegment, base_offset: int) -> None:
        """Write the indexes of an appended segment; merge and write a snapshot if they are due.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
        """
        suppressed, path = self._directory.suppressed, self._directory.path
        with suppressed.suppress("index", path, SparkLogError):
            for name, data in segment.derived_files(SegmentName(base_offset)):
                self._directory.store.put(self._directory.file_path(name), data, sync=False)
        self._maintain(base_offset + segment.record_count)

    def _maintain(self, end_offset: int) -> None:
        """If due, merge the newest segments up to an offset; if due, write a snapshot."""
        suppressed, path = self._directory.suppressed, self._directory.path
        with suppressed.suppress("tail merge", path, SparkLogError):
            self._merge(end_offset)
        with (
            suppressed.suppress("snapshot", path, SparkLogError),
            suppress(NotFoundError, OffsetOutOfRangeError),  # rewritten since: skip this snapshot
        ):
            if self._segments_until_snapshot <= -self._snapshot_delay:
                self._segments_until_snapshot = self._config.snapshot_interval_segments
                self._segments_until_snapshot = self._snapshots.write_if_due()

    @property
    def _snapshot_delay(self) -> int:
        """Number of further segments before a snapshot that is due is written without a merge.

        A merge leaves fewer segments since the last snapshot, so that the next one is due much
        later. Each snapshot costs a listing, which also shows all merged segments until they are
        deleted.
        """
        interval = self._config.snapshot_interval_segments
        if self._running is not None:
            return interval
        return interval // 8 if self._config.merge_tail_segments else 0

    def _merge(self, end_offset: int) -> None:
        """Do or start the merge of the newest segments if it is due and no other merge runs.

        Raises:
            StorageError, CorruptRecordError: the log could not be listed.
        """
        if self._running is not None:
            if not self._running.is_done:
                return
            self._on_done(self._running)
            self._running = None
        try:
            work = self.merger.due_work(end_offset)
        except (NotFoundError, CorruptRecordError):
            self.misses_files = True
            raise
        if work is None:
            return
        merge = _RunningMerge(self.merger, work)
        if self._merge_executor is None:
            merge.run()
            self._on_done(merge)
        elif self._merge_executor.run(partial(merge.run_beside, self._merge_executor.pause)):
            self._running = merge

    def _on_done(self, merge: _RunningMerge) -> None:
        self.misses_files = self.misses_files or merge.misses_files
        self.merger.on_merged(merge.made)
        newest_offset = self._snapshots.newest_offset
        for each in merge.made:
            covered = [segment.name for segment in each.covered]
            self._snapshots.summaries.on_rewritten(each.summary, covered)
            since = sum(name.base_offset >= newest_offset for name in covered)
            self._segments_until_snapshot += max(0, since - 1)


class _RunningMerge:
    """A merge of the newest segments, perhaps on another thread. It shares no appender state.

    Attributes:
        is_done: whether the merge has ended. The other attributes may be read only then.
        made: the merged segments.
        misses_files: whether files were missing or damaged.
    """

    def __init__(self, merger: TailMerger, work: MergeTask) -> None:
        self.is_done = False
        self.made: list[MergedSegment] = []
        self.misses_files = False
        self._merger = merger
        self._work = work

    def run(self, on_progress: Callable[[int], None] = lambda done_bytes: None) -> None:
        """Do the work; errors are counted."""
        directory = self._work.directory
        with directory.suppressed.suppress("tail merge", directory.path, SparkLogError):
            try:
                for each in self._merger.run(self._work, on_progress):
                    self.made.append(each)
            except (NotFoundError, CorruptRecordError):
                self.misses_files = True
                raise

    def run_beside(self, pause: Callable[[], None]) -> None:
        """Do the work on another thread than the appends, with pauses.

        Pause less often when merges lag, so that a stream of small appends cannot outrun them.
        """
        calls = count(1)

        def on_progress(_: int) -> None:
            if not next(calls) % self._work.backlog:
                pause()

        try:
            self.run(on_progress)
        finally:
            self.is_done = True
