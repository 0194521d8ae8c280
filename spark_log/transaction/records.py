"""The records of a transactional id's log: versioned JSON, each with the whole state.

On storage a record's value is ``{"type": "TransactionRecord", "version": 0, "data": {…}}``. A
reader needs only the newest record; older records may be deleted.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from spark_log.log import StateRecord
from spark_log.util import Partitions, RecordFields, record_from_json


class ProducerPart(RecordFields):
    """A producer id with an epoch."""

    producer_id: int
    producer_epoch: int


class GroupOffsetPart(RecordFields):
    """A group's offset: the fields of `spark_log.transaction.state.TransactionOffset`."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ParticipantPart(ProducerPart):
    """A participant with its registered groups and partitions; partitions are keyed by topic id.

    Attributes:
        offsets: the offsets that it has sent, of a client that does not keep them until its commit.
    """

    partitions: Partitions = Field(default={})
    groups: tuple[str, ...] = ()
    offsets: tuple[GroupOffsetPart, ...] = ()


class DecisionPart(RecordFields):
    """A decision: the fields of `spark_log.transaction.state.TransactionDecision`."""

    owner: ProducerPart
    counting: tuple[int, ...] = ()
    offsets: tuple[GroupOffsetPart, ...] = ()
    batch_id: int | None = None
    client: ProducerPart | None = None


class TransactionRecord(StateRecord):
    """The state of a transactional id after a change.

    Version 1 has offsets of participants, version 2 the identities of a client that keeps its own.

    Attributes:
        transactional_id: the ``transactional.id``; the directory's name may be too short for it.
        revision: the number of the change; higher than that of the record before it.
        change: ``initialize``, ``join``, ``register``, ``send-offsets``, ``commit``, ``abort``,
            ``expire``, ``complete`` or ``forget``.
        transaction: the number of the newest transaction; 0 before the first one.
        state: the name of its state, as in Kafka.
        timeout_ms: ``transaction.timeout.ms``.
        start_time_us: the start of the newest transaction, by the wall clock of the process that
            began it; -1 before. It is shown to users, and decides nothing.
        owner: the producer that decides; None after the id has expired.
        producers: pairs of a producer id and the epoch of its present or next transaction.
        used_up_through: the highest producer id whose epochs are used up; -1 without one.
        participants: the participants of the newest transaction.
        decision: the decision of the newest transaction; None before it is decided.
        batch_id: the number of the last committed micro-batch; -1 without one.
        client_identities: the identities under which the sequence numbers of the owner's client
            have counted, if the client keeps the first of them; else empty.
        replaced: the identity whose client has got the present owner by ``initialize``; None if any
            client may initialize, or after the owner's first transaction has begun.
    """

    version: ClassVar[int] = 2

    transactional_id: str
    revision: int
    change: str
    transaction: int
    state: str
    timeout_ms: int
    start_time_us: int = -1
    owner: ProducerPart | None = None
    producers: tuple[tuple[int, int], ...] = ()
    used_up_through: int = -1
    participants: tuple[ParticipantPart, ...] = ()
    decision: DecisionPart | None = None
    batch_id: int = -1
    client_identities: tuple[ProducerPart, ...] = ()
    replaced: ProducerPart | None = None

    @property
    def stored_version(self) -> int:
        """The version whose fields are needed: older versions would drop them."""
        if self.client_identities or (self.decision is not None and self.decision.client):
            return 2
        return int(any(each.offsets for each in self.participants))

    @property
    def headline(self) -> str:
        """The change in a few words, for log lines: ``transaction 7 is Ongoing by register``."""
        return f"transaction {self.transaction} is {self.state} by {self.change}"

    def __str__(self) -> str:
        owner = f"{self.owner.producer_id}:{self.owner.producer_epoch}" if self.owner else "none"
        partitions = sum(
            len(numbers) for part in self.participants for numbers in part.partitions.values()
        )
        return (
            f"{self.headline}: producer {owner}, {len(self.participants)} participants, "
            f"{partitions} partitions"
            + (f", {len(self.decision.offsets)} offsets" if self.decision else "")
        )


def from_json(value: bytes) -> TransactionRecord:
    """Return the record with this value.

    Raises:
        CorruptRecordError: it is not such a record, or a newer version of spark-log wrote it.
    """
    return record_from_json(value, {"TransactionRecord": TransactionRecord}, "transaction record")
