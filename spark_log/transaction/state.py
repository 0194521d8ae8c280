"""The state of a ``transactional.id``: its producers and its newest transaction.

Kafka's ``TransactionMetadata`` has one producer. Here a transaction has one *owner*, which decides
it, and any number of *participants*, which write. An ordinary producer is both; the driver of a
Spark job owns a transaction in which each task attempt is a participant. Each producer id has its
own epochs, and a pair of producer id and epoch belongs to one transaction only: every decision
raises the epoch (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from spark_log.errors import CorruptRecordError
from spark_log.record import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch
from spark_log.transaction.records import (
    DecisionPart,
    GroupOffsetPart,
    ParticipantPart,
    ProducerPart,
    TransactionRecord,
)
from spark_log.util import to_partitions

LAST_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
"""The last epoch in which records are written. The one after it is left for their marker."""


class TransactionState(StrEnum):
    """The states of a transaction (Kafka's class of this name)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_ORDER: Final = {
    TransactionState.ONGOING: 0,
    TransactionState.PREPARE_COMMIT: 1,
    TransactionState.PREPARE_ABORT: 1,
    TransactionState.COMPLETE_COMMIT: 2,
    TransactionState.COMPLETE_ABORT: 2,
    TransactionState.EMPTY: 3,
}
"""The order in which the states of one transaction follow each other; ``Empty`` comes last, by
`initialize`."""


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id, as in Kafka: a topic that is created again has another id."""

    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True, order=True)
class TransactionOffset:
    """An offset that a transaction commits for a consumer group.

    Attributes:
        group_id: the group.
        topic: the topic's name.
        topic_id: the topic's id.
        partition: the partition's number.
        offset: the offset of the next record to read.
        leader_epoch: the leader epoch of the last record that was read; -1 if it is not known.
        metadata: the user's text.
    """

    group_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """The group and the partition: of each a participant has one offset."""
        return self.group_id, self.topic_id, self.partition


@dataclass(frozen=True, slots=True)
class Participant:
    """A producer that writes for a transaction.

    Attributes:
        producer: its producer id, and its epoch in this transaction.
        partitions: the partitions that it may have written to.
        groups: the consumer groups whose offsets it may have sent.
        offsets: the offsets that it has sent, sorted: they are committed with the transaction if
            the participant counts. A producer that keeps its offsets until it commits has none.
        part: the participant in the form of records; None before it is converted. It is kept
            because each record of a transaction has all participants: converting all of them for
            each record would be slow.
    """

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicIdPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    offsets: tuple[TransactionOffset, ...] = ()
    part: ParticipantPart | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TransactionDecision:
    """The decision of a transaction, made by one conditional append.

    Attributes:
        owner: the owner during the transaction; the decision raised its epoch.
        counting: the producer ids of the participants whose records are committed. The records of
            the others are aborted. Empty if the transaction was aborted.
        offsets: the offsets that are committed with it, sorted.
        batch_id: the micro-batch that was committed; None without one.
        client: the identity that the owner's client kept during the transaction; None if it had
            the owner's, and takes the raised epoch.
    """

    owner: ProducerIdAndEpoch
    counting: frozenset[int] = frozenset()
    offsets: tuple[TransactionOffset, ...] = ()
    batch_id: int | None = None
    client: ProducerIdAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id after a prefix of its log; changed by `replay` alone.

    Attributes:
        transactional_id: the ``transactional.id``.
        revision: the number of the last change; 0 before the first one.
        transaction: the number of the newest transaction; 0 before the first one.
        state: the state of the newest transaction.
        timeout_ms: the time for which an observer sees a transaction ongoing before it is aborted.
        owner: the producer that decides, with the epoch of its present or next transaction. None
            before the first `initialize`, and when the transactional id has expired.
        producers: ids of all other producers → the epoch of their present or next transaction.
        used_up_through: the highest producer id whose epochs are used up; -1 without one. A new
            producer has a higher id, so that a dropped id is never used again.
        participants: the participants of the newest transaction, by producer id.
        decision: the decision of the newest transaction; None before it is decided.
        batch_id: the number of the last committed micro-batch; -1 without one.
        start_time_us: the start of the newest transaction, by the wall clock of the process that
            began it; -1 before. It is shown to users, and decides nothing.
        client_identities: the identities under which the sequence numbers of the owner's client
            have counted, oldest first: each producer id with its first epoch. The client keeps the
            first one (protocol T18). Empty if the client has the owner's identity.
        replaced: the identity whose client has got the present owner by `initialize`, which may
            therefore be repeated; None after the owner's first transaction has begun.
    """

    transactional_id: str
    revision: int = 0
    transaction: int = 0
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 60_000
    owner: ProducerIdAndEpoch | None = None
    producers: Mapping[int, int] = field(default_factory=dict)
    used_up_through: int = -1
    participants: Mapping[int, Participant] = field(default_factory=dict)
    decision: TransactionDecision | None = None
    batch_id: int = -1
    start_time_us: int = -1
    client_identities: tuple[ProducerIdAndEpoch, ...] = ()
    replaced: ProducerIdAndEpoch | None = None

    @property
    def is_open(self) -> bool:
        """Whether the newest transaction is ongoing or prepared."""
        return self.is_ongoing or self.is_prepared

    @property
    def is_ongoing(self) -> bool:
        """Whether the newest transaction is not decided."""
        return self.state is TransactionState.ONGOING

    @property
    def is_prepared(self) -> bool:
        """Whether the newest transaction is decided, and its markers may be missing."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_committed(self) -> bool:
        """Whether the newest transaction is decided, to commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def is_aborted(self) -> bool:
        """Whether the newest transaction is decided, to abort."""
        return self.state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)

    @property
    def needs_producer_id(self) -> bool:
        """Whether `initialize` needs a new producer id for the owner."""
        return self.owner is None or self.owner.producer_epoch >= LAST_EPOCH

    def free_producer_id(self) -> int | None:
        """Return a producer id for a task that joins; None if a new one has to be allocated."""
        taken = self.participants if self.is_ongoing else {}
        return min(self.producers.keys() - taken.keys(), default=None)

    def is_new(self, producer_id: int) -> bool:
        """Whether this transactional id has never had a producer id."""
        return producer_id > self.used_up_through and producer_id not in _epochs(self)

    @property
    def client(self) -> ProducerIdAndEpoch | None:
        """The identity that the owner's client keeps; None if it has the owner's."""
        return self.client_identities[0] if self.client_identities else None

    def present(self, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        """Return the present identity of a producer: the owner's for its client's identity."""
        if self.owner is not None and producer == self.client:
            return self.owner
        return producer

    def participant(self, producer: ProducerIdAndEpoch) -> Participant | None:
        """Return the newest transaction's participant with this identity; None without one."""
        found = self.participants.get(producer.producer_id)
        return found if found is not None and found.producer == producer else None

    def has_passed(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether the transaction of a producer id and an epoch is decided."""
        epoch = _epochs(self).get(producer.producer_id)
        if epoch is None:
            return producer.producer_id <= self.used_up_through
        return producer.producer_epoch < epoch

    def replay(self, record: TransactionRecord) -> TransactionMetadata:
        """Return the state after a later record; records between the two may be missing.

        Raises:
            CorruptRecordError: the record belongs to another transactional id or is older than the
                state, a producer epoch is lower than before, or a decision is changed.
        """
        after = _of_record(record, self)
        for fault in (*_faults_in(after), *_faults_between(self, after)):
            raise CorruptRecordError(
                f"transactional id {self.transactional_id!r}: {fault} "
                f"(revision {after.revision} after {self.revision})"
            )
        return after

    def to_record(self, change: str) -> TransactionRecord:
        """Return the record whose replay results in this state."""
        decision = self.decision
        return TransactionRecord(
            transactional_id=self.transactional_id,
            revision=self.revision,
            change_id="",
            change=change,
            transaction=self.transaction,
            state=str(self.state),
            timeout_ms=self.timeout_ms,
            start_time_us=self.start_time_us,
            owner=None if self.owner is None else _producer_part(self.owner),
            producers=tuple(sorted(self.producers.items())),
            used_up_through=self.used_up_through,
            participants=tuple(map(_participant_part, self.participants.values())),
            decision=None
            if decision is None
            else DecisionPart(
                owner=_producer_part(decision.owner),
                counting=tuple(sorted(decision.counting)),
                offsets=tuple(map(_offset_part, decision.offsets)),
                batch_id=decision.batch_id,
                client=None if decision.client is None else _producer_part(decision.client),
            ),
            batch_id=self.batch_id,
            client_identities=tuple(map(_producer_part, self.client_identities)),
            replaced=None if self.replaced is None else _producer_part(self.replaced),
        )


def _of_record(record: TransactionRecord, before: TransactionMetadata) -> TransactionMetadata:
    transactional_id = before.transactional_id
    if record.transactional_id != transactional_id:
        raise CorruptRecordError(
            f"the log of transactional id {transactional_id!r} holds a record of "
            f"{record.transactional_id!r}"
        )
    try:
        state = TransactionState(record.state)
    except ValueError:
        raise CorruptRecordError(
            f"transactional id {transactional_id!r}: {record.state!r} is no state of a transaction"
        ) from None
    decision = record.decision
    return TransactionMetadata(
        record.transactional_id,
        record.revision,
        record.transaction,
        state,
        record.timeout_ms,
        None if record.owner is None else _producer(record.owner),
        dict(record.producers),
        record.used_up_through,
        {
            each.producer_id: _participant(each, before.participants.get(each.producer_id))
            for each in record.participants
        },
        None
        if decision is None
        else TransactionDecision(
            _producer(decision.owner),
            frozenset(decision.counting),
            tuple(map(_offset, decision.offsets)),
            decision.batch_id,
            None if decision.client is None else _producer(decision.client),
        ),
        record.batch_id,
        record.start_time_us,
        tuple(map(_producer, record.client_identities)),
        None if record.replaced is None else _producer(record.replaced),
    )


def _faults_in(state: TransactionMetadata) -> Iterator[str]:
    """Yield the contradictions within one state."""
    is_decided = state.is_committed or state.is_aborted
    if is_decided != (state.decision is not None):
        yield f"it is {state.state}, and the decision is {state.decision}"
    if state.decision is not None and not state.decision.counting <= state.participants.keys():
        yield "a producer counts that is no participant"
    if state.is_aborted and state.decision is not None and state.decision.counting:
        yield "it is aborted, and participants count"


def _faults_between(before: TransactionMetadata, after: TransactionMetadata) -> Iterator[str]:
    """Yield the forbidden differences between a state and a later one."""
    if after.revision <= before.revision or after.transaction < before.transaction:
        yield "an older record follows a newer one"
    if after.used_up_through < before.used_up_through:
        yield "producer ids whose epochs are used up are forgotten"
    epochs = _epochs(after)
    for producer_id, epoch in _epochs(before).items():
        if epochs.get(producer_id, MAX_PRODUCER_EPOCH) < epoch:
            yield f"the epoch of producer {producer_id} goes back"
        if producer_id not in epochs and producer_id > after.used_up_through:
            yield f"producer {producer_id} is forgotten before its epochs are used up"
    if any(not before.is_new(each) for each in epochs.keys() - _epochs(before).keys()):
        yield "a producer whose epochs are used up comes back"
    if after.batch_id < before.batch_id:
        yield f"micro-batch {before.batch_id} is forgotten"
    if after.transaction == before.transaction:
        yield from _faults_within(before, after)


def _faults_within(before: TransactionMetadata, after: TransactionMetadata) -> Iterator[str]:
    """Yield the forbidden differences between two states of one transaction."""
    if _ORDER[after.state] < _ORDER[before.state]:
        yield f"{after.state} follows {before.state}"
    if after.state is TransactionState.EMPTY:
        return
    if before.decision is not None and (
        before.is_committed != after.is_committed or before.decision != after.decision
    ):
        yield "a decision is changed"
    for producer_id, each in before.participants.items():
        later = after.participants.get(producer_id)
        if later is not each and (later is None or not _includes(later, each)):
            yield f"what producer {producer_id} registered is forgotten"


def _includes(later: Participant, earlier: Participant) -> bool:
    return (
        later.producer == earlier.producer
        and later.partitions >= earlier.partitions
        and later.groups >= earlier.groups
        and {each.key for each in later.offsets} >= {each.key for each in earlier.offsets}
    )


def _epochs(state: TransactionMetadata) -> Mapping[int, int]:
    owner = state.owner
    return {
        **state.producers,
        **({} if owner is None else {owner.producer_id: owner.producer_epoch}),
    }


def _producer(part: ProducerPart) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(part.producer_id, part.producer_epoch)


def _producer_part(producer: ProducerIdAndEpoch) -> ProducerPart:
    return ProducerPart(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


def _offset(part: GroupOffsetPart) -> TransactionOffset:
    return TransactionOffset(**dict(part))


def _offset_part(offset: TransactionOffset) -> GroupOffsetPart:
    return GroupOffsetPart(**asdict(offset))


def _participant(part: ParticipantPart, before: Participant | None) -> Participant:
    if before is not None and before.part is part:
        return before
    return Participant(
        _producer(part),
        _partitions(tuple(part.partitions.items())),
        frozenset(part.groups),
        tuple(_offset(each) for each in part.offsets),
        part,
    )


@lru_cache(maxsize=128)
def _partitions(stored: tuple[tuple[str, tuple[int, ...]], ...]) -> frozenset[TopicIdPartition]:
    """Return stored partitions as a set. Cached, as most tasks of a job have the same ones."""
    return frozenset(
        TopicIdPartition(topic_id, number) for topic_id, numbers in stored for number in numbers
    )


def _participant_part(participant: Participant) -> ParticipantPart:
    return participant.part or ParticipantPart(
        producer_id=participant.producer.producer_id,
        producer_epoch=participant.producer.producer_epoch,
        partitions=to_partitions(participant.partitions),
        groups=tuple(sorted(participant.groups)),
        offsets=tuple(map(_offset_part, participant.offsets)),
    )
