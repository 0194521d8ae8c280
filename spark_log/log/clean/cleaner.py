"""Cleaning one partition: retention, merging, and deleting what is spent (DESIGN.md, section 6).

What ``spark-log clean`` and the clean job do, partition by partition. Safe beside writers, readers
and other cleaners; whenever it is killed, the log is whole, and the next one goes on from there.
In this order, since what is deleted need not be merged:

1. where ``cleanup.policy`` has ``delete``, retention moves the log's start (`retention`);
2. where it has ``compact``, the log is compacted if enough of it is dirty (`compactor`), else
   neighbouring small segments are merged, level by level (`merge_policy`, `merger`);
3. files that an earlier round made spent are deleted after a delay (`file_deletion`).

What is old is decided by the storage's time, asked for once, before everything else. A process
whose clock is far from it does nothing at all (`storage.storage_time`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS
from spark_log.errors import (
    CorruptRecordError,
    InvalidRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageFullError,
)
from spark_log.log.clean.cleanable import Cleanable, cleanable
from spark_log.log.clean.compacted_segment import Step
from spark_log.log.clean.compactor import DEDUPE_BUFFER_BYTES, compact
from spark_log.log.clean.file_deletion import (
    DeletableFiles,
    delete_found,
    find_deletable,
)
from spark_log.log.clean.merge_policy import MergePolicy, candidates_of_summaries
from spark_log.log.clean.merger import KEEP_COMPRESSION, merge
from spark_log.log.clean.retention import Breach, find_breach
from spark_log.log.log_start import move_log_start
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.storage import check_clock_skew, storage_time_us, with_reserve

FAN_IN: Final = 8
"""Segments that a cleaner merges at least. Fewer are rewritten more often, more are left."""

_MOST_ROUNDS: Final = 100
"""Looks at the log until a merge is left to the next cleaner: far more than there are levels."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What was done to one partition; in a dry run, what would be.

    Attributes:
        directory: the partition's.
        log_start_offset: where the log begins now.
        log_end_offset: where it ended when it was looked at last.
        expired_segments: how many segments retention took out of the log.
        expired_bytes: what they take up.
        future_us: see `Breach`.
        merged_segments: how many were merged, each as often as it was.
        merged_into: into how many.
        merged_bytes: the size of what was merged.
        compacted_records: how many were read by a compaction.
        compacted_bytes: likewise, of files.
        kept_records: how many of them were kept.
        tombstones_removed: see `Compaction`.
        segments: how many the log has now.
        size_bytes: what they take up.
        deleted_files: how many files were deleted.
        deleted_bytes: what they took up.
        waiting_segments: spent, and kept for ``file.delete.delay.ms``.
    """

    directory: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    expired_segments: int = 0
    expired_bytes: int = 0
    future_us: int | None = None
    merged_segments: int = 0
    merged_into: int = 0
    merged_bytes: int = 0
    compacted_records: int = 0
    compacted_bytes: int = 0
    kept_records: int = 0
    tombstones_removed: int = 0
    segments: int = 0
    size_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    waiting_segments: int = 0

    @property
    def dirt_bytes(self) -> int:
        """How much there was to do: by this a caller puts the dirtiest partitions first."""
        rewritten_bytes = self.merged_bytes + self.compacted_bytes
        return self.expired_bytes + rewritten_bytes + self.deleted_bytes


class PartitionCleaner:
    """Cleans the log of one partition, once.

    Attributes:
        report: what was done so far.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        step: Step = lambda done_bytes: None,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        max_clock_skew_ms: int = DEFAULT_MAX_CLOCK_SKEW_MS,
    ) -> None:
        """Touches nothing yet.

        Args:
            log: of the partition; its settings are the topic's.
            step: for throttling and progress (`log.clean.throttle.Throttle`).
            dedupe_buffer_bytes: memory for keys (``log.cleaner.dedupe.buffer.size``).
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
        """
        self._is_compacted = "compact" in log.config.cleanup_policy
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._log = log
        self._config = log.config
        self._step = step
        self._max_clock_skew_ms = max_clock_skew_ms
        self._now_us = 0
        self.report = CleanReport(log.directory)
        self._policy = MergePolicy(
            segment_bytes=self._config.segment_bytes,
            segment_us=self._config.segment_ms * 1000,
            fan_in=FAN_IN,
        )

    def clean(self) -> CleanReport:
        """Do all that is due, and return what was done.

        Raises:
            ClockSkewError: this process's clock is too far from the storage's; nothing was done.
            CorruptRecordError: a segment is damaged or missing. What can be done without is done.
            StorageFullError: there is no space to merge or compact in. What could be deleted is.
            StorageError: the storage does not answer; the rest is left to the next cleaner.
        """
        store = self._log.files.store
        self._now_us = with_reserve(store, self._storage_time_us)
        problem: CorruptRecordError | StorageFullError | None = None
        try:
            with_reserve(store, self._retain)
            self._rewrite()
        except (CorruptRecordError, StorageFullError) as error:
            problem = error  # it must not keep the disk from being freed
        with_reserve(store, self._delete)
        if isinstance(problem, StorageFullError):
            self._rewrite_in_what_was_freed(problem)
        elif problem is not None:
            raise problem
        return self.report

    def _rewrite(self) -> None:
        if self._is_compacted:
            self._compact()
        else:
            self._merge()

    def _rewrite_in_what_was_freed(self, full: StorageFullError) -> None:
        if self.report.deleted_files:
            try:
                self._rewrite()
            except StorageFullError as error:
                full = error
            else:
                return
        report = self.report
        raise StorageFullError(
            f"{self._log.directory}: no space is left to merge or compact in: {full.message}. "
            f"{report.deleted_files} files ({report.deleted_bytes} bytes) were deleted; "
            f"{report.waiting_segments} segments wait for file.delete.delay.ms "
            f"({self._config.file_delete_delay_ms} ms) and are deleted by a cleaning after that",
            path=full.path,
        ) from full

    def plan(self) -> CleanReport:
        """Return what `clean` would do now, and do nothing.

        Of merges it tells those of the lowest level: what follows depends on what becomes of them.

        Raises:
            ClockSkewError: see `clean`, which would do nothing.
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        self._now_us = self._storage_time_us()
        segments, view = self._log.segments(self._log.observe())
        breach = self._breach(segments)
        kept = segments[breach.by_size + breach.by_time :]
        self._count_expired(segments, breach, view)
        if self._is_compacted:
            found, _ = cleanable(self._log, view, now_us=self._now_us)
            if self._is_filthy(found):
                size_bytes = found.clean_bytes + found.dirty_bytes
                self.report = replace(self.report, compacted_bytes=size_bytes)
        else:
            for run in self._policy.runs(candidates_of_summaries(kept)):
                self._count_merged([kept[index] for index in run])
        self._count_segments(kept, view)
        self._count_deleted(self._deletable())
        return self.report

    # --- the steps -------------------------------------------------------------------------------

    def _storage_time_us(self) -> int:
        """Return the storage's time.

        Raises:
            ClockSkewError: this process's clock is too far from it.
        """
        now_us = storage_time_us(self._log.files.store, self._log.files.path)
        check_clock_skew(self._log.clock, now_us, self._max_clock_skew_ms)
        return now_us

    def _retain(self) -> None:
        """Move the log's start past what retention deletes."""
        segments, view = self._log.segments(self._log.observe())
        breach = self._breach(segments)
        if breach.log_start_offset is not None:
            move_log_start(self._log, breach.log_start_offset)
        self._count_expired(segments, breach, view)

    def _breach(self, segments: Sequence[SegmentSummary]) -> Breach:
        if "delete" not in self._config.cleanup_policy:
            return Breach()
        return find_breach(segments, self._config, self._now_us)

    def _compact(self) -> None:
        """Compact if it is worth it; what another cleaner does at the same time is left to that."""
        log, now_us = self._log, self._now_us
        found, view = cleanable(log, log.observe(), now_us=now_us)
        if self._is_filthy(found):
            with suppress(NotFoundError, OffsetOutOfRangeError):
                done = compact(
                    log, now_us=now_us, memory_bytes=self._dedupe_buffer_bytes, step=self._step
                )
                self.report = replace(
                    self.report,
                    compacted_records=done.records_read,
                    compacted_bytes=done.bytes_read,
                    kept_records=done.records_written,
                    tombstones_removed=done.tombstones_removed,
                )
                if done.segments_written:
                    log.write_snapshot()
            view = log.observe()
        self._count_segments(*log.segments(view))

    def _is_filthy(self, found: Cleanable) -> bool:
        """Whether a compaction is due (``LogCleanerManager.grabFilthiestCompactedLog``)."""
        is_dirty = found.ratio > self._config.min_cleanable_dirty_ratio
        return found.dirty_bytes > 0 and (found.is_overdue or is_dirty)

    def _merge(self) -> None:
        """Merge level by level, until nothing is left that is worth it."""
        log = self._log
        segments, view = log.segments(log.observe())
        for _ in range(_MOST_ROUNDS):
            runs = self._policy.runs(candidates_of_summaries(segments))
            if not runs:
                break
            for run in runs:
                try:
                    log.learn(self._merge_run(view, run))
                except (NotFoundError, OffsetOutOfRangeError):
                    break  # another has rewritten or deleted it: look again
                self._count_merged([segments[index] for index in run])
            segments, view = log.segments(log.observe())
        if self.report.merged_into:
            log.write_snapshot()
        self._count_segments(segments, view)

    def _merge_run(self, view: LogView, run: range) -> SegmentSummary:
        chosen = self._config.compression_type
        if chosen == KEEP_COMPRESSION:
            chosen = self._config.merge_compression_type
        try:
            return self._merge_as(chosen, view, run)
        except InvalidRecordError:
            # What was compressed may be more than one file can hold once it is not any more.
            return self._merge_as(KEEP_COMPRESSION, view, run)

    def _merge_as(self, compression: str, view: LogView, run: range) -> SegmentSummary:
        return merge(
            self._log.files,
            view,
            run[0],
            run[-1],
            compression=compression,
            index_interval_bytes=self._config.index_interval_bytes,
            throttle=self._step,
        )

    def _delete(self) -> None:
        """Delete files whose time has come."""
        found = self._deletable()
        delete_found(self._log.files.store, found)
        self._count_deleted(found)

    def _deletable(self) -> DeletableFiles:
        delay_ms = self._config.file_delete_delay_ms
        return find_deletable(self._log.files, delay_ms, now_us=self._now_us)

    # --- what was done ---------------------------------------------------------------------------

    def _count_expired(
        self, segments: Sequence[SegmentSummary], breach: Breach, view: LogView
    ) -> None:
        expired = segments[: breach.by_size + breach.by_time]
        start = breach.log_start_offset
        self.report = replace(
            self.report,
            log_start_offset=view.log_start_offset if start is None else start,
            log_end_offset=view.log_end_offset,
            expired_segments=len(expired),
            expired_bytes=sum(segment.size_bytes for segment in expired),
            future_us=breach.future_us,
        )

    def _count_merged(self, segments: Sequence[SegmentSummary]) -> None:
        self.report = replace(
            self.report,
            merged_segments=self.report.merged_segments + len(segments),
            merged_into=self.report.merged_into + 1,
            merged_bytes=self.report.merged_bytes + sum(each.size_bytes for each in segments),
        )

    def _count_segments(self, segments: Sequence[SegmentSummary], view: LogView) -> None:
        self.report = replace(
            self.report,
            log_start_offset=max(self.report.log_start_offset, view.log_start_offset),
            log_end_offset=view.log_end_offset,
            segments=len(segments),
            size_bytes=sum(segment.size_bytes for segment in segments),
        )

    def _count_deleted(self, found: DeletableFiles) -> None:
        self.report = replace(
            self.report,
            deleted_files=len(found.all),
            deleted_bytes=found.size_bytes,
            waiting_segments=found.waiting,
        )
