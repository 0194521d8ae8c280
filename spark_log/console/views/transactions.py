"""Transactions: each transactional id with its newest transaction, and hanging transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import Parameters, View
from spark_log.errors import TransactionalIdNotFoundError
from spark_log.types import TopicPartition


class TransactionsParameters(Parameters):
    """The transactional ids that are listed."""

    q: Annotated[str, Field(max_length=1000, description="Text that the id contains.")] = ""
    start: Annotated[int, Field(ge=0, description="Number of ids to skip.")] = 0
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of ids.")] = 50
    topic: Annotated[
        str, Field(max_length=1000, description="Search for hanging transactions in this topic.")
    ] = ""


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id and its newest transaction.

    Attributes:
        transactional_id: the transactional id.
        state: ``Empty``, ``Ongoing``, ``PrepareCommit`` and so on, as in Kafka.
        producer_id: the id of the producer that has the transactional id.
        producer_epoch: the epoch of this producer.
        timeout_ms: ``transaction.timeout.ms``.
        started_us: the time when the transaction began; None if no transaction is open.
        partitions: the partitions that are registered.
        groups: the consumer groups whose offsets the transaction commits.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_us: int | None
    partitions: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HangingTransactionRow:
    """A transaction that is open in a partition, and that no producer will end.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        producer_id: the id of the transaction's producer.
        producer_epoch: the producer epoch of the transaction's records.
        start_offset: the first offset of the transaction.
        transactional_id: the transactional id; None if it has expired.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """Transactional ids, and hanging transactions of a topic.

    Attributes:
        total: the number of ids that match.
        start: the number of ids before this page.
        transactions: the ids of this page, sorted.
        hanging: the hanging transactions in the requested topic; None without a topic.
    """

    total: int
    start: int
    transactions: tuple[TransactionRow, ...]
    hanging: tuple[HangingTransactionRow, ...] | None


def read_transactions(
    console: Console, parameters: TransactionsParameters, budget: Budget
) -> TransactionsPage:
    """Read the state logs of transactional ids.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    wanted = parameters.q.lower()
    found = [
        each
        for each in console.admin.list_transactions()
        if wanted in each.transactional_id.lower()
    ]
    rows = []
    for each in found[parameters.start : parameters.start + parameters.limit]:
        budget.check()
        try:
            described = console.admin.describe_transactions([each.transactional_id])
        except TransactionalIdNotFoundError:
            continue  # it has expired meanwhile
        state = described[each.transactional_id]
        started_ms = state.transaction_start_time_ms
        rows.append(
            TransactionRow(
                each.transactional_id,
                state.state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                started_ms * 1000 if started_ms >= 0 else None,
                tuple(map(str, sorted(state.topic_partitions))),
                state.groups,
            )
        )
    hanging = _hanging(console, parameters.topic, budget) if parameters.topic else None
    return TransactionsPage(len(found), parameters.start, tuple(rows), hanging)


def _hanging(console: Console, name: str, budget: Budget) -> tuple[HangingTransactionRow, ...]:
    found: list[HangingTransactionRow] = []
    for number in sorted(console.cluster.topic(name).partitions):
        budget.check()
        for each in console.admin.find_hanging_transactions([TopicPartition(name, number)]):
            found.append(
                HangingTransactionRow(
                    name,
                    number,
                    each.producer_id,
                    each.producer_epoch,
                    each.start_offset,
                    each.transactional_id,
                )
            )
    return tuple(found)


TRANSACTIONS = View(
    "/transactions",
    "Transactions",
    TransactionsParameters,
    TransactionsPage,
    read_transactions,
    "transactions.html",
)
