"""Finds unknown files, and obsolete files that no cleaner has removed for a long time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

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
from spark_log.doctor.partition_examination import PartitionExamination, ReplicaFiles
from spark_log.log import find_deletable
from spark_log.log.verify import is_partition_file

FILES_LEFT = Problem(
    "files-left",
    Severity.WARNING,
    "Files that no reader needs have waited for a cleaner for a long time: merged or deleted "
    "segments, or temporary files of writers that crashed.",
)
UNKNOWN_FILES = Problem(
    "unknown-files",
    Severity.INFO,
    "A partition's directory has files that do not belong to a log.",
)


class FilesCheck(PartitionCheck):
    """Applies the rules of a cleaner to the files of each replica; removes nothing."""

    name: ClassVar[str] = "files"
    title: ClassVar[str] = "obsolete and unknown files of partitions"
    problems: ClassVar[tuple[Problem, ...]] = (FILES_LEFT, UNKNOWN_FILES)

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about leftover files in the directories of a partition's replicas."""
        for replica in partition.replicas:
            subject = Subject.of_partition(partition.tp, replica.broker_id)
            yield from _left(partition, replica, subject)
            yield from _unknown(replica, subject)


def _left(
    partition: PartitionExamination, replica: ReplicaFiles, subject: Subject
) -> Iterator[Finding]:
    overdue_us = partition.examination.limits.overdue_ms * 1000
    found = find_deletable(
        replica.directory,
        partition.config.file_delete_delay_ms,
        now_us=partition.examination.now_us - overdue_us,
        listed=(replica.files, replica.hidden),
    )
    kinds = (
        (len(found.segments), "segments that were merged, compacted or deleted"),
        (len(found.unfinished), "temporary files of writers that do not run any more"),
        (len(found.derived) + len(found.markers), "indexes, snapshots and markers without use"),
    )
    if not found.all:
        return
    oldest_us = min(file.modified_us for file in found.all)
    what = ", ".join(f"{count:,} {name}" for count, name in kinds if count)
    age = duration_text(partition.examination.now_us - oldest_us)
    yield FILES_LEFT.finding(
        subject,
        f"it has {size_text(found.size_bytes)} of files that no reader needs: {what}; the oldest "
        f"is {age} old",
        remedy="Let a cleaner run every hour",
        command=shell_command("clean", partition.tp.topic),
        evidence=f"a listing of {replica.directory.url}",
    )


def _unknown(replica: ReplicaFiles, subject: Subject) -> Iterator[Finding]:
    names = [each.name for each in replica.files if not is_partition_file(each.name)]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield UNKNOWN_FILES.finding(
            subject,
            f"its directory has files that do not belong to it: {', '.join(names[:3])}{more}",
            remedy="Inspect them, and remove them by hand",
            evidence=f"a listing of {replica.directory.url}",
        )
