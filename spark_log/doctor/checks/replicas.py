"""Checks that partitions have a leader, enough in-sync replicas, and their preferred leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spark_log.doctor.check import Check
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    numbers_text,
    shell_command,
)
from spark_log.log.chain import NO_LEADER
from spark_log.metadata import TopicImage, imbalanced_partitions

OFFLINE = Problem(
    "partition-offline",
    Severity.ERROR,
    "Partitions have no leader: no producer can write to them.",
)
UNDER_MIN_ISR = Problem(
    "partition-under-min-isr",
    Severity.ERROR,
    "Fewer replicas are in sync than min.insync.replicas: writes with acks=all are refused.",
)
UNDER_REPLICATED = Problem(
    "partition-under-replicated",
    Severity.WARNING,
    "Replicas are not in sync: the loss of the others would lose records.",
)
NOT_PREFERRED = Problem(
    "leader-not-preferred",
    Severity.INFO,
    "More partitions than leader.imbalance.per.broker.percentage allows are led by another replica "
    "than the preferred one.",
)


class ReplicasCheck(Check):
    """Reads only the metadata. It makes one finding for each topic and problem."""

    name: ClassVar[str] = "replicas"
    title: ClassVar[str] = "leaders and in-sync replicas"
    problems: ClassVar[tuple[Problem, ...]] = (
        OFFLINE,
        UNDER_MIN_ISR,
        UNDER_REPLICATED,
        NOT_PREFERRED,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about topics whose partitions lack a leader or in-sync replicas."""
        imbalanced: dict[str, list[int]] = {}
        for topic_id, number in imbalanced_partitions(examination.image):
            imbalanced.setdefault(topic_id, []).append(number)
        for topic in examination.topics:
            yield from _findings(topic, sorted(imbalanced.get(topic.topic_id, ())))


def _findings(topic: TopicImage, imbalanced: list[int]) -> Iterator[Finding]:
    offline, under_min, under, lagging = [], [], [], set()
    for number, state in sorted(topic.partitions.items()):
        out = set(state.replicas) - set(state.isr)
        lagging |= out
        if state.leader == NO_LEADER:
            offline.append(number)
        elif len(state.isr) < topic.min_insync_replicas(number):
            under_min.append(number)
        elif out - set(state.adding_replicas):
            under.append(number)
    subject = Subject.of_topic(topic.name)
    where = f"brokers {numbers_text(sorted(lagging))}"
    seen = f"the metadata; not in sync are replicas on {where}"
    if offline:
        yield OFFLINE.finding(
            subject,
            f"{_count(offline, topic)} have no leader: no producer can write to them",
            remedy="Bring back the broker that led last, or unfence it. Only if records may be "
            "lost, elect a replica that lacks records (spark-log elect-leaders)",
            command=shell_command("topics", "describe", topic.name, "--unavailable-partitions"),
            evidence=seen,
        )
    if under_min:
        yield UNDER_MIN_ISR.finding(
            subject,
            f"writes with acks=all are refused in {_count(under_min, topic)}: fewer replicas than "
            f"min.insync.replicas are in sync",
            remedy="Bring the roots of these brokers back, then the replicas",
            command=shell_command("replicate", topic.name),
            evidence=seen,
        )
    if under:
        yield UNDER_REPLICATED.finding(
            subject,
            f"replicas are not in sync in {_count(under, topic)}",
            remedy="Bring the roots of these brokers back, then the replicas",
            command=shell_command("replicate", topic.name),
            evidence=seen,
        )
    if imbalanced := [each for each in imbalanced if each not in offline]:
        yield NOT_PREFERRED.finding(
            subject,
            f"another replica than the preferred one leads {_count(imbalanced, topic)}",
            remedy="A controller moves the leadership back; or do it at once",
            command=shell_command(
                "elect-leaders", "--election-type", "preferred", "--all-topic-partitions"
            ),
            evidence="the metadata",
        )


def _count(numbers: list[int], topic: TopicImage) -> str:
    return f"{len(numbers)} of {topic.num_partitions} partitions ({numbers_text(numbers)})"
