"""Open transactions for the overview: the state of a bounded number of transactional ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.errors import SparkLogError, TransactionalIdNotFoundError
from spark_log.transaction import TransactionStateLog
from spark_log.types import TransactionDescription

MAX_TRANSACTIONS: Final = 100
"""Maximum number of transactional ids whose state one view reads, besides open transactions, which
are read again."""


@dataclass(frozen=True, slots=True)
class OpenTransactionRow:
    """A transaction that readers with ``read_committed`` wait for.

    Attributes:
        transactional_id: the transactional id.
        state: ``Ongoing``, ``PrepareCommit`` and so on, as in Kafka.
        open_ms: the time since the transaction began, by the clock of the process that began it.
        timeout_ms: ``transaction.timeout.ms``.
        partitions: the partitions that are registered.
    """

    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[str, ...]


def open_transactions(console: Console, now_us: int, budget: Budget) -> list[OpenTransactionRow]:
    """Return the open transactions in their present state, the longest first."""
    cluster = console.cluster
    ids = TransactionStateLog.list_names(cluster.store, cluster.clock)

    def see(transactional_id: str) -> TransactionDescription | None:
        try:
            return console.admin.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            return None
        except SparkLogError as error:
            cluster.suppressed.add("console transaction", transactional_id, error)
            return None

    began_ms = cluster.clock.monotonic_ms()
    observations = console.transactions.refresh(
        ids, lambda due: console.map(see, due, budget), MAX_TRANSACTIONS
    )
    found = [
        (key, observation)
        for key, observation in observations.items()
        if _is_open(observation.seen)
    ]
    # A transaction that an earlier view saw may have ended.
    old = [key for key, observation in found if observation.observed_ms < began_ms][
        :MAX_TRANSACTIONS
    ]
    seen = {key: observation.seen for key, observation in found}
    seen.update(zip(old, console.map(see, old, budget), strict=True))
    transactions = [
        OpenTransactionRow(
            key,
            each.state,
            max(0, now_us // 1000 - each.transaction_start_time_ms),
            each.transaction_timeout_ms,
            tuple(map(str, sorted(each.topic_partitions))),
        )
        for key, each in seen.items()
        if each is not None and _is_open(each)
    ]
    return sorted(transactions, key=lambda each: each.open_ms, reverse=True)


def _is_open(seen: TransactionDescription | None) -> bool:
    return seen is not None and seen.transaction_start_time_ms >= 0
