"""Derived files that an appender writes: indexes, merged segments and snapshots."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

from spark_log.config import TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    SparkLogError,
)
from spark_log.log.append.merge_task import MergeExecutor, MergeResult, MergeTask
from spark_log.log.append.tail_merger import TailMerger
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.rewrite import RecentBatch
from spark_log.log.segment import AppendedSegment, StagedSegment
from spark_log.log.snapshot import Snapshots


class DerivedFiles:
    """Writes the derived files of one appender's partition, after its appends.

    The records are durable before that. Readers and writers can do without these files, so an
    error is counted in `PartitionDirectory.suppressed` and does not fail the append.

    Attributes:
        merger: decides when the newest segments are merged.
        merge_limit_offset: segments that end after this offset are not merged.
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
        self.merger = TailMerger(directory, config)
        self.merge_limit_offset: float = math.inf
        self.misses_files = False
        self._merge_executor = merge_executor
        self._running: MergeResult | None = None
        self._directory = directory
        self._snapshots = snapshots
        self._config = config
        self._segments_until_snapshot = 0

    def create_existence_marker(self) -> None:
        """Create the existence marker of a log that has just got its first records.

        This is done before the records are acknowledged: later the marker shows whether all files
        of the log were lost.
        """
        directory = self._directory
        if directory.existence_marker is not None:
            # After an error the log has no marker, as a log of an older version.
            with directory.suppressed.suppress("witness", directory.path, SparkLogError):
                directory.existence_marker.create(directory.store)

    def on_listed(self, view: LogView) -> None:
        """Update the state from a listing of the log."""
        self.misses_files = False
        self._segments_until_snapshot = self._snapshots.segments_until_due(view)
        self.merger.on_listed(view)

    def on_own_append(self, segment: StagedSegment, base_offset: int, observed_ms: float) -> None:
        """Write the indexes of a segment that was put at the log's end; merge or snapshot if due.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
            observed_ms: monotonic time when the log end offset before the segment was observed.
        """
        end_offset = base_offset + segment.record_count
        self._segments_until_snapshot -= 1
        self.merger.on_appended(
            base_offset,
            end_offset,
            segment.size_bytes,
            observed_ms=observed_ms,
            is_own=True,
            batch=RecentBatch.of_own(segment, end_offset),
        )
        self._snapshots.summaries.on_own_append(segment, base_offset)
        if segment.has_indexes:
            self._write_indexes(segment, SegmentName(base_offset))
        if self._running is not None or self.merger.may_be_due:
            self._merge_if_due(end_offset)
        if self._snapshot_is_due:
            leave = None if self._merge_executor is None else self._merge_executor.leave_snapshot
            if leave is None:
                self.write_snapshot_if_due()
            else:
                leave(self.write_snapshot_if_due)

    def on_append_of_other(self, winner: AppendedSegment, observed_ms: float) -> None:
        """Update the state from a segment that another appender put at the log's end.

        Args:
            winner: the segment.
            observed_ms: monotonic time when the log end offset before the segment was observed.
        """
        self.count_segments_of_others(1)
        self.merger.on_appended(
            winner.base_offset,
            winner.end_offset,
            winner.size_bytes,
            observed_ms=observed_ms,
            is_own=False,
            batch=RecentBatch.of_other(winner),
        )

    def count_segments_of_others(self, count: int) -> None:
        """Count segments of other appenders towards the next snapshot.

        The appender whose own segment makes the snapshot due writes it. The other appenders check
        a quarter of ``snapshot.interval.segments`` later whether it was written.
        """
        self._segments_until_snapshot -= count
        if self._segments_until_snapshot <= 0:
            self._segments_until_snapshot = 1 + self._config.snapshot_interval_segments // 4

    # --- the files -------------------------------------------------------------------------------

    def _write_indexes(self, segment: StagedSegment, name: SegmentName) -> None:
        directory = self._directory
        with directory.suppressed.suppress("index", directory.path, SparkLogError):
            for file_name, data in segment.derived_files(name):
                directory.store.put(directory.file_path(file_name), data, sync=False)

    @property
    def _snapshot_is_due(self) -> bool:
        return self._segments_until_snapshot <= -self._snapshot_delay

    def write_snapshot_if_due(self) -> None:
        """Write a snapshot if it is due, and no other process has; errors are counted."""
        if not self._snapshot_is_due:
            return
        directory = self._directory
        with (
            directory.suppressed.suppress("snapshot", directory.path, SparkLogError),
            suppress(NotFoundError, OffsetOutOfRangeError),  # rewritten since: skip this snapshot
        ):
            self._segments_until_snapshot = self._config.snapshot_interval_segments
            self._segments_until_snapshot = self._snapshots.write_if_due()

    @property
    def _snapshot_delay(self) -> int:
        """Number of further segments before a snapshot that is due is written without a merge.

        A merge leaves fewer segments since the last snapshot, so that the next one is due much
        later. Each snapshot costs a listing, which also shows all merged segments until they are
        deleted. It depends on the partition, so that partitions that are written together do not
        all get a snapshot by the same call of a producer. While merges are late, a snapshot may
        open all segments since the last one; then the snapshots are spread over a whole interval.
        """
        interval, partition = self._config.snapshot_interval_segments, self._directory.partition
        if self._running is not None:
            return interval + partition % interval
        eighth = interval // 8
        delay = eighth if self._config.merge_tail_segments else 0
        return delay + partition % max(1, eighth)

    def _merge_if_due(self, end_offset: int) -> None:
        """Do or start the merge of the newest segments if it is due and no other merge runs."""
        directory = self._directory
        with directory.suppressed.suppress("tail merge", directory.path, SparkLogError):
            if self._running is not None:
                if not self._running.is_done:
                    return
                self._on_merged(self._running)
                self._running = None
            try:
                task = self.merger.due_task(min(self.merge_limit_offset, end_offset))
            except (NotFoundError, CorruptRecordError):
                self.misses_files = True
                raise
            if task is not None:
                self._start(task)

    def _start(self, task: MergeTask) -> None:
        """Do a task, or let another thread do it."""
        executor, result = self._merge_executor, MergeResult()
        if executor is None:
            task.run(result)
            self._on_merged(result)
        elif executor.run(partial(task.run, result, executor.pause)):
            self._running = result

    def _on_merged(self, result: MergeResult) -> None:
        """Update the state from a task that has ended."""
        self.misses_files = self.misses_files or result.misses_files
        self.merger.on_merged(result.merged)
        newest_offset = self._snapshots.newest_offset
        for each in result.merged:
            covered = list(each.covered.names())
            self._snapshots.summaries.on_rewritten(each.summary, covered)
            since = sum(name.base_offset >= newest_offset for name in covered)
            self._segments_until_snapshot += max(0, since - 1)
