"""Cleaning one partition: retention, merging, and deleting what is spent (DESIGN.md, section 6).

What ``spark-log clean`` and the clean job do, partition by partition. Safe beside writers, readers
and other cleaners; whatever the moment at which it is killed, the log is whole, and the next one goes
on from there. In this order, since what is deleted need not be merged:

1. retention moves the log's start (`log.retention`, `log.log_start`);
2. neighbouring small segments are merged, level by level (`log.merge_policy`, `log.merger`);
3. files whose time has come are deleted (`log.file_deletion`): what an earlier round made spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_log.errors import CorruptRecordError, NotFoundError, OffsetOutOfRangeError
from spark_log.log.file_deletion import DeletableFiles, delete_found, find_deletable
from spark_log.log.log_start import move_log_start
from spark_log.log.merge_policy import MergePolicy, candidates_of_summaries
from spark_log.log.merger import merge
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog
from spark_log.log.retention import Breach, find_breach
from spark_log.log.snapshot import SegmentSummary

FAN_IN: Final = 8
"""Segments that a cleaner merges at least. Fewer are rewritten more often, more are left."""

_MOST_ROUNDS: Final = 100
"""Looks at the log until a merge is left to the next cleaner: far more than there are levels."""

Step = Callable[[int], None]
"""Called with numbers of bytes that were read and written; may take its time."""


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
    segments: int = 0
    size_bytes: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    waiting_segments: int = 0

    @property
    def dirt_bytes(self) -> int:
        """How much there was to do: by this a caller puts the dirtiest partitions first."""
        return self.expired_bytes + self.merged_bytes + self.deleted_bytes


class PartitionCleaner:
    """Cleans the log of one partition, once.

    Attributes:
        report: what was done so far.
    """

    def __init__(self, log: PartitionLog, *, step: Step = lambda done_bytes: None) -> None:
        """Touches nothing yet.

        Args:
            log: of the partition; its settings are the topic's.
            step: for throttling and progress (`log.throttle.Throttle`).
        """
        self._log = log
        self._config = log.config
        self._step = step
        self.report = CleanReport(log.directory)
        self._policy = MergePolicy(
            segment_bytes=self._config.segment_bytes,
            segment_us=self._config.segment_ms * 1000,
            fan_in=FAN_IN,
        )

    def clean(self) -> CleanReport:
        """Do all that is due, and return what was done.

        Raises:
            CorruptRecordError: a segment is damaged or missing. What can be done without it is done.
            StorageError: the storage does not answer; the rest is left to the next cleaner.
        """
        damage: CorruptRecordError | None = None
        try:
            self._retain()
            self._merge()
        except CorruptRecordError as error:
            damage = error  # it must not keep the disk from being freed
        self._delete()
        if damage is not None:
            raise damage
        return self.report

    def plan(self) -> CleanReport:
        """Return what `clean` would do now, and do nothing.

        Of merges it tells those of the lowest level: what follows depends on what becomes of them.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        segments, view = self._log.segments(self._log.observe())
        breach = find_breach(segments, self._config, self._log.clock.time_us())
        kept = segments[breach.by_size + breach.by_time :]
        self._count_expired(segments, breach, view)
        for run in self._policy.runs(candidates_of_summaries(kept)):
            self._count_merged([kept[index] for index in run])
        self._count_segments(kept, view)
        self._count_deleted(self._deletable())
        return self.report

    # --- the steps -------------------------------------------------------------------------------

    def _retain(self) -> None:
        """Move the log's start past what retention deletes."""
        segments, view = self._log.segments(self._log.observe())
        breach = find_breach(segments, self._config, self._log.clock.time_us())
        if breach.log_start_offset is not None:
            move_log_start(self._log, breach.log_start_offset)
        self._count_expired(segments, breach, view)

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
        return merge(
            self._log.files,
            view,
            run[0],
            run[-1],
            compression=self._config.merge_compression_type if chosen == "producer" else chosen,
            index_interval_bytes=self._config.index_interval_bytes,
            sync=self._config.flush_on_append,
            throttle=self._step,
        )

    def _delete(self) -> None:
        """Delete files whose time has come."""
        found = self._deletable()
        delete_found(self._log.files.store, found)
        self._count_deleted(found)

    def _deletable(self) -> DeletableFiles:
        return find_deletable(self._log.files, self._config.file_delete_delay_ms)

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
