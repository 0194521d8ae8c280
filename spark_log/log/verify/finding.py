"""Findings of a verification: one value for each problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LogSeverity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Records are damaged or missing. They can only be restored from a copy."""

    WARNING = "warning"
    """The records are intact, but a derived file is damaged or a file does not belong to the log. A
    repair fixes it, or the message says what to do."""

    NOTE = "note"
    """No problem: a file of a crashed or running writer, or a file that a cleaner will delete."""


class LogFindingKind(StrEnum):
    """The kind of problem that a finding reports."""

    DAMAGED_SEGMENT = "damaged-segment"
    MISSING_SEGMENT = "missing-segment"
    OVERLAPPING_SEGMENT = "overlapping-segment"
    SPENT_SEGMENT = "spent-segment"
    DAMAGED_INDEX = "damaged-index"
    MISSING_INDEX = "missing-index"
    DAMAGED_SNAPSHOT = "damaged-snapshot"
    WRONG_SNAPSHOT = "wrong-snapshot"
    WRONG_START = "wrong-start"
    SPENT_START = "spent-start"
    LATE_BATCH = "late-batch"
    REPEATED_SEQUENCE = "repeated-sequence"
    MISSING_MARKER = "missing-marker"
    WRONG_MARKER = "wrong-marker"
    ORPHANED_FILE = "orphaned-file"
    UNFINISHED_WRITE = "unfinished-write"
    UNKNOWN_FILE = "unknown-file"
    ORPHANED_DIRECTORY = "orphaned-directory"
    UNREADABLE = "unreadable"
    WRONG_LEADER_EPOCH = "wrong-leader-epoch"
    DIFFERENT_REPLICA = "different-replica"
    DAMAGED_OBJECT = "damaged-object"
    MISSING_OBJECT = "missing-object"
    SPENT_OBJECT = "spent-object"
    DAMAGED_HOME = "damaged-home"
    WRONG_HOME = "wrong-home"


_REMEDIES: Final = {
    LogFindingKind.DAMAGED_INDEX: "rebuilt",
    LogFindingKind.MISSING_INDEX: "rebuilt",
    LogFindingKind.DAMAGED_SNAPSHOT: "rebuilt",
    LogFindingKind.WRONG_SNAPSHOT: "rebuilt",
    LogFindingKind.SPENT_SEGMENT: "removed",
    LogFindingKind.SPENT_START: "removed",
    LogFindingKind.SPENT_OBJECT: "removed",
    LogFindingKind.ORPHANED_FILE: "removed",
    LogFindingKind.UNFINISHED_WRITE: "removed",
}


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One problem, or a note.

    Attributes:
        path: the file or directory, relative to the broker's root.
        kind: the kind of problem.
        severity: the severity of the problem.
        message: the description of the problem, with the action to take.
        repaired: whether this run has repaired the problem.
        broker_id: the id of the broker that has the file.
    """

    path: str
    kind: LogFindingKind
    severity: LogSeverity
    message: str
    repaired: bool = False
    broker_id: int = 0

    @property
    def remedy(self) -> str | None:
        """Effect of a repair: the file is ``rebuilt`` or ``removed``; None if nothing is done."""
        return _REMEDIES.get(self.kind)

    @property
    def is_problem(self) -> bool:
        """Whether the finding is an error or a warning that this run has not repaired."""
        return not self.repaired and self.severity is not LogSeverity.NOTE
