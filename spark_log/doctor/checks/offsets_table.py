"""Checks that the table of committed offsets can be read, and has a recent checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from spark_log.coordinator import OffsetsTable
from spark_log.doctor.check import Check, NotCheckedError
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import ROOT, Finding, Problem, Severity, shell_command
from spark_log.errors import StorageError, UnsupportedStoreError
from spark_log.storage import OFFSETS_TABLE

OFFSETS_DAMAGED = Problem(
    "offsets-damaged",
    Severity.ERROR,
    "The table of committed offsets is damaged or was lost: groups can neither commit nor begin.",
)
CHECKPOINT_BEHIND = Problem(
    "offsets-checkpoint-behind",
    Severity.WARNING,
    "No checkpoint of the table of committed offsets was written for a long time: each process "
    "that opens it reads all versions since.",
)

_INTERVALS: Final = 10
"""Maximum number of checkpoint intervals without a checkpoint; a busy table misses some."""


class OffsetsTableCheck(Check):
    """Reads all committed offsets."""

    name: ClassVar[str] = "offsets-table"
    title: ClassVar[str] = "the table of committed offsets"
    problems: ClassVar[tuple[Problem, ...]] = (OFFSETS_DAMAGED, CHECKPOINT_BEHIND)

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about the table."""
        table = offsets_table(examination)
        try:
            table.all_committed_offsets()
            lag = table.checkpoint_lag()
        except StorageError as error:
            if error.retriable:
                raise
            examination.offsets_error = str(error)
            yield OFFSETS_DAMAGED.finding(
                ROOT,
                str(error),
                remedy="Stop the consumers, see what can be saved, then repair it with --execute",
                command=shell_command("groups", "repair"),
                evidence="the Delta log and the data files of __consumer_offsets",
            )
            return
        if lag.versions > _INTERVALS * lag.interval:
            yield CHECKPOINT_BEHIND.finding(
                ROOT,
                f"{lag.versions:,} versions of the table of committed offsets since its last "
                f"checkpoint, and a checkpoint is due every {lag.interval} versions",
                remedy="Find out why consumers cannot write a checkpoint: their logs show the "
                "error, such as clocks that differ",
                command=shell_command("doctor", "--checks", "clocks", "--probe-storage"),
                evidence=f"{OFFSETS_TABLE}/_delta_log",
            )


def offsets_table(examination: Examination) -> OffsetsTable:
    """Return the table of committed offsets.

    Raises:
        NotCheckedError: the root cannot have such a table.
    """
    try:
        return OffsetsTable(examination.cluster)
    except UnsupportedStoreError as error:
        raise NotCheckedError(error.message) from error
