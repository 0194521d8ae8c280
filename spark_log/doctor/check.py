"""`Check`: one thing that the doctor looks at. `PartitionCheck`: one that looks at each partition.

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
    """A check was left out: it was not asked for, or does not apply to this root.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Check(ABC):
    """One thing to look at. Each run of the doctor has its own object.

    Attributes:
        name: for ``--checks``.
        title: what it looks at, in one line.
        problems: the kinds of its findings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    problems: ClassVar[tuple[Problem, ...]]

    @abstractmethod
    def findings(self, examination: Examination) -> Iterable[Finding]:
        """Look, and return what is wrong.

        Raises:
            NotCheckedError: there is nothing to look at, or it was not asked for.
        """


class PartitionCheck(ABC):
    """One thing to look at in each partition. Each run of the doctor has its own object.

    `partition_findings` is called by several threads, each time for another partition.

    Attributes:
        name: for ``--checks``.
        title: what it looks at, in one line.
        problems: the kinds of its findings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    problems: ClassVar[tuple[Problem, ...]]

    def begin(self, examination: Examination) -> Iterable[Finding]:
        """Prepare, and return what is wrong already.

        Raises:
            NotCheckedError: there is nothing to look at.
        """
        return ()

    @abstractmethod
    def partition_findings(self, partition: PartitionExamination) -> Iterable[Finding]:
        """Look at a partition, and return what is wrong with it."""

    def end(self, examination: Examination) -> Iterable[Finding]:
        """Return what all partitions together show."""
        return ()
