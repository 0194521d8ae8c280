"""Checks that the metadata log is complete, and that a process reads few files of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.doctor.check import Check
from spark_log.doctor.checks.snapshots import segments_without_snapshot
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import ROOT, Finding, Problem, Severity, shell_command
from spark_log.errors import CorruptRecordError
from spark_log.metadata import METADATA_DIRECTORY, METADATA_MARKER

METADATA_DAMAGED = Problem(
    "metadata-damaged", Severity.ERROR, "Files of the metadata log are damaged or missing."
)
METADATA_WITHOUT_CHECKPOINT = Problem(
    "metadata-without-checkpoint",
    Severity.WARNING,
    "The checkpoint of the metadata is missing, damaged or old: each process that opens the root "
    "reads many files.",
)
METADATA_WITHOUT_SNAPSHOT = Problem(
    "metadata-without-snapshot",
    Severity.WARNING,
    "No snapshot of the metadata log's files was written for a long time: snapshots fail.",
)


class MetadataLogCheck(Check):
    """Lists the metadata log, and reads its checkpoint."""

    name: ClassVar[str] = "metadata-log"
    title: ClassVar[str] = "files and snapshots of the metadata log"
    problems: ClassVar[tuple[Problem, ...]] = (
        METADATA_DAMAGED,
        METADATA_WITHOUT_SNAPSHOT,
        METADATA_WITHOUT_CHECKPOINT,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about the metadata log."""
        try:
            view = examination.cluster.metadata.observe()
        except CorruptRecordError as error:
            yield METADATA_DAMAGED.finding(
                ROOT,
                str(error),
                remedy="Find out what is damaged, and restore it from a copy",
                command=shell_command("verify"),
                evidence=METADATA_DIRECTORY,
            )
            return
        count = len(view.live.segments)
        seen = f"a listing of {METADATA_DIRECTORY}: {count:,} files"
        if behind := segments_without_snapshot(
            view, INTERNAL_LOG_CONFIG.snapshot_interval_segments
        ):
            yield METADATA_WITHOUT_SNAPSHOT.finding(
                ROOT,
                f"the metadata were changed {behind:,} times since the last snapshot of their log",
                remedy="Find out why no snapshot can be written: logs of the processes that change "
                "metadata show the error; the next change after the repair writes a snapshot",
                evidence=seen,
            )
        checkpoint = examination.cluster.metadata.checkpoint_offset()
        behind = sum(each.start_offset >= checkpoint for each in view.live.segments)
        if behind > examination.limits.metadata_files:
            yield METADATA_WITHOUT_CHECKPOINT.finding(
                ROOT,
                f"each process that opens the root reads {behind:,} files of metadata",
                remedy="Change any setting: each change writes the checkpoint. If that does not "
                "help, the logs of the process that made the change show the error",
                evidence=f"{METADATA_MARKER.path}, and {seen}",
            )
