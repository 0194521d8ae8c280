"""Finds directories without an owner: of deleted topics, of moved replicas, of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from spark_log.cluster import OrphanedDirectory, OrphanKind, orphaned_directories
from spark_log.doctor.check import Check, NotCheckedError
from spark_log.doctor.checks.storage import SCRATCH_LEFT
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
)
from spark_log.storage import DELETION_MARKERS, Store, newest_modified_us

DELETED_TOPIC_LEFT = Problem(
    "deleted-topic-left",
    Severity.WARNING,
    "A topic was deleted long ago, and its files still exist.",
)
FORMER_REPLICA_LEFT = Problem(
    "former-replica-left",
    Severity.WARNING,
    "A replica was moved, or came back in another directory, long ago, and its old files still "
    "exist.",
)
UNKNOWN_TOPIC = Problem(
    "unknown-topic",
    Severity.WARNING,
    "A directory looks like a topic's or partition's, and the metadata have none: the metadata may "
    "have been restored from an older copy.",
)
FOREIGN_DIRECTORY = Problem(
    "foreign-directory", Severity.INFO, "A directory in a root does not belong to spark-log."
)

_SCRATCH_US: Final = 3_600_000_000
"""Minimum age of a scratch folder that was left by a killed doctor."""


class DirectoriesCheck(Check):
    """Lists the directories of each broker's root, and their subdirectories."""

    name: ClassVar[str] = "directories"
    title: ClassVar[str] = "directories without an owner"
    problems: ClassVar[tuple[Problem, ...]] = (
        DELETED_TOPIC_LEFT,
        FORMER_REPLICA_LEFT,
        UNKNOWN_TOPIC,
        FOREIGN_DIRECTORY,
        SCRATCH_LEFT,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about the directories without an owner."""
        if not examination.is_whole:
            raise NotCheckedError("only some topics are checked")
        # List the markers first: a topic deleted meanwhile is in the metadata, or has no directory.
        markers = {
            file.name: file.modified_us for file in examination.cluster.store.list(DELETION_MARKERS)
        }
        for broker_id, store in examination.broker_stores():
            found = orphaned_directories(examination.cluster, broker_id, examination.map)
            for directory in found:
                examination.on_progress()
                subject = Subject(
                    f"directory {directory.path} on broker {broker_id}", broker=broker_id
                )
                finding = _finding(examination, store, directory, markers, subject)
                if finding is not None:
                    yield finding


def _finding(
    examination: Examination,
    store: Store,
    directory: OrphanedDirectory,
    markers: Mapping[str, int],
    subject: Subject,
) -> Finding | None:
    """Return the finding for a directory; None if it may be in use, or a cleaner will remove it."""
    path = directory.path
    if directory.kind is OrphanKind.TOPIC and path in markers:
        age_us = examination.now_us - markers[path]
        return _left(examination, age_us, DELETED_TOPIC_LEFT, subject, "its topic was deleted")
    if directory.kind is OrphanKind.REPLICA:
        age_us = examination.now_us - newest_modified_us(store.list(path))
        what = "a replica was moved away from it, whose newest file was written"
        return _left(examination, age_us, FORMER_REPLICA_LEFT, subject, what)
    if directory.kind is OrphanKind.SCRATCH:
        age_us = examination.now_us - newest_modified_us(store.list(path))
        return _scratch(subject) if age_us > _SCRATCH_US else None
    return _unknown(store, directory, subject)


def _left(
    examination: Examination, age_us: int, problem: Problem, subject: Subject, what: str
) -> Finding | None:
    """Return the finding for a directory that a cleaner removes; None if it is not overdue."""
    if age_us <= examination.limits.overdue_ms * 1000:
        return None
    return problem.finding(
        subject,
        f"{what} {duration_text(age_us)} ago, and it still exists",
        remedy="Let a cleaner remove it",
        command=shell_command("clean", "--all-topics"),
        evidence=f"a listing, and {DELETION_MARKERS}",
    )


def _scratch(subject: Subject) -> Finding:
    return SCRATCH_LEFT.finding(
        subject,
        "it is the scratch folder of a doctor that was killed",
        remedy="Remove it by hand",
        evidence="a listing",
    )


def _unknown(store: Store, directory: OrphanedDirectory, subject: Subject) -> Finding:
    if directory.kind is OrphanKind.FOREIGN:
        return FOREIGN_DIRECTORY.finding(
            subject,
            "it does not belong to spark-log",
            remedy="Inspect it, and move it elsewhere",
            evidence=f"a listing of {store.url}",
        )
    return UNKNOWN_TOPIC.finding(
        subject,
        "the metadata have no such topic"
        if directory.topic is None
        else f"topic {directory.topic} has no such {directory.kind.value}",
        remedy="If the metadata were restored from an older copy, this directory has the records "
        "of a topic that they lack; otherwise remove it by hand",
        evidence=f"a listing of {store.url}",
    )
