"""Collects the findings of the checks, with a bounded number of examples of each anomaly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Set

from spark_log.testing.history.anomaly import Anomaly
from spark_log.testing.history.columns import NONE, HistoryColumns, Ints
from spark_log.testing.history.findings import Finding, Findings

SHOWN_OPERATIONS = 8
"""Maximum number of operations that an example names."""


class Report:
    """The findings so far.

    Args:
        columns: the history.
        examples: maximum number of examples of each anomaly.
    """

    def __init__(self, columns: HistoryColumns, examples: int) -> None:
        self._columns = columns
        self._examples = examples
        self._counts: Counter[Anomaly] = Counter()
        self._findings: dict[Anomaly, list[Finding]] = {anomaly: [] for anomaly in Anomaly}

    def add(self, anomaly: Anomaly, rows: Ints, explain: Callable[[int], Finding]) -> None:
        """Count the rows that show an anomaly, and explain some of them, up to the limit."""
        self._counts[anomaly] += len(rows)
        found = self._findings[anomaly]
        found += map(explain, rows[: self._examples - len(found)].tolist())

    def finding(
        self,
        anomaly: Anomaly,
        partition: int,
        offset: int,
        operations: Iterable[int],
        explanation: str,
    ) -> Finding:
        """Make a finding from numbers of the columns; NONE stands for no partition or offset."""
        names = dict.fromkeys(self._columns.name(int(each)) for each in operations if each != NONE)
        return Finding(
            anomaly,
            None if partition == NONE else self._columns.partitions[partition],
            None if offset == NONE else int(offset),
            tuple(names)[:SHOWN_OPERATIONS],
            explanation,
        )

    def findings(self, allowed: Set[Anomaly]) -> Findings:
        """Return everything that was reported."""
        return Findings(
            tuple(each for found in self._findings.values() for each in found),
            {anomaly: self._counts[anomaly] for anomaly in Anomaly if self._counts[anomaly]},
            frozenset(allowed),
        )
