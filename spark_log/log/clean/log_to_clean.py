"""The cleanable range of a log, its dirty ratio, and whether it must be cleaned (protocol W9, W10).

Kafka stores the first dirty offset of each log in a checkpoint file. In spark-log it follows from
the names of the segments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spark_log.log.clean.retention import is_no_time
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import SegmentSummary
from spark_log.record import NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The cleanable range of a log (Kafka's ``LogToClean``, ``cleanableOffsets``).

    Attributes:
        first_dirty_offset: the offset before which the newest compaction has left one record for
            each key.
        end_offset: the first offset that may not be compacted yet. Equal to
            ``first_dirty_offset`` if nothing can be compacted.
        clean_bytes: size of the segments before ``first_dirty_offset``.
        dirty_bytes: size of the segments between the two offsets.
        is_overdue: whether a dirty record is older than ``max.compaction.lag.ms``.
        expired: the clean segments whose tombstones and markers may all be removed, since their
            delete horizons have passed.
        has_read_horizons: whether batch headers were read to find delete horizons that the newest
            snapshot does not have.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    expired: tuple[SegmentSummary, ...] = ()
    has_read_horizons: bool = False

    @property
    def expired_bytes(self) -> int:
        """Size of the segments in `expired`."""
        return sum(each.size_bytes for each in self.expired)

    @property
    def ratio(self) -> float:
        """Dirty bytes divided by all bytes; 0 in an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def log_to_clean(
    log: LocalLog, view: LogView, *, now_us: int, limit_offset: float = math.inf
) -> tuple[LogToClean, LogView]:
    """Return the cleanable range of a log, and the view of the log that it is valid for.

    The range ends before the last segment (Kafka's active segment), and before the first dirty
    segment with a record younger than ``min.compaction.lag.ms``. The time of its file stands for
    the timestamps of a segment whose records have none (-1 ms in Kafka), as in Kafka
    (``LogSegment.largestTimestamp``), and for the oldest of a segment of which a record has none.

    Args:
        log: the partition's log.
        view: a view of the log.
        now_us: the storage's time, or earlier, microseconds since the epoch.
        limit_offset: maximum end of the range. A record after it may yet be lost, so it replaces no
            other record.

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
    expired: list[SegmentSummary] = []
    has_read_horizons = False
    for segment, summary in zip(view.live.segments[:-1], summaries[:-1], strict=True):
        if summary.end_offset > limit_offset:
            break
        largest_us = summary.max_timestamp_us
        if is_no_time(largest_us):
            largest_us = segment.file.modified_us
        if summary.end_offset > first_dirty and (
            log.config.min_compaction_lag_ms and largest_us > young_us
        ):
            break
        end_offset = summary.end_offset
        if end_offset <= first_dirty:
            clean_bytes += summary.size_bytes
            horizon_us = summary.delete_horizon_us
            if horizon_us is None:
                horizon_us = log.snapshots.summaries.read_delete_horizon(segment, view.observed_ms)
                has_read_horizons = True
            if NO_TIMESTAMP < horizon_us <= now_us:
                expired.append(summary)
            continue
        dirty_bytes += summary.size_bytes
        oldest_us = summary.min_timestamp_us
        if oldest_us is None:
            oldest_us = summary.max_timestamp_us
        if is_no_time(oldest_us):
            oldest_us = segment.file.modified_us
        is_overdue |= 0 < oldest_us < overdue_us
    end_offset = max(end_offset, first_dirty)
    found = LogToClean(
        first_dirty,
        end_offset,
        clean_bytes,
        dirty_bytes,
        is_overdue,
        tuple(expired),
        has_read_horizons,
    )
    return found, view


def first_dirty_offset(view: LogView) -> int:
    """Return the end of the newest compaction's segments at the log's start.

    Some of these segments may have been replaced since by segments without tombstones. The newest
    compaction listed the log after all other compactions whose segments are in the log, or may
    still appear before its own.
    """
    end_offset, live = view.log_start_offset, view.live
    for segment in live.segments:
        name = segment.name
        is_clean = live.clean_generation <= name.generation <= live.compaction_generation
        if name.last_offset is None or not name.is_compacted or not is_clean:
            break
        end_offset = name.last_offset + 1
    return end_offset


def is_recently_compacted(log: LocalLog, view: LogView, found: LogToClean, now_us: int) -> bool:
    """Return whether the log was compacted less than ``file.delete.delay.ms`` ago.

    A reader's listing from before that compaction may still be valid, and shows the records that
    the compaction removed. A tombstone may only be removed when no valid listing shows the records
    that it deleted.
    """
    delay_us = log.config.file_delete_delay_ms * 1000 + log.files.store.time_resolution_us
    return any(
        segment.file.modified_us > now_us - delay_us
        for segment in view.live.segments
        if segment.start_offset < found.first_dirty_offset
    )
