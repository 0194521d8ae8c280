"""What of a log may be compacted, how dirty it is, and whether it is time (DESIGN.md, section 6).

Kafka keeps a checkpoint of where each log is clean; here the names of the segments tell it.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log.clean.file_deletion import COARSE_US
from spark_log.log.partition_directory import LogView
from spark_log.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What of a log may be compacted (``LogCleanerManager.cleanableOffsets``).

    Attributes:
        first_dirty_offset: before it each key has one record: the newest compaction wrote it.
        end_offset: from it on nothing may be compacted yet; equal to the former: nothing is to do.
        clean_bytes: of the segments before the former.
        dirty_bytes: of those between the two.
        is_overdue: whether a record has waited for longer than ``max.compaction.lag.ms``.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The share of bytes that are dirty; 0 where there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(log: PartitionLog, view: LogView, *, now_us: int) -> tuple[Cleanable, LogView]:
    """Return what of a log may be compacted, and the view that this is told of.

    Not the last segment, which is Kafka's active one, and nothing from the first segment on that
    has a record younger than ``min.compaction.lag.ms``.

    Args:
        log: the partition's.
        view: of it.
        now_us: the storage's time, or earlier, microseconds since the epoch.

    Raises:
        CorruptRecordError: a segment is damaged or missing.
        StorageError: the storage does not answer.
    """
    summaries, view = log.segments(view)
    first_dirty = first_dirty_offset(view)
    young_us = now_us - log.config.min_compaction_lag_ms * 1000
    overdue_us = now_us - log.config.max_compaction_lag_ms * 1000
    clean_bytes = dirty_bytes = 0
    end_offset, is_overdue = view.log_start_offset, False
    for summary in summaries[:-1]:
        if summary.end_offset > first_dirty and (
            log.config.min_compaction_lag_ms and summary.max_timestamp_us > young_us
        ):
            break
        end_offset = summary.end_offset
        if end_offset <= first_dirty:
            clean_bytes += summary.size_bytes
            continue
        dirty_bytes += summary.size_bytes
        oldest_us = summary.min_timestamp_us
        if oldest_us is None:
            oldest_us = summary.max_timestamp_us
        is_overdue |= 0 < oldest_us < overdue_us
    end_offset = max(end_offset, first_dirty)
    return Cleanable(first_dirty, end_offset, clean_bytes, dirty_bytes, is_overdue), view


def first_dirty_offset(view: LogView) -> int:
    """Return up to where the newest compaction's segments reach from the log's start on.

    It looked at the log after every other one whose segments count, or ever will before its own.
    """
    end_offset = view.log_start_offset
    for segment in view.live.segments:
        name = segment.name
        if name.last_offset is None or name.generation != view.live.compaction_generation:
            break
        end_offset = name.last_offset + 1
    return end_offset


def is_fresh(log: PartitionLog, view: LogView, found: Cleanable, now_us: int) -> bool:
    """Return whether the log was compacted less than ``file.delete.delay.ms`` ago.

    A listing that began before that, and shows what was left out then, may still count. When a
    tombstone goes, what it replaced must not be in any (see `generations`).
    """
    delay_us = log.config.file_delete_delay_ms * 1000 + COARSE_US
    return any(
        segment.file.modified_us > now_us - delay_us
        for segment in view.live.segments
        if segment.start_offset < found.first_dirty_offset
    )
