"""Checks that partitions are cleaned: retention, compaction, merges.

The check reads one listing and one header, so that its cost does not depend on the length of the
log. It may miss overdue work that a cleaner would find, but reports none that a cleaner would not
find: a file's date is never earlier than its append.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from spark_log.doctor.check import PartitionCheck
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
    size_text,
)
from spark_log.doctor.partition_examination import PartitionExamination
from spark_log.log.clean import count_mergeable, first_dirty_offset

RETENTION_OVERDUE = Problem(
    "retention-overdue",
    Severity.WARNING,
    "Records should have been deleted by retention.ms or retention.bytes, and no cleaner did it.",
)
TIMESTAMPS_IN_FUTURE = Problem(
    "timestamps-in-future",
    Severity.WARNING,
    "The oldest records have timestamps in the future: until then no record is deleted by its age.",
)
COMPACTION_OVERDUE = Problem(
    "compaction-overdue",
    Severity.WARNING,
    "More of a compacted log is dirty than min.cleanable.dirty.ratio allows, and no cleaner "
    "compacts it.",
)
MERGES_OVERDUE = Problem(
    "merges-overdue",
    Severity.WARNING,
    "A partition has very many small segments that could be merged: listing it takes long.",
)

_US: Final = 1000
_FUTURE_US: Final = 86_400_000_000


class CleaningCheck(PartitionCheck):
    """Finds work of a cleaner that is long overdue."""

    name: ClassVar[str] = "cleaning"
    title: ClassVar[str] = "retention, compaction and merges that are overdue"
    problems: ClassVar[tuple[Problem, ...]] = (
        RETENTION_OVERDUE,
        TIMESTAMPS_IN_FUTURE,
        COMPACTION_OVERDUE,
        MERGES_OVERDUE,
    )

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about the overdue work in a partition."""
        if not partition.view_at_home.live.segments:
            return
        policy = partition.config.cleanup_policy
        if "delete" in policy:
            yield from _by_age(partition)
            yield from _by_size(partition)
        if "compact" in policy:
            yield from _compaction(partition)
        else:
            yield from _merges(partition)


def _clean(partition: PartitionExamination) -> str:
    return shell_command("clean", partition.tp.topic)


def _overdue_us(partition: PartitionExamination) -> int:
    return partition.examination.limits.overdue_ms * _US


def _by_age(partition: PartitionExamination) -> Iterator[Finding]:
    retention_ms, oldest_us = partition.config.retention_ms, partition.oldest_us
    if retention_ms < 0 or oldest_us is None or oldest_us < 0:
        return
    now_us, subject = partition.examination.now_us, Subject.of_partition(partition.tp)
    first = partition.view_at_home.live.segments[0]
    seen = f"the largest timestamp in {first.name.file_name}"
    if oldest_us - now_us > _FUTURE_US:
        yield TIMESTAMPS_IN_FUTURE.finding(
            subject,
            f"its oldest segment has a timestamp {duration_text(oldest_us - now_us)} in the "
            f"future: no record is deleted by its age before retention.ms after that time",
            remedy="Find out which producer sets it. Delete the records by spark-log "
            "delete-records, and lower message.timestamp.after.max.ms",
            command=shell_command("configs", "describe", partition.tp.topic),
            evidence=seen,
        )
        return
    # Records with old timestamps may just have been appended.
    due_us = min(now_us - oldest_us - retention_ms * _US, now_us - first.file.modified_us)
    if due_us > _overdue_us(partition):
        yield RETENTION_OVERDUE.finding(
            subject,
            f"records are kept {duration_text(due_us)} longer than retention.ms ({retention_ms}) "
            f"says",
            remedy="Let a cleaner run every hour",
            command=_clean(partition),
            evidence=seen,
        )


def _by_size(partition: PartitionExamination) -> Iterator[Finding]:
    retention_bytes = partition.config.retention_bytes
    if retention_bytes < 0:
        return
    segments = partition.view_at_home.live.segments
    total = sum(each.file.size_bytes for each in segments)
    # The oldest segment became due when the segments after it reached retention.bytes.
    rest = 0
    for each in segments[1:]:
        rest += each.file.size_bytes
        if rest >= retention_bytes:
            due_us = partition.examination.now_us - each.file.modified_us
            break
    else:
        return
    if due_us > _overdue_us(partition):
        yield RETENTION_OVERDUE.finding(
            Subject.of_partition(partition.tp),
            f"it has {size_text(total)}, and has exceeded retention.bytes "
            f"({size_text(retention_bytes)}) for {duration_text(due_us)}",
            remedy="Let a cleaner run every hour",
            command=_clean(partition),
            evidence=f"a listing of {len(segments):,} segments",
        )


def _compaction(partition: PartitionExamination) -> Iterator[Finding]:
    config, view = partition.config, partition.view_at_home
    first_dirty = first_dirty_offset(view)
    now_us = partition.examination.now_us
    before_us = now_us - _overdue_us(partition) - config.min_compaction_lag_ms * _US
    clean_bytes = dirty_bytes = 0
    oldest_us = now_us
    for each in view.live.segments[:-1]:  # not the active segment
        assert each.end_offset is not None
        if each.end_offset <= first_dirty:
            clean_bytes += each.file.size_bytes
        elif each.file.modified_us > before_us:
            break
        else:
            dirty_bytes += each.file.size_bytes
            oldest_us = min(oldest_us, each.file.modified_us)
    if not dirty_bytes:
        return
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    is_late = now_us - oldest_us > _overdue_us(partition) + config.max_compaction_lag_ms * _US
    if ratio > config.min_cleanable_dirty_ratio or is_late:
        yield COMPACTION_OVERDUE.finding(
            Subject.of_partition(partition.tp),
            f"{ratio:.0%} of it ({size_text(dirty_bytes)}) has been dirty for "
            f"{duration_text(now_us - oldest_us)} at most, and min.cleanable.dirty.ratio is "
            f"{config.min_cleanable_dirty_ratio}",
            remedy="Let a cleaner run every hour",
            command=_clean(partition),
            evidence=f"a listing of {len(view.live.segments):,} segments",
        )


def _merges(partition: PartitionExamination) -> Iterator[Finding]:
    limit, view = partition.examination.limits.small_segments, partition.view_at_home
    if len(view.live.segments) <= limit:
        return
    small = count_mergeable(view, partition.config)
    if small > limit:
        yield MERGES_OVERDUE.finding(
            Subject.of_partition(partition.tp),
            f"{small:,} of its {len(view.live.segments):,} segments are small and wait to be "
            f"merged",
            remedy="Let a cleaner run every hour, and send larger batches (linger.ms)",
            command=_clean(partition),
            evidence="a listing",
        )
