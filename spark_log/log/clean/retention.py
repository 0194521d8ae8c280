"""Which records are past their time: the oldest segments, by size and by age.

Kafka's rules (``UnifiedLog.deleteOldSegments``), decided by a pure function of what each segment
holds; `log.log_start` then moves the log's start. Only whole segments go, oldest first, and the
first one that has to stay keeps all that follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_log.config import TopicConfig
from spark_log.log.snapshot.snapshot import SegmentSummary


@dataclass(frozen=True, slots=True)
class Breach:
    """The segments that retention deletes.

    Attributes:
        by_size: how many of the oldest ``retention.bytes`` lets go.
        by_time: how many of those that follow them ``retention.ms`` lets go.
        log_start_offset: where the log begins without them; None if it stays as it is.
        future_us: the largest timestamp of the log's oldest segment that stays, where it lies in
            the future; None else. Until it has passed nothing goes by its age.
    """

    by_size: int = 0
    by_time: int = 0
    log_start_offset: int | None = None
    future_us: int | None = None


def find_breach(segments: Sequence[SegmentSummary], config: TopicConfig, now_us: int) -> Breach:
    """Return what retention deletes.

    - ``retention.bytes``: the oldest segment goes as long as what is left without it is no less.
    - ``retention.ms``: the oldest segment goes when its largest timestamp is longer ago. A
      timestamp in the future is not: the segment stays until that time is past as well.

    The log may be left empty; its end stays where it is.

    Args:
        segments: of the live log, in offset order.
        config: the topic's.
        now_us: the storage's time, or earlier, microseconds since the epoch. Timestamps of records
            are compared with it: they are data.
    """
    by_size = _beyond_size(segments, config.retention_bytes)
    by_time = 0
    future_us = None
    if config.retention_ms >= 0:
        for segment in segments[by_size:]:
            age_us = now_us - segment.max_timestamp_us
            if age_us <= config.retention_ms * 1000:
                future_us = segment.max_timestamp_us if age_us < 0 else None
                break
            by_time += 1
    count = by_size + by_time
    start = segments[count - 1].end_offset if count else None
    return Breach(by_size, by_time, start, future_us)


def _beyond_size(segments: Sequence[SegmentSummary], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    for count, segment in enumerate(segments):
        excess -= segment.size_bytes
        if excess < 0:
            return count
    return len(segments)
