"""Finds files that an older version wrote. They can be read, but lack newer features.

Files that a newer version wrote cannot be read; the doctor reports them as damage, with the
version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spark_log.doctor.check import PartitionCheck
from spark_log.doctor.finding import Finding, Problem, Severity, Subject, shell_command
from spark_log.doctor.partition_examination import PartitionExamination
from spark_log.errors import NotFoundError
from spark_log.log import Snapshot

OLD_SNAPSHOT = Problem(
    "old-snapshot",
    Severity.INFO,
    "The newest snapshot was written by an older version, without transactions or append ids: a "
    "process that opens the partition reads more files.",
)
OLD_SEGMENT = Problem(
    "old-segment",
    Severity.INFO,
    "The oldest segment was written by an older version, without checks of batch headers: a "
    "damaged header is detected later.",
)


class FormatsCheck(PartitionCheck):
    """Reads the newest snapshot and the first batch header of each partition."""

    name: ClassVar[str] = "formats"
    title: ClassVar[str] = "files of older versions"
    problems: ClassVar[tuple[Problem, ...]] = (OLD_SNAPSHOT, OLD_SEGMENT)

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about files of older versions."""
        subject, snapshot = Subject.of_partition(partition.tp), partition.snapshot
        if snapshot is not None and (missing := _missing(snapshot)):
            yield OLD_SNAPSHOT.finding(
                subject,
                f"the snapshot at offset {snapshot.offset} is of an older version: it has no "
                f"{missing}",
                remedy="Nothing has to be done: the next snapshot replaces it",
                evidence="its content",
            )
        reader = partition.oldest_segment
        try:
            is_old = reader is not None and not reader.has_header_checks
        except NotFoundError:  # rewritten and deleted meanwhile
            return
        if is_old:
            yield OLD_SEGMENT.finding(
                subject,
                "its oldest segment is of an older version: it has no checks of batch headers",
                remedy="Nothing has to be done: merging and compaction rewrite it",
                command=shell_command("clean", partition.tp.topic),
                evidence=f"the first header of {partition.view.live.segments[0].name.file_name}",
            )


def _missing(snapshot: Snapshot) -> str:
    missing = [] if snapshot.producers.transactions.is_complete else ["transactions"]
    # Rewritten segments need no append id: a merge leaves it out of the summary.
    appended = [each for each in snapshot.segments if each.name.last_offset is None]
    if appended and not any(each.append_id for each in appended):
        missing.append("append ids")
    return " and no ".join(missing)
