"""Findings about the health of a root for the overview: the worst first, each with a link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spark_log.console.console import Console
from spark_log.console.templates import age_text, link, number
from spark_log.console.views.open_transactions import OpenTransactionRow
from spark_log.console.views.partition_observations import Committed, PartitionObservations
from spark_log.coordinator import PartitionKey

MAX_SHOWN: Final = 6
"""Maximum number of findings of a kind."""

NoticeSeverity = Literal["error", "warning", "info", "ok"]


@dataclass(frozen=True, slots=True)
class HealthNotice:
    """A fact that a user should know.

    Attributes:
        severity: ``error`` (data cannot be read or written), ``warning``, ``info`` or ``ok``.
        sentence: the text of the finding.
        path: the path of the page with details; empty for none.
        command: the shell command that solves the problem or shows details; empty for none.
    """

    severity: NoticeSeverity
    sentence: str
    path: str = ""
    command: str = ""


def health(
    console: Console,
    observations: PartitionObservations,
    began_ms: float,
    committed: Committed,
    states: Mapping[str, str],
    transactions: Sequence[OpenTransactionRow],
) -> tuple[HealthNotice, ...]:
    """Return the findings, the worst first; without a problem, an ``ok`` finding is the first.

    Args:
        console: the console of the root.
        observations: the observations of partitions.
        began_ms: the monotonic time before the committed offsets were read. A log end that was
            observed earlier is not compared with a higher committed offset.
        committed: group id → partition → committed offset.
        states: group id → state of the group.
        transactions: the open transactions.

    Raises:
        SparkLogError: the metadata cannot be read.
    """
    findings = [
        *_of_doctor(console),
        *_of_transactions(transactions),
        *_of_partitions(observations, committed, began_ms),
        *_of_groups(states),
    ]
    order = ("error", "warning", "info")
    findings.sort(key=lambda each: order.index(each.severity))
    if all(each.severity == "info" for each in findings):
        findings.insert(
            0, HealthNotice("ok", "Nothing is wrong with brokers, replicas and groups.")
        )
    return tuple(findings)


def _of_doctor(console: Console) -> Iterator[HealthNotice]:
    for each in console.checkup.findings():
        subject = each.subject
        if subject.topic is not None:
            path = link("/topic", topic=subject.topic)
        elif subject.group is not None:
            path = link("/group", group=subject.group)
        else:
            path = "" if subject.broker is None else "/brokers"
        text = subject.text[:1].upper() + subject.text[1:]
        yield HealthNotice(
            each.severity.value, f"{text}: {each.message}.", path, each.command or ""
        )


def _of_transactions(transactions: Sequence[OpenTransactionRow]) -> Iterator[HealthNotice]:
    late = [each for each in transactions if each.open_ms > each.timeout_ms]
    for each in late[:MAX_SHOWN]:
        yield HealthNotice(
            "warning",
            f"The transaction of {each.transactional_id} has been open for "
            f"{age_text(each.open_ms)}, longer than its timeout of {age_text(each.timeout_ms)}: "
            f"readers with read_committed wait for it in {_names(each.partitions)}.",
            link("/transactions", q=each.transactional_id),
        )
    if len(late) > MAX_SHOWN:
        more = f"{number(len(late) - MAX_SHOWN)} more transactions are open after their timeout."
        yield HealthNotice("warning", more, "/transactions")


def _of_partitions(
    observations: PartitionObservations, committed: Committed, began_ms: float
) -> Iterator[HealthNotice]:
    unreadable = [key for key, observation in observations.items() if observation.seen is None]
    if unreadable:
        names = [f"{key.topic}-{key.partition}" for key in unreadable]
        yield HealthNotice(
            "error",
            f"Logs of partitions cannot be read: {_names(names)}.",
            link("/topic", topic=unreadable[0].topic),
            "spark-log doctor",
        )
    after: list[tuple[str, PartitionKey]] = []
    before: list[tuple[str, PartitionKey]] = []
    for group_id, offsets in committed.items():
        for key, offset in offsets.items():
            observation = observations.get(key)
            if observation is None or observation.seen is None:
                continue
            if offset < observation.seen.log_start_offset:
                before.append((group_id, key))
            elif offset > observation.seen.log_end_offset and observation.observed_ms >= began_ms:
                after.append((group_id, key))
    for found, severity, what in (
        (after, "error", "committed offsets after the log's end: records were lost, or skipped"),
        (before, "warning", "not read records that were deleted"),
    ):
        groups = sorted({group_id for group_id, _ in found})
        for group_id in groups[:MAX_SHOWN]:
            names = [f"{key.topic}-{key.partition}" for each, key in found if each == group_id]
            yield HealthNotice(
                severity,  # type: ignore[arg-type]
                f"Group {group_id} has {what}, in {_names(names)}.",
                link("/group", group=group_id),
            )
        if len(groups) > MAX_SHOWN:
            more = f"{number(len(groups) - MAX_SHOWN)} more groups have {what}."
            yield HealthNotice(severity, more, "/groups")  # type: ignore[arg-type]


def _of_groups(states: Mapping[str, str]) -> Iterator[HealthNotice]:
    quiet = ("Empty", "Stable")
    moving = [group_id for group_id, state in states.items() if state not in quiet]
    if moving:
        path = link("/group", group=moving[0]) if len(moving) == 1 else "/groups"
        yield HealthNotice("info", f"Partitions move between members of {_names(moving)}.", path)


def _names(names: Sequence[str]) -> str:
    more = f" and {number(len(names) - 3)} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
