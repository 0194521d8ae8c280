"""`Check`: a check of the whole root. `PartitionCheck`: a check of each partition.

A check only reads, and it raises nothing but `NotCheckedError` on purpose: any other error becomes
a finding of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import Finding, Problem
from spark_log.doctor.partition_examination import PartitionExamination


class NotCheckedError(Exception):
    """A check was skipped: it was not requested, or does not apply to this root.

    Attributes:
        reason: the reason for skipping it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Check(ABC):
    """A check of the whole root. Each run of the doctor has its own object.

    Attributes:
        name: the name of the check for ``--checks``.
        title: the subject of the check, in one line.
        problems: the kinds of its findings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    problems: ClassVar[tuple[Problem, ...]]

    @abstractmethod
    def findings(self, examination: Examination) -> Iterable[Finding]:
        """Run the check, and return its findings.

        Raises:
            NotCheckedError: the check does not apply, or was not requested.
        """


class PartitionCheck(ABC):
    """A check of each partition. Each run of the doctor has its own object.

    `partition_findings` is called by several threads, each time for another partition.

    Attributes:
        name: the name of the check for ``--checks``.
        title: the subject of the check, in one line.
        problems: the kinds of its findings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    problems: ClassVar[tuple[Problem, ...]]

    def begin(self, examination: Examination) -> Iterable[Finding]:
        """Prepare the check of partitions, and return the findings of the preparation.

        Raises:
            NotCheckedError: the check does not apply.
        """
        return ()

    @abstractmethod
    def partition_findings(self, partition: PartitionExamination) -> Iterable[Finding]:
        """Check a partition, and return its findings."""

    def end(self, examination: Examination) -> Iterable[Finding]:
        """Return the findings about all partitions together."""
        return ()
