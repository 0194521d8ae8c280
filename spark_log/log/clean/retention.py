"""Retention: the oldest segments that are to be deleted, by size and by age.

These are Kafka's rules (``UnifiedLog.deleteOldSegments``), as a pure function of segment summaries;
`log.log_start` then moves the log start offset. Only whole segments are deleted, oldest first, up
to the first segment that is retained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_log.config import TopicConfig
from spark_log.log.segment import SegmentSummary
from spark_log.record import NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class RetentionBreach:
    """The segments that retention deletes.

    Attributes:
        by_size: number of the oldest segments that exceed ``retention.bytes``.
        by_time: number of the next oldest segments that exceed ``retention.ms``.
        log_start_offset: the log start offset without these segments; None if it does not change.
        future_us: the largest timestamp of the oldest retained segment, if it is in the future,
            else None. Until that time no segment is deleted by its age.
    """

    by_size: int = 0
    by_time: int = 0
    log_start_offset: int | None = None
    future_us: int | None = None


def find_retention_breach(
    segments: Sequence[SegmentSummary],
    config: TopicConfig,
    now_us: int,
    *,
    modified_us_of: Callable[[int], int],
    limit_offset: float = math.inf,
) -> RetentionBreach:
    """Return the segments that retention deletes.

    - ``retention.bytes``: the oldest segment is deleted if the log without it has at least this
      size.
    - ``retention.ms``: the oldest segment is deleted if its largest timestamp is further in the
      past than this. A segment with a timestamp in the future is retained until ``retention.ms``
      after that time. The largest timestamp of a segment whose records have none (-1 ms in Kafka),
      or only negative ones, is the time of its file, as in Kafka (``LogSegment.largestTimestamp``).

    The log may become empty; its end offset does not change.

    Args:
        segments: summaries of the live segments, in offset order.
        config: the topic's config.
        now_us: the storage's time, or earlier, microseconds since the epoch. The timestamps of
            records are compared with it.
        modified_us_of: returns the time of the file of a segment, by the segment's index.
        limit_offset: the highest end offset of segments that may be deleted. Records after it may
            not be on all in-sync replicas.
    """
    expirable = sum(segment.end_offset <= limit_offset for segment in segments)
    by_size = min(_beyond_size(segments, config.retention_bytes), expirable)
    by_time = 0
    future_us = None
    if config.retention_ms >= 0:
        for index, segment in enumerate(segments[by_size:expirable], by_size):
            largest_us = segment.max_timestamp_us
            if is_no_time(largest_us):
                largest_us = modified_us_of(index)
            age_us = now_us - largest_us
            if age_us <= config.retention_ms * 1000:
                future_us = largest_us if age_us < 0 else None
                break
            by_time += 1
    count = by_size + by_time
    start = segments[count - 1].end_offset if count else None
    return RetentionBreach(by_size, by_time, start, future_us)


def is_no_time(timestamp_us: int) -> bool:
    """Return whether the time of its file stands for a record's timestamp: it has none (-1 ms)."""
    return timestamp_us < NO_TIMESTAMP


def _beyond_size(segments: Sequence[SegmentSummary], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    for count, segment in enumerate(segments):
        excess -= segment.size_bytes
        if excess < 0:
            return count
    return len(segments)
