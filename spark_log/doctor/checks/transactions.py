"""Finds transactions that have been open for a long time and block readers with ``read_committed``.

A waiting reader or a cleaner ends a transaction that has passed its timeout. A transaction that
is open for much longer shows that no reader or cleaner runs, or that they fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spark_log.doctor.check import PartitionCheck
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
)
from spark_log.doctor.partition_examination import PartitionExamination
from spark_log.errors import CorruptRecordError
from spark_log.log import StateView
from spark_log.transaction import TransactionMetadata, TransactionStateLog

TRANSACTION_OPEN = Problem(
    "transaction-open",
    Severity.WARNING,
    "A transaction has been undecided for longer than its timeout: readers with read_committed "
    "wait for it, and no process ends it.",
)
TRANSACTION_UNFINISHED = Problem(
    "transaction-unfinished",
    Severity.WARNING,
    "A transaction was decided long ago, and partitions lack its markers: readers with "
    "read_committed wait for them.",
)
TRANSACTION_DAMAGED = Problem(
    "transaction-damaged",
    Severity.ERROR,
    "The log of a transactional id is damaged, or its files are missing: its producer cannot "
    "write.",
)
TRANSACTION_HANGING = Problem(
    "transaction-hanging",
    Severity.WARNING,
    "A partition has had an open transaction for a long time that belongs to no transactional id.",
)


class TransactionsCheck(PartitionCheck):
    """Reads the state of each transactional id, then the newest snapshot of each partition."""

    name: ClassVar[str] = "transactions"
    title: ClassVar[str] = "transactions that block readers for a long time"
    problems: ClassVar[tuple[Problem, ...]] = (
        TRANSACTION_OPEN,
        TRANSACTION_UNFINISHED,
        TRANSACTION_HANGING,
        TRANSACTION_DAMAGED,
    )

    def __init__(self) -> None:
        self._owned: set[int] = set()

    def begin(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about transactions that are open or unfinished for a long time."""
        cluster = examination.cluster
        ids = TransactionStateLog.list_names(cluster.store, cluster.clock)
        views = examination.outcomes(
            lambda each: TransactionStateLog.view(cluster.store, each, cluster.clock), ids
        )
        wanted = {topic.topic_id: topic.name for topic in examination.topics}
        for transactional_id, outcome in views:
            if isinstance(outcome.error, CorruptRecordError):
                yield _damaged(transactional_id, outcome.error)
                continue
            view = outcome.result()
            if view.state.is_open:
                self._owned.update(view.state.participants)
                yield from _open(examination, view, wanted)

    def partition_findings(self, partition: PartitionExamination) -> Iterator[Finding]:
        """Return findings about open transactions that belong to no transactional id."""
        limit_us = partition.examination.limits.open_transaction_ms * 1000
        live, now_us = partition.view.live, partition.examination.now_us
        if partition.snapshot is None:
            return
        suspects = {
            each.producer_id
            for each in partition.snapshot.producers.transactions.open
            if each.producer_id not in self._owned
            and now_us - live.appeared_us(each.first_offset) > limit_us
        }
        if not suspects:
            return
        for each in partition.log.transactions().open:
            if each.producer_id not in suspects:
                continue
            age_us = now_us - live.appeared_us(each.first_offset)
            yield TRANSACTION_HANGING.finding(
                Subject.of_partition(partition.tp),
                f"producer {each.producer_id} has had a transaction open from offset "
                f"{each.first_offset} on for {duration_text(age_us)}, which belongs to no "
                f"transactional id",
                remedy="Abort it; a waiting reader with read_committed does so, too",
                command=shell_command(
                    *("transactions", "abort", partition.tp.topic),
                    *("--partition", partition.tp.partition, "--start-offset", each.first_offset),
                ),
                evidence="the partition's snapshot and headers, and the state logs",
            )


def _damaged(transactional_id: str, error: CorruptRecordError) -> Finding:
    return TRANSACTION_DAMAGED.finding(
        Subject(f"transactional id {transactional_id}"),
        str(error),
        remedy="Find out what is damaged, and restore it from a copy",
        command=shell_command("verify"),
        evidence="the log of the transactional id",
    )


def _open(
    examination: Examination, view: StateView[TransactionMetadata], wanted: dict[str, str]
) -> Iterator[Finding]:
    state = view.state
    places = sorted(
        f"{wanted[each.topic_id]}-{each.partition}"
        for participant in state.participants.values()
        for each in participant.partitions
        if each.topic_id in wanted
    )
    age_us = examination.now_us - view.changed_us
    limit_ms = max(state.timeout_ms, examination.limits.open_transaction_ms)
    if age_us <= limit_ms * 1000 or not (places or examination.is_whole):
        return
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    where = f"{', '.join(places[:5])}{more}" if places else "no partition"
    subject = Subject(f"transactional id {state.transactional_id}")
    command = shell_command("clean", "--all-topics")
    evidence = f"spark-log transactions describe {state.transactional_id}"
    if state.is_ongoing:
        yield TRANSACTION_OPEN.finding(
            subject,
            f"its transaction has been open without a change for {duration_text(age_us)}, and its "
            f"timeout is {duration_text(state.timeout_ms * 1000)}: it blocks readers of {where}",
            remedy="Let a cleaner abort it",
            command=command,
            evidence=evidence,
        )
    else:
        yield TRANSACTION_UNFINISHED.finding(
            subject,
            f"its transaction was decided ({state.state}) {duration_text(age_us)} ago, and "
            f"markers may be missing in {where}",
            remedy="Let a cleaner finish it",
            command=command,
            evidence=evidence,
        )
