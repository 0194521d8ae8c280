"""Findings of the doctor: the problem, the affected part of a root, and the remedy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from spark_log.types import TopicPartition


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Something does not work now, or records are at risk. Act now."""

    WARNING = "warning"
    """Everything works now, but will fail later: a reserve is used up, or necessary work is not
    done."""

    INFO = "info"
    """Useful information. It does not change the exit status."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The part of a root that a finding is about.

    Attributes:
        text: the name of the part for people, such as ``partition flights-0``.
        topic: the name of the topic; None if the finding is about no single topic.
        partition: the number of the partition; None if the finding is about no single partition.
        group: the id of the group; None if the finding is about no group.
        broker: the id of the broker; None if the finding is about no single broker.
    """

    text: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    broker: int | None = None

    @classmethod
    def of_partition(cls, tp: TopicPartition, broker: int | None = None) -> Subject:
        """Return a partition as the subject; with ``broker``, the replica on that broker."""
        where = f" on broker {broker}" if broker else ""
        return cls(f"partition {tp.topic}-{tp.partition}{where}", *tp, broker=broker)

    @classmethod
    def of_topic(cls, topic: str) -> Subject:
        """Return a topic as the subject."""
        return cls(f"topic {topic}", topic)

    @classmethod
    def of_group(cls, group: str) -> Subject:
        """Return a consumer group as the subject."""
        return cls(f"group {group}", group=group)

    @classmethod
    def of_broker(cls, broker: int) -> Subject:
        """Return a broker, which is a storage root, as the subject."""
        return cls(f"broker {broker}", broker=broker)


ROOT = Subject("root")
"""The root of the cluster."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of finding.

    Attributes:
        code: the stable name of the kind.
        severity: the severity of all findings of this kind.
        meaning: the meaning of the findings, in one line.
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
            subject: the affected part of the root.
            message: the problem with this part.
            remedy: the advice, as a sentence without the command.
            command: the shell command that follows the advice; None without a single command.
            evidence: the source of the finding.
        """
        return Finding(self, subject, message, remedy, command, evidence)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that the doctor has found.

    Attributes:
        problem: the kind of the finding.
        subject: the affected part of the root.
        message: the problem with this part.
        remedy: the advice, as a sentence without the command.
        command: the shell command that follows the advice; None without a single command.
        evidence: the source of the finding.
    """

    problem: Problem
    subject: Subject
    message: str
    remedy: str
    command: str | None
    evidence: str

    @property
    def severity(self) -> Severity:
        """The severity of the finding's kind."""
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
        duration_us: the duration in microseconds.
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
    """Return numbers separated by commas; only the first ``most``, and the number of the rest."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more


def size_text(size_bytes: float) -> str:
    """Return a size such as ``1.5 MB``; 1 MB is a million bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
