"""Findings of the doctor: what is wrong with which part of a root, and what to do about it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from spark_log.types import TopicPartition


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    """Something does not work now, or records are at risk. Act now."""

    WARNING = "warning"
    """It works, and will not for ever: a reserve is used up, or nobody does what has to be done."""

    INFO = "info"
    """Worth to know. It does not change the exit status."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The part of a root that a finding is about.

    Attributes:
        text: for people, such as ``partition flights-0``.
        topic: name of the topic; None if it is about no single topic.
        partition: number of the partition; None if it is about no single partition.
        group: id of the group; None if it is about no group.
        broker: id of the broker; None if it is about no single broker.
    """

    text: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    broker: int | None = None

    @classmethod
    def of_partition(cls, tp: TopicPartition, broker: int | None = None) -> Subject:
        """Return a partition, or with ``broker`` the replica there."""
        where = f" on broker {broker}" if broker else ""
        return cls(f"partition {tp.topic}-{tp.partition}{where}", *tp, broker=broker)

    @classmethod
    def of_topic(cls, topic: str) -> Subject:
        """Return a topic."""
        return cls(f"topic {topic}", topic)

    @classmethod
    def of_group(cls, group: str) -> Subject:
        """Return a consumer group."""
        return cls(f"group {group}", group=group)

    @classmethod
    def of_broker(cls, broker: int) -> Subject:
        """Return a broker: a storage root."""
        return cls(f"broker {broker}", broker=broker)


ROOT = Subject("root")
"""The root of the cluster."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of finding.

    Attributes:
        code: its name, which does not change.
        severity: of all findings of this kind.
        meaning: what it means, in one line.
    """

    code: str
    severity: Severity
    meaning: str

    def finding(
        self,
        subject: Subject,
        message: str,
        *,
        remedy: str,
        command: str | None = None,
        evidence: str,
    ) -> Finding:
        """Return a finding of this kind.

        Args:
            subject: the part of the root.
            message: what is wrong with it.
            remedy: what to do, as a sentence without the command.
            command: the command that does it, for a shell; None if no single command does.
            evidence: how it was seen.
        """
        return Finding(self, subject, message, remedy, command, evidence)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        problem: its kind.
        subject: the part of the root.
        message: what is wrong with it.
        remedy: what to do, as a sentence without the command.
        command: the command that does it, for a shell; None if no single command does.
        evidence: how it was seen.
    """

    problem: Problem
    subject: Subject
    message: str
    remedy: str
    command: str | None
    evidence: str

    @property
    def severity(self) -> Severity:
        """How serious it is."""
        return self.problem.severity

    def document(self) -> dict[str, object]:
        """Return the finding for JSON; docs/doctor.md describes the members."""
        return {
            "code": self.problem.code,
            "severity": str(self.severity),
            "subject": self.subject.text,
            "topic": self.subject.topic,
            "partition": self.subject.partition,
            "group": self.subject.group,
            "broker": self.subject.broker,
            "message": self.message,
            "remedy": self.remedy,
            "command": self.command,
            "evidence": self.evidence,
        }


def shell_command(*words: object) -> str:
    """Return a command line for a shell; names with special characters are quoted."""
    return shlex.join(["spark-log", *map(str, words)])


def duration_text(duration_us: float) -> str:
    """Return a duration in its two largest units, such as ``3 h 2 min``.

    Args:
        duration_us: microseconds.
    """
    seconds = int(abs(duration_us) // 1_000_000)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[tuple[int, str]] = []
    for name, length in units:
        count, seconds = divmod(seconds, length)
        if count or parts:
            parts.append((count, name))
    shown = [f"{count} {name}" for count, name in parts[:2] if count]
    return " ".join(shown) or "0 s"


def numbers_text(numbers: list[int], most: int = 10) -> str:
    """Return numbers with commas between them, the first ones if there are many."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def size_text(size_bytes: float) -> str:
    """Return a size such as ``1.5 MB``; 1 MB is a million bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
