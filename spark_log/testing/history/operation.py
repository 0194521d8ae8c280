"""The operations that a client has recorded, and the actions that they consist of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spark_log.types import TopicPartition


class Outcome(StrEnum):
    """The outcome of an operation, as far as its client knows it."""

    COMMITTED = "committed"
    """It took effect: sends were acknowledged, the transaction was committed."""

    ABORTED = "aborted"
    """It has no effect: sends were refused, the transaction was aborted."""

    UNKNOWN = "unknown"
    """It may have taken effect or not, and may still do so."""


class Polled(NamedTuple):
    """A record that a poll returned."""

    topic_partition: TopicPartition
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Send:
    """One record that was sent.

    Attributes:
        topic_partition: the partition that it was sent to.
        value: its value. A value that only one send to a partition has identifies the operation
            that wrote it; a value that is sent several times may be in the log as often.
        offset: the acknowledged offset; None if the client does not know it.
    """

    topic_partition: TopicPartition
    value: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """The records that one poll returned, in the order in which it returned them.

    Attributes:
        records: the records.
        is_read_committed: whether the consumer's ``isolation.level`` is ``read_committed``.
    """

    records: Sequence[Polled]
    is_read_committed: bool = True


@dataclass(frozen=True, slots=True)
class Assign:
    """The client's positions changed other than by polls: by an assignment, a rebalance or a seek.

    Attributes:
        positions: the partitions, each with the offset from which the next poll reads. None: an
            offset that the client does not know, so that its next poll may return any record.
    """

    positions: Sequence[tuple[TopicPartition, int | None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a client: a send, a poll, an assignment, or a transaction.

    Times are integers of a clock that all clients of the history share, such as
    ``time.monotonic_ns()`` on one machine. They are optional.

    Attributes:
        process: the name of the client. A client that was started again has a new name.
        number: the number of the operation, unique among those of its process.
        actions: the actions of the client, in order.
        outcome: the outcome, as far as the client knows it. A poll that returned is committed.
        is_transaction: whether its sends take effect together or not at all.
        invoked: the time at which it began.
        end_invoked: the time at which the client began to commit or abort the transaction.
        completed: the time at which the client knew the outcome.
    """

    process: str
    number: int
    actions: Sequence[Send | Poll | Assign]
    outcome: Outcome = Outcome.UNKNOWN
    is_transaction: bool = False
    invoked: int | None = None
    end_invoked: int | None = None
    completed: int | None = None

    @property
    def name(self) -> str:
        """The operation's name in findings: its process and its number."""
        return f"{self.process}/{self.number}"
