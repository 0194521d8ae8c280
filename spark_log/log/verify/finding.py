"""What a verification finds: one value for each thing that is not as it should be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import pyarrow as pa


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Records are damaged or missing. Only a copy brings them back."""

    WARNING = "warning"
    """The records are sound; a derived file is damaged, or something lies about. Can be repaired,
    or says what to do."""

    NOTE = "note"
    """Nothing is wrong: what a crash or a writer at work leaves, and what goes away by itself."""


class FindingKind(StrEnum):
    """What it is."""

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
    ORPHANED_FILE = "orphaned-file"
    UNFINISHED_WRITE = "unfinished-write"
    UNKNOWN_FILE = "unknown-file"
    ORPHANED_DIRECTORY = "orphaned-directory"
    UNREADABLE = "unreadable"


_REMEDIES: Final = {
    FindingKind.DAMAGED_INDEX: "made anew",
    FindingKind.MISSING_INDEX: "made anew",
    FindingKind.DAMAGED_SNAPSHOT: "made anew",
    FindingKind.WRONG_SNAPSHOT: "made anew",
    FindingKind.SPENT_SEGMENT: "removed",
    FindingKind.SPENT_START: "removed",
    FindingKind.ORPHANED_FILE: "removed",
    FindingKind.UNFINISHED_WRITE: "removed",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        path: the file or directory, relative to the root.
        kind: what it is.
        severity: how bad it is.
        message: what is wrong, and what can be done.
        repaired: whether this very run has set it right.
    """

    path: str
    kind: FindingKind
    severity: Severity
    message: str
    repaired: bool = False

    @property
    def remedy(self) -> str | None:
        """What a repair does about it: ``made anew`` or ``removed``; None: nothing."""
        return _REMEDIES.get(self.kind)

    @property
    def is_problem(self) -> bool:
        """Whether it is still there, and more than a note."""
        return not self.repaired and self.severity is not Severity.NOTE


def findings_table(findings: Iterable[Finding]) -> pa.Table:
    """Return findings as a table.

    Columns: ``path``, ``kind``, ``severity``, ``message``: string; ``repaired``: bool.
    """
    rows = list(findings)
    return pa.table(
        {
            "path": pa.array([finding.path for finding in rows], pa.string()),
            "kind": pa.array([str(finding.kind) for finding in rows], pa.string()),
            "severity": pa.array([str(finding.severity) for finding in rows], pa.string()),
            "message": pa.array([finding.message for finding in rows], pa.string()),
            "repaired": pa.array([finding.repaired for finding in rows], pa.bool_()),
        }
    )
