"""Checks that snapshots are written, and can be read.

With a snapshot, a process that opens a partition need not open each segment. Appenders write
snapshots; they only count a failure, since appends work without snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from spark_log.doctor.check import PartitionCheck
from spark_log.doctor.finding import Finding, Problem, Severity, Subject, shell_command
from spark_log.doctor.partition_examination import PartitionExamination
from spark_log.log import LogView

SNAPSHOT_BEHIND = Problem(
    "snapshot-behind",
    Severity.WARNING,
    "No snapshot of a partition was written for a long time: each process that opens it reads the "
    "headers of all segments since.",
)
SNAPSHOT_DAMAGED = Problem(
    "snapshot-damaged", Severity.WARNING, "The newest snapshot of a partition cannot be read."
)
_SLACK: Final = 64
"""Number of segments that may be added while a snapshot is written."""


class SnapshotsCheck(PartitionCheck):
    """Reads the newest snapshot of each partition."""

    name: ClassVar[str] = "snapshots"
    title: ClassVar[str] = "snapshots of partitions"
    problems: ClassVar[tuple[Problem, ...]] = (SNAPSHOT_BEHIND, SNAPSHOT_DAMAGED)

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about a partition's snapshots."""
        subject, view = Subject.of_partition(partition.tp), partition.view_at_home
        topic, number = partition.tp
        behind = segments_without_snapshot(view, partition.config.snapshot_interval_segments)
        if behind:
            yield SNAPSHOT_BEHIND.finding(
                subject,
                f"it has {behind:,} segments since its last snapshot",
                remedy="Find out why writers cannot write a snapshot (their logs show the error); "
                "merging the segments helps at once",
                command=shell_command("clean", topic),
                evidence=f"a listing of {len(view.live.segments):,} segments",
            )
        newest = next(
            (each for each in reversed(view.live.snapshots) if each <= view.log_end_offset), None
        )
        snapshot = partition.snapshot
        if newest is not None and (snapshot is None or snapshot.offset < newest):
            yield SNAPSHOT_DAMAGED.finding(
                subject,
                f"the snapshot at offset {newest} cannot be read",
                remedy="Write it anew from the segments",
                command=shell_command("verify", topic, "--partition", number, "--repair"),
                evidence="its content",
            )


def segments_without_snapshot(view: LogView, interval: int) -> int:
    """Return the number of segments after the newest snapshot, if it is far too high; else 0.

    A snapshot is due after ``snapshot.interval.segments`` new segments, or after a quarter of the
    number in the last snapshot if that is more. Twice this number is far too high.

    Args:
        view: the view of the log.
        interval: ``snapshot.interval.segments``.
    """
    count = len(view.live.segments)
    newest = max((each for each in view.live.snapshots if each <= view.log_end_offset), default=0)
    covered = 0
    if newest:
        covered = count if newest >= view.log_end_offset else max(0, view.live.index_of(newest))
    behind = count - covered
    return behind if behind > 2 * max(interval, covered // 4) + _SLACK else 0
