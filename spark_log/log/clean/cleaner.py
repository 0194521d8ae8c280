"""Cleans the log of one partition: retention, merging or compaction, deletion (protocol W5, W8).

``spark-log clean`` and the clean job do this for each partition. It may run at the same time as
writers, readers and other cleaners. It may be killed at any time: the log is intact, and the next
cleaner continues.
The steps are, in this order, since deleted segments need not be merged:

1. if ``cleanup.policy`` contains ``delete``, retention moves the log start offset (`retention`);
2. if it contains ``compact``, the log is compacted if enough of it is dirty (`compactor`); if not,
   tombstones whose delete horizon has passed are removed (`expired_tombstones`). Without
   ``compact``, neighbouring small segments are merged, level by level (`merge_policy`, `merger`).
   With ``table.format=delta`` compactions write Parquet files, and so do merges of the cold part
   (`cold_segments`). Parquet segments without a key index get one;
3. files that became spent at least ``file.delete.delay.ms`` ago are deleted (`file_deletion`).

All steps use the same listing of the directory. After a step that has changed the log, the
directory is listed again for the next step.

Ages are measured by the storage's time, which is read once, before the first step. A process whose
clock differs too much from it does nothing at all (`storage.storage_time`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from spark_log.config import DEFAULT_MAX_CLOCK_SKEW_MS, TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    InvalidRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageFullError,
)
from spark_log.log.clean.cold_segments import ColdSegments, Merge
from spark_log.log.clean.compacted_conversion import convert_compacted
from spark_log.log.clean.compacted_segment import OnProgress
from spark_log.log.clean.compactor import DEDUPE_BUFFER_BYTES, CompactionResult, compact
from spark_log.log.clean.expired_tombstones import remove_expired_tombstones
from spark_log.log.clean.log_table import LogTable
from spark_log.log.clean.log_to_clean import LogToClean, log_to_clean
from spark_log.log.clean.retention import RetentionBreach, find_retention_breach
from spark_log.log.directory import DirectoryListing, LogView, OpenedSegments
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.key_index import MIN_INDEXED_RECORDS
from spark_log.log.local_log import LocalLog
from spark_log.log.log_start import follow_log_start
from spark_log.log.rewrite import (
    KEEP_COMPRESSION,
    DeletableFiles,
    MergePolicy,
    build_key_index,
    candidates_of_summaries,
    candidates_of_view,
    delete_found,
    find_deletable,
    merge,
    segment_span_us,
)
from spark_log.log.segment import IsAborted, SegmentSummary
from spark_log.storage import StorageClock, check_clock_skew, with_reserve
from spark_log.values import typed_values_of

_log = logging.getLogger(__name__)

FAN_IN: Final = 8
"""Minimum number of segments of a merge. A smaller number rewrites bytes more often; a larger one
leaves more segments."""

_MAX_ROUNDS: Final = 100
"""Maximum rounds of merges in one cleaning: far more than the levels that a log can have."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """The result of cleaning one partition; in a dry run, the result that it would have.

    Attributes:
        directory: the partition's directory.
        log_start_offset: the log start offset after the cleaning.
        log_end_offset: the log end offset at the last listing.
        expired_segments: number of segments that retention removed from the log.
        expired_bytes: the size of those segments.
        future_us: the largest timestamp of the oldest retained segment, if it is in the future and
            so keeps retention from deleting by age; else None.
        merged_segments: number of segments that were merged; a segment counts once for each merge.
        merged_into: number of segments that the merges wrote.
        merged_bytes: the size of the merged segments.
        compacted_records: number of records that a compaction read.
        compacted_bytes: the size of the files that a compaction read.
        kept_records: number of records that the compaction retained.
        tombstones_removed: number of tombstones that the compaction removed after
            ``delete.retention.ms``.
        segments: number of segments that the log has now.
        size_bytes: the size of those segments.
        parquet_offsets: number of offsets that are read from Parquet segments now.
        deleted_files: number of deleted files.
        deleted_bytes: the size of the deleted files.
        waiting_segments: number of spent segments that wait for ``file.delete.delay.ms``.
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
    parquet_offsets: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    waiting_segments: int = 0

    @property
    def dirt_bytes(self) -> int:
        """Size of all expired, rewritten and deleted files, to order partitions by work."""
        rewritten_bytes = self.merged_bytes + self.compacted_bytes
        return self.expired_bytes + rewritten_bytes + self.deleted_bytes


class PartitionCleaner:
    """Cleans the log of one partition. Use it once.

    Attributes:
        report: the results of the cleaning so far.
    """

    def __init__(
        self,
        log: LocalLog,
        *,
        on_progress: OnProgress = lambda done_bytes: None,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        fan_in: int = FAN_IN,
        max_clock_skew_ms: int = DEFAULT_MAX_CLOCK_SKEW_MS,
        start_offset: int = 0,
        limit_offset: float = math.inf,
        storage_clock: StorageClock | None = None,
        rewriting: AbstractContextManager[object] | None = None,
        listing: DirectoryListing | None = None,
        table_at_once: bool = False,
        table: LogTable | None = None,
    ) -> None:
        """Prepare a cleaning; touches nothing.

        Args:
            log: the partition's log, opened with the topic's config.
            on_progress: called with numbers of bytes as they are read and written. It may block,
                to limit the rate (`log.clean.throttle.Throttle`).
            dedupe_buffer_bytes: memory for keys (``log.cleaner.dedupe.buffer.size``).
            fan_in: minimum number of segments of a merge.
            max_clock_skew_ms: the cluster's ``max.clock.skew.ms``.
            start_offset: the partition's log start offset; a replica's log is moved up to it.
            limit_offset: the highest end offset of segments that are rewritten or removed. For a
                replica: the high watermark.
            storage_clock: source of the storage's time, shared by several cleaners; None reads the
                time for this cleaner.
            rewriting: a context that is entered to merge or compact: a lock, if several cleaners
                run at once.
            listing: a listing of the log's directory, made a moment ago; None lists it.
            table_at_once: whether segments are written as Parquet before
                ``table.commit.interval.ms`` has passed; only with ``table.format=delta``.
            table: the table of this log; None if the topic has none, and never had one.
        """
        self._table_at_once = table_at_once
        self._table = table
        self._cold: ColdSegments | None = None
        self._storage_clock = storage_clock or StorageClock(log.clock)
        self._rewriting = rewriting or nullcontext()
        self._is_compacted = "compact" in log.config.cleanup_policy
        self._listing = listing
        # A compaction uses again the segments that were opened to decide whether it is due.
        self._opened = OpenedSegments() if self._is_compacted else None
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._log = log
        self._config = log.config
        self._on_progress = on_progress
        self._max_clock_skew_ms = max_clock_skew_ms
        self._start_offset = int(min(start_offset, limit_offset))
        self._limit_offset = limit_offset
        self._now_us = 0
        self.report = CleanReport(log.directory)
        self._policy = _merge_policy(log.config, fan_in)

    def clean(self) -> CleanReport:
        """Clean the log; return the report.

        Raises:
            ClockSkewError: the clocks of this process and the storage differ too much; nothing was
                done.
            CorruptRecordError: a segment is damaged or missing. Spent files were deleted.
            StorageFullError: no space is left to merge or compact. Spent files were deleted.
            StorageError: the storage does not answer; the next cleaner continues.
        """
        store = self._log.files.store
        self._now_us = with_reserve(store, self._storage_time_us)
        problem: CorruptRecordError | StorageFullError | None = None
        listing: DirectoryListing | None
        try:
            listing = self._rewrite(with_reserve(store, self._retain))
        except (CorruptRecordError, StorageFullError) as error:
            problem = error  # raised after spent files were deleted, which frees the disk
            listing = None
        with_reserve(store, partial(self._delete, listing))
        if isinstance(problem, StorageFullError):
            self._rewrite_after_deletion(problem)
        elif problem is not None:
            raise problem
        return self.report

    def _rewrite(self, listing: DirectoryListing) -> DirectoryListing:
        return self._compact(listing) if self._is_compacted else self._merge(listing)

    def _rewrite_after_deletion(self, full: StorageFullError) -> None:
        if self.report.deleted_files:
            try:
                self._rewrite(self._list())
            except StorageFullError as error:
                full = error
            else:
                return
        report = self.report
        raise StorageFullError(
            f"{self._log.directory}: no space is left to merge or compact: {full.message}. "
            f"{report.deleted_files} files ({report.deleted_bytes} bytes) were deleted; "
            f"{report.waiting_segments} segments wait for file.delete.delay.ms "
            f"({self._config.file_delete_delay_ms} ms); a cleaning after that deletes them",
            path=full.path,
        ) from full

    def plan(self) -> CleanReport:
        """Return the report that `clean` would return now, without doing the work.

        The report has only the merges of the lowest level: the others depend on their result.

        Raises:
            ClockSkewError: the clocks of this process and the storage differ too much.
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        self._now_us = self._storage_time_us()
        segments, listing = self._segments(self._first_listing())
        view = listing.view
        breach = self._breach(segments, listing.view)
        kept = segments[breach.by_size + breach.by_time :]
        self._count_expired(segments, breach, view)
        if self._is_compacted:
            found, _ = self._log_to_clean(view)
            is_filthy = self._is_filthy(found) or self._is_to_be_parquet(found, view)
            if is_filthy or found.expired:
                all_bytes = found.clean_bytes + found.dirty_bytes
                size_bytes = all_bytes if is_filthy else found.expired_bytes
                self.report = replace(self.report, compacted_bytes=size_bytes)
        else:
            live = view.live.segments[-len(kept) :] if kept else ()
            for run, _ in self._merges(kept, live, view):
                self._count_merged([kept[index] for index in run])
        self._count_segments(kept, view)
        self._count_deleted(self._deletable(listing))
        return self.report

    # --- the steps -------------------------------------------------------------------------------

    def _storage_time_us(self) -> int:
        """Return the storage's time.

        Raises:
            ClockSkewError: the clock of this process differs too much from the storage's time.
        """
        files, clock = self._log.files, self._log.clock
        found = self._storage_clock.read(files.store, files.path)
        check_clock_skew(clock, found.present_us(clock), self._max_clock_skew_ms)
        return found.shown_us

    def _first_listing(self) -> DirectoryListing:
        """Return the listing that was given if it is valid, or else a new one."""
        listing = self._listing
        if listing is None or self._log.files.is_outdated(listing.view.observed_ms):
            return self._list()
        return listing

    def _list(self) -> DirectoryListing:
        return self._log.files.observe_files()

    def _segments(self, listing: DirectoryListing) -> tuple[list[SegmentSummary], DirectoryListing]:
        """Return the summaries of a listing's live segments, and the listing they belong to.

        If the log was rewritten meanwhile, a newer listing than the given one is returned.
        """
        segments, view = self._log.segments(listing.view, listing.last, self._opened)
        return segments, listing if view is listing.view else DirectoryListing(view)

    def _retain(self) -> DirectoryListing:
        """Move the log start offset past the segments that retention deletes."""
        segments, listing = self._segments(self._first_listing())
        breach = self._breach(segments, listing.view)
        self._count_expired(segments, breach, listing.view)
        start_offset = max(self._start_offset, breach.log_start_offset or 0)
        if start_offset > listing.view.log_start_offset:
            follow_log_start(self._log, start_offset)
            _log.debug(
                "%s: retention deletes %d segments by size and %d by time",
                self._log.directory,
                breach.by_size,
                breach.by_time,
            )
            listing = self._list()
        if self._table is not None:
            # Also if another process has moved the log's start, and has died since.
            self._table.move_start(listing.view.log_start_offset)
        return listing

    def _table_allows(self, name: SegmentName) -> bool:
        return self._table is None or self._table.allows(name, self._now_us)

    def _breach(self, segments: Sequence[SegmentSummary], view: LogView) -> RetentionBreach:
        if "delete" not in self._config.cleanup_policy:
            return RetentionBreach()
        return find_retention_breach(
            segments,
            self._config,
            self._now_us,
            modified_us_of=lambda index: view.live.segments[index].file.modified_us,
            limit_offset=self._limit_offset,
        )

    def _compact(self, listing: DirectoryListing) -> DirectoryListing:
        """Compact if the log is dirty enough, unless another cleaner compacts it at this time.

        If it is not dirty enough, remove only the tombstones whose delete horizons have passed.
        """
        log, now_us = self._log, self._now_us
        segments, listing = self._segments(listing)
        found, _ = self._log_to_clean(listing.view)
        is_to_be_parquet = self._is_to_be_parquet(found, listing.view)
        rewrite: Callable[..., CompactionResult] = remove_expired_tombstones
        if self._is_filthy(found) or is_to_be_parquet:
            rewrite = partial(compact, even_if_clean=is_to_be_parquet)
        if rewrite is not remove_expired_tombstones or found.expired:
            segments_written = 0
            with self._rewriting, suppress(NotFoundError, OffsetOutOfRangeError):
                done = rewrite(
                    log,
                    now_us=now_us,
                    memory_bytes=self._dedupe_buffer_bytes,
                    on_progress=self._on_progress,
                    limit_offset=self._limit_offset,
                    opened=self._opened,
                    table=self._table,
                )
                self.report = replace(
                    self.report,
                    compacted_records=done.records_read,
                    compacted_bytes=done.bytes_read,
                    kept_records=done.records_written,
                    tombstones_removed=done.tombstones_removed,
                )
                segments_written = done.segments_written
            listing = self._list()
            if segments_written or found.has_read_horizons:
                log.snapshots.write(listing.view)
            segments, listing = self._segments(listing)
        elif found.has_read_horizons:  # of an earlier version's snapshot: read them only once
            log.snapshots.write(listing.view)
        self._build_key_indexes(segments, listing)
        self._count_segments(segments, listing.view)
        return listing

    def _log_to_clean(self, view: LogView) -> tuple[LogToClean, LogView]:
        return log_to_clean(self._log, view, now_us=self._now_us, limit_offset=self._limit_offset)

    def _is_to_be_parquet(self, found: LogToClean, view: LogView) -> bool:
        """Return whether the topic is a table, and a compaction has written Arrow files.

        A log that is clean is compacted once more then, since a table has one whole compaction.
        """
        return self._config.table_format != "none" and any(
            segment.name.is_compacted and not segment.name.is_parquet
            for segment in view.live.segments
            if segment.start_offset < found.first_dirty_offset
        )

    def _is_filthy(self, found: LogToClean) -> bool:
        """Return whether a compaction is due (``LogCleanerManager.grabFilthiestCompactedLog``)."""
        is_dirty = found.ratio > self._config.min_cleanable_dirty_ratio
        return found.dirty_bytes > 0 and (found.is_overdue or is_dirty)

    def _merge(self, listing: DirectoryListing) -> DirectoryListing:
        """Merge level by level, until the merge policy finds no more merges."""
        segments, listing = self._segments(listing)
        if self._due_merges(segments, listing):
            with self._rewriting:
                segments, listing = self._merge_levels(segments, listing)
        if self.report.merged_into:
            self._log.snapshots.write(listing.view)
        self._build_key_indexes(segments, listing)
        self._count_segments(segments, listing.view)
        return listing

    def _build_key_indexes(
        self, segments: Sequence[SegmentSummary], listing: DirectoryListing
    ) -> None:
        """Build the key indexes that a listing does not show: of segments copied from a leader.

        Args:
            segments: the live segments.
            listing: the listing that shows them.
        """
        needed = [
            each
            for each in segments
            if each.name.is_parquet and each.record_count >= MIN_INDEXED_RECORDS
        ]
        if not needed or listing.files is None:
            return
        shown = {file.name for file in listing.files[0]}
        for each in needed:
            if each.name.key_index not in shown:
                with self._rewriting:
                    build_key_index(self._log.files, each.name)
                    self._on_progress(each.size_bytes)

    def _merge_levels(
        self, segments: list[SegmentSummary], listing: DirectoryListing
    ) -> tuple[list[SegmentSummary], DirectoryListing]:
        log = self._log
        for _ in range(_MAX_ROUNDS):
            merges = self._due_merges(segments, listing)
            if not merges:
                break
            for each in merges:
                try:
                    merged = self._merge_run(listing.view, each, segments[each.run.start])
                    log.snapshots.summaries.on_rewritten(merged)
                except (NotFoundError, OffsetOutOfRangeError):
                    break  # another process has rewritten or deleted a segment: list again
                self._count_merged([segments[index] for index in each.run])
            segments, listing = self._segments(self._list())
        return segments, listing

    def _due_merges(
        self, segments: Sequence[SegmentSummary], listing: DirectoryListing
    ) -> list[Merge]:
        return self._merges(segments, listing.view.live.segments, listing.view)

    def _merges(
        self,
        segments: Sequence[SegmentSummary],
        live: Sequence[LiveSegment],
        view: LogView,
    ) -> list[Merge]:
        """Return the merges to do next.

        Args:
            segments: summaries of the segments that may be merged, in offset order.
            live: the same segments in a listing.
            view: the view that the listing shows.
        """
        below = [each for each in segments if each.end_offset <= self._limit_offset]
        if self._config.table_format == "none":
            return [Merge(run) for run in self._policy.runs(candidates_of_summaries(below))]
        if self._cold is None:
            self._cold = ColdSegments(self._log, self._now_us, at_once=self._table_at_once)
        return self._cold.merges(self._policy, below, live[: len(below)], view)

    def _merge_run(self, view: LogView, due: Merge, first: SegmentSummary) -> SegmentSummary:
        run = due.run
        if first.name.is_compacted:
            return convert_compacted(self._log, view, run.start, first, self._on_progress)
        if due.to_parquet:
            assert self._cold is not None
            segments = view.live.segments
            self._cold.prepare(
                view, segments[run[0]].start_offset, segments[run[-1]].end_offset or 0
            )
            return self._merge_as(KEEP_COMPRESSION, view, run, self._cold.is_aborted)
        chosen = self._config.compression_type
        if chosen == KEEP_COMPRESSION:
            chosen = self._config.merge_compression_type
        try:
            return self._merge_as(chosen, view, run)
        except InvalidRecordError:
            # With another compression the records may not fit into one file.
            return self._merge_as(KEEP_COMPRESSION, view, run)

    def _merge_as(
        self,
        compression: str,
        view: LogView,
        run: range,
        to_parquet: IsAborted | None = None,
    ) -> SegmentSummary:
        return merge(
            self._log.files,
            view,
            run[0],
            run[-1],
            compression=compression,
            index_interval_bytes=self._config.index_interval_bytes,
            to_parquet=to_parquet,
            typed=None if to_parquet is None else typed_values_of(self._config),
            on_progress=self._on_progress,
        )

    def _delete(self, listing: DirectoryListing | None) -> None:
        """Delete the files that became spent at least ``file.delete.delay.ms`` ago.

        Args:
            listing: a listing of the directory. If it shows no such file, nothing is deleted; else
                the directory is listed again, since other files may have the listed names by now.
                None lists the directory.
        """
        found = self._deletable(listing)
        if found.all and listing is not None and listing.files is not None:
            found = self._deletable()
        delete_found(self._log.files.store, found)
        if found.all:
            _log.debug(
                "%s: deleted %d files of %d bytes, %d of them segments",
                self._log.directory,
                len(found.all),
                found.size_bytes,
                len(found.segments),
            )
        self._count_deleted(found)

    def _deletable(self, listing: DirectoryListing | None = None) -> DeletableFiles:
        return find_deletable(
            self._log.files,
            self._config.file_delete_delay_ms,
            now_us=self._now_us,
            listed=None if listing is None else listing.files,
            table_allows=self._table_allows,
        )

    # --- what was done ---------------------------------------------------------------------------

    def _count_expired(
        self, segments: Sequence[SegmentSummary], breach: RetentionBreach, view: LogView
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
            parquet_offsets=view.parquet_offsets,
        )

    def _count_deleted(self, found: DeletableFiles) -> None:
        self.report = replace(
            self.report,
            deleted_files=len(found.all),
            deleted_bytes=found.size_bytes,
            waiting_segments=found.waiting,
        )


def count_mergeable(view: LogView, config: TopicConfig) -> int:
    """Return the number of segments that a cleaner would merge, from their sizes in a listing.

    Args:
        view: the log's view from a listing.
        config: the topic's settings.
    """
    runs = _merge_policy(config, FAN_IN).runs(candidates_of_view(view))
    return sum(len(run) for run in runs)


def _merge_policy(config: TopicConfig, fan_in: int) -> MergePolicy:
    return MergePolicy(
        segment_bytes=config.segment_bytes, segment_us=segment_span_us(config), fan_in=fan_in
    )
