"""Decisions about a transactional id: its owner, its participants, and commit or abort.

Each decision is a pure function: it returns the record of the next state, or None if nothing
changes. `TransactionStateLog.commit` calls it with the state after the whole log, appends the
record if the log still ends there, and calls it again after an append by another process. Called
again after its own record was appended, it returns None. There are two exceptions, which make a new
identity: `initialize` begins another epoch with each call, and `join` refuses a producer id that it
has added already. `TransactionMetadata.replay` applies a record. `completed_state` is no decision:
it returns the state after `complete`.

The rules (protocol T2, T3, T4, T5, T6): a decision is made once, and raises the epoch of every
participant and of the owner. A producer that was wrongly taken for dead is therefore refused here
before it writes anything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_log.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction.records import TransactionRecord
from spark_log.transaction.state import (
    LAST_EPOCH,
    Participant,
    TopicIdPartition,
    TransactionDecision,
    TransactionMetadata,
    TransactionOffset,
    TransactionState,
)


def initialize(
    state: TransactionMetadata,
    timeout_ms: int,
    new_producer_id: int | None = None,
    expected: ProducerIdAndEpoch | None = None,
    *,
    renews: bool = False,
) -> TransactionRecord | None:
    """Begin a new epoch of the owner, which fences the previous owner (``InitProducerId``).

    Its client gets this epoch, and an identity that an earlier client has kept ends. A call with an
    expected owner may be repeated until the new owner has begun a transaction.

    Args:
        state: the present state.
        timeout_ms: ``transaction.timeout.ms``.
        new_producer_id: the producer id for an owner that has no epochs left; it must be new to the
            state (`TransactionMetadata.is_new`).
        expected: the identity of the only client that may continue (KIP-360); None for any.
        renews: whether the owner continues with another producer id, since its epochs are used up;
            its client keeps its own identity.

    Returns:
        The record; None if the expected client has the owner already, by an earlier call.

    Raises:
        ConcurrentTransactionsError: a transaction is not complete: abort and complete it first.
        ProducerFencedError: the owner is not the expected one.
        InvalidTxnStateError: the owner needs a new producer id, and none was passed.
    """
    if expected is not None and expected == state.replaced:
        return None
    if expected is not None and _owner_of_client(state, expected) != state.owner:
        raise _fenced(state, expected)
    if state.is_open:
        raise _concurrent(state)
    owner, used_up_through = state.owner, state.used_up_through
    if owner is not None and not state.needs_producer_id:
        next_owner = _next_epoch(owner)
    else:
        if new_producer_id is None or not state.is_new(new_producer_id):
            raise _invalid(state, f"producer id {new_producer_id} is not new; allocate another one")
        next_owner = ProducerIdAndEpoch(new_producer_id, 0)
        used_up_through = max(used_up_through, -1 if owner is None else owner.producer_id)
    after = replace(
        state,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        owner=next_owner,
        used_up_through=used_up_through,
        participants={},
        decision=None,
        start_time_us=-1,
        client_identities=(*state.client_identities, next_owner)
        if renews and state.client_identities
        else (),
        replaced=expected,
    )
    return _record(after, "initialize")


def join(
    state: TransactionMetadata,
    owner: ProducerIdAndEpoch,
    producer_id: int,
    partitions: Collection[TopicIdPartition] = (),
    groups: Collection[str] = (),
) -> TransactionRecord:
    """Add a participant other than the owner, with its first registrations.

    This begins a transaction if none is ongoing. The participant's epoch is that of its entry in
    `TransactionMetadata.participants`.

    Args:
        state: the present state.
        owner: the owner that the participant writes for.
        producer_id: `TransactionMetadata.free_producer_id`, or a new one.
        partitions: the partitions that the participant may write to.
        groups: the consumer groups whose offsets the participant may send.

    Raises:
        ProducerFencedError: another owner has begun, or the transaction is decided.
        TransactionAbortableError: the transaction was aborted by others.
        ConcurrentTransactionsError: an earlier transaction is not complete.
        InvalidTxnStateError: the producer id is in use, as it is after an earlier call with it; or
            its epochs are used up.
    """
    begun = _begin_if_needed(state, owner)
    if producer_id in begun.participants or not (
        producer_id in state.producers or state.is_new(producer_id)
    ):
        raise _invalid(state, f"producer id {producer_id} is in use or used up; take another one")
    epoch = state.producers.get(producer_id, 0)
    begun = replace(begun, producers={**state.producers, producer_id: epoch})
    participant = Participant(ProducerIdAndEpoch(producer_id, epoch))
    return _record(_with_registrations(begun, participant, partitions, groups), "join")


def register(
    state: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicIdPartition] = (),
    groups: Collection[str] = (),
) -> TransactionRecord | None:
    """Register partitions and groups before a participant's first write to them.

    The owner begins a transaction with its first registration. The earlier transaction must be
    complete by then, so that no record is written to a partition in which the earlier transaction's
    marker is missing.

    Raises:
        ProducerFencedError: the epoch has passed: the transaction is decided.
        TransactionAbortableError: the owner's transaction was aborted by others.
        ConcurrentTransactionsError: an earlier transaction is not complete.
        InvalidTxnStateError: the owner's epochs are used up.
    """
    is_ongoing = state.is_ongoing
    present = state.participants.get(producer.producer_id) if is_ongoing else None
    if present is not None and present.producer == producer:
        after = _with_registrations(state, present, partitions, groups)
        return None if after == state else _record(after, "register")
    begun = _begin_if_needed(state, producer)
    return _record(
        _with_registrations(begun, Participant(producer), partitions, groups), "register"
    )


def send_offsets(
    state: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    offsets: Collection[TransactionOffset],
) -> TransactionRecord | None:
    """Keep offsets of a participant in the state: they are committed with the transaction.

    This is for a client that does not give them again when it commits. Their groups are registered,
    too. A later offset of the same group and partition takes the place of an earlier one.

    Raises:
        ProducerFencedError: the epoch has passed: the transaction is decided.
        TransactionAbortableError: the owner's transaction was aborted by others.
        ConcurrentTransactionsError: an earlier transaction is not complete.
        InvalidTxnStateError: the owner's epochs are used up.
    """
    present = state.participants.get(producer.producer_id) if state.is_ongoing else None
    if present is None or present.producer != producer:
        state, present = _begin_if_needed(state, producer), Participant(producer)
    kept = {each.key: each for each in present.offsets} | {each.key: each for each in offsets}
    sent = replace(present, offsets=tuple(sorted(kept.values())), part=None)
    after = _with_registrations(state, sent, (), {each.group_id for each in offsets})
    return None if after.participants == state.participants else _record(after, "send-offsets")


def commit(
    state: TransactionMetadata,
    owner: ProducerIdAndEpoch,
    counting: Collection[ProducerIdAndEpoch],
    offsets: Collection[TransactionOffset] = (),
    batch_id: int | None = None,
    client: ProducerIdAndEpoch | None = None,
) -> TransactionRecord | None:
    """Decide to commit. The records of participants that do not count are aborted.

    Args:
        state: the present state.
        owner: the owner.
        counting: the participants whose records are committed.
        offsets: the offsets to commit, besides those that counting participants have sent; each
            one's group is registered by a counting participant.
        batch_id: the micro-batch of the transaction; higher than that of any earlier one. With a
            micro-batch the call begins a transaction if none has begun: a micro-batch without
            records is committed, too. None without a micro-batch.
        client: the identity that the owner's client keeps after the end; None if it takes the
            raised epoch.

    Raises:
        TransactionAbortableError: it was aborted by others.
        ProducerFencedError: another owner has begun.
        ConcurrentTransactionsError: an earlier transaction is not complete.
        InvalidTxnStateError: no transaction has begun and ``batch_id`` is None, the micro-batch is
            committed already, a participant or a group is not registered, or the transaction is
            committed already with other arguments.
    """
    ids = frozenset(each.producer_id for each in counting)
    kept = {
        each.key: each
        for producer_id in ids & state.participants.keys()
        for each in state.participants[producer_id].offsets
    }
    offsets = tuple(sorted((kept | {each.key: each for each in offsets}).values()))
    decision = TransactionDecision(owner, ids, offsets, batch_id, client)
    if _is_own_decision(state, owner) and state.is_committed:
        if decision != state.decision:
            raise _invalid(
                state, "it is committed already, with other participants, offsets or micro-batch"
            )
        return None
    begun = _begin_if_needed(state, owner)
    if begun is not state and batch_id is None:
        raise _invalid(state, "no transaction has begun; register a partition first")
    if batch_id is not None and batch_id <= state.batch_id:
        raise _invalid(state, f"micro-batch {batch_id} is not above the last, {state.batch_id}")
    groups: set[str] = set()
    for producer in counting:
        participant = begun.participants.get(producer.producer_id)
        if participant is None or participant.producer != producer:
            raise _invalid(state, f"{producer} is no participant; leave it out")
        groups |= participant.groups
    for offset in offsets:
        if offset.group_id not in groups:
            raise _invalid(state, f"group {offset.group_id!r} is not registered; register it first")
    after = replace(begun, batch_id=state.batch_id if batch_id is None else batch_id)
    return _record(_with_decision(after, TransactionState.PREPARE_COMMIT, decision), "commit")


def abort(
    state: TransactionMetadata,
    owner: ProducerIdAndEpoch,
    client: ProducerIdAndEpoch | None = None,
) -> TransactionRecord | None:
    """Decide to abort, as the owner; None if nothing has begun, or it is aborted.

    Args:
        state: the present state.
        owner: the owner.
        client: the identity that the owner's client keeps after the end; None if it takes the
            raised epoch.

    Raises:
        ProducerFencedError: another owner has begun.
        InvalidTxnStateError: the transaction is committed.
    """
    if _is_own_decision(state, owner):
        if state.is_committed:
            raise _invalid(state, "it is committed, and cannot be aborted")
        return None
    if owner != state.owner:
        raise _fenced(state, owner)
    if not state.is_ongoing:
        return None
    decision = TransactionDecision(owner, client=client)
    return _record(_with_decision(state, TransactionState.PREPARE_ABORT, decision), "abort")


def end_kept(
    state: TransactionMetadata,
    client: ProducerIdAndEpoch,
    *,
    is_committed: bool,
    never_aborts_commits: bool = False,
) -> TransactionRecord | None:
    """Decide as a client that keeps its identity after the end (``EndTxn`` before version 5).

    None if it is decided in this way already, or if there is nothing to abort.

    Args:
        state: the present state.
        client: the identity that the client was given.
        is_committed: whether to commit.
        never_aborts_commits: whether the client aborts no transaction whose commit it has asked
            for. An abort after a commit then means its next transaction, of which no request has
            arrived (protocol T19).

    Raises:
        ProducerFencedError: another owner has begun, or others have aborted the transaction.
        ConcurrentTransactionsError: an earlier transaction is not complete.
        InvalidTxnStateError: no transaction has begun, or the other was decided.
    """
    owner, decision = state.present(client), state.decision
    if decision is not None and client in (decision.owner, decision.client):
        if state.client != client:
            raise _fenced(state, client)
        is_unbegun = never_aborts_commits and not is_committed
        if is_committed != state.is_committed and not is_unbegun:
            raise _invalid(state, "its end was decided otherwise")
        return None
    if is_committed:
        return commit(state, owner, (owner,), client=client)
    return abort(state, owner, client)


def verify(
    state: TransactionMetadata,
    client: ProducerIdAndEpoch,
    partitions: Collection[TopicIdPartition] = (),
    groups: Collection[str] = (),
) -> ProducerIdAndEpoch:
    """Return the owner of a client that keeps its identity, if all of these are registered.

    Kafka's brokers verify the batches of such clients in the same way (KIP-890).

    Raises:
        ProducerFencedError: another owner has begun, or others have aborted the transaction.
        InvalidTxnStateError: a partition or group is not registered in an ongoing transaction.
    """
    owner = state.present(client)
    if owner != state.owner:
        raise _fenced(state, client)
    participant = state.participant(owner) if state.is_ongoing else None
    if (
        participant is None
        or not participant.partitions.issuperset(partitions)
        or not participant.groups.issuperset(groups)
    ):
        what = sorted((*map(str, partitions), *groups))
        raise _invalid(
            state, f"{', '.join(what)} were not added to the transaction; add them first"
        )
    return owner


def expire(state: TransactionMetadata, transaction: int) -> TransactionRecord | None:
    """Decide to abort a transaction that has passed its timeout.

    Any process that has observed the transaction for that long may do this. A process that wants to
    `initialize` the transactional id aborts an ongoing transaction in the same way. An identity
    that the owner's client has kept ends, so that the client learns of it (protocol T18).

    Args:
        state: the present state.
        transaction: the number of the observed transaction; any other one is left alone.
    """
    if state.transaction != transaction or not state.is_ongoing:
        return None
    assert state.owner is not None
    decision = TransactionDecision(state.owner, client=state.client)
    after = _with_decision(state, TransactionState.PREPARE_ABORT, decision)
    return _record(replace(after, client_identities=()), "expire")


def complete(state: TransactionMetadata, transaction: int) -> TransactionRecord | None:
    """Complete a decided transaction: every marker is put, and its offsets are committed.

    Args:
        state: the present state.
        transaction: the number of the transaction; None is returned if it is complete.

    Raises:
        InvalidTxnStateError: it is not decided.
    """
    if state.transaction == transaction and state.is_prepared:
        return _record(completed_state(state), "complete")
    is_ongoing = state.transaction == transaction and state.is_ongoing
    if is_ongoing or state.transaction < transaction:
        raise _invalid(state, f"transaction {transaction} is not decided; decide it first")
    return None


def completed_state(state: TransactionMetadata) -> TransactionMetadata:
    """Return the state that follows when a decided transaction is complete.

    A coordinator that has put all markers and has committed the offsets may begin the next
    transaction on this state: the record that begins it then completes the earlier one, too.
    """
    after = (
        TransactionState.COMPLETE_COMMIT if state.is_committed else TransactionState.COMPLETE_ABORT
    )
    return replace(state, state=after)


def forget(state: TransactionMetadata, revision: int) -> TransactionRecord | None:
    """Forget the producer ids of a transactional id that has expired: all of them are used up.

    The next `initialize` takes a new producer id. The numbers of the last transaction and the last
    micro-batch stay: a micro-batch that runs again after months is not committed twice.

    Args:
        state: the present state.
        revision: the revision of the expired state; a later state is left alone.
    """
    is_open = state.is_open
    if state.revision != revision or state.owner is None or is_open:
        return None
    after = replace(
        state,
        state=TransactionState.EMPTY,
        owner=None,
        producers={},
        used_up_through=max(state.used_up_through, state.owner.producer_id, *state.producers),
        participants={},
        decision=None,
        start_time_us=-1,
        client_identities=(),
        replaced=None,
    )
    return _record(after, "forget")


def _begin_if_needed(state: TransactionMetadata, owner: ProducerIdAndEpoch) -> TransactionMetadata:
    """Return the state with an ongoing transaction of this owner, begun if none is ongoing."""
    if _is_own_decision(state, owner) and state.is_aborted:
        raise TransactionAbortableError(
            f"transaction {state.transaction} of {state.transactional_id!r} is aborted, after "
            f"transaction.timeout.ms for example; abort it here too, and begin another one",
            transactional_id=state.transactional_id,
        )
    if owner != state.owner:
        raise _fenced(state, owner)
    if state.is_prepared:
        raise _concurrent(state)
    if state.is_ongoing:
        return state
    if owner.producer_epoch > LAST_EPOCH:
        raise _invalid(state, f"the epochs of {owner} are used up; initialize again")
    return replace(
        state,
        transaction=state.transaction + 1,
        state=TransactionState.ONGOING,
        participants={},
        decision=None,
        start_time_us=-1,
        replaced=None,
    )


def _with_registrations(
    state: TransactionMetadata,
    participant: Participant,
    partitions: Collection[TopicIdPartition],
    groups: Collection[str],
) -> TransactionMetadata:
    participant = Participant(
        participant.producer,
        participant.partitions.union(partitions),
        participant.groups.union(groups),
        participant.offsets,
    )
    producer_id = participant.producer.producer_id
    return replace(state, participants={**state.participants, producer_id: participant})


def _with_decision(
    state: TransactionMetadata, decided: TransactionState, decision: TransactionDecision
) -> TransactionMetadata:
    """Return the state after a decision: the epochs of all participants and the owner are raised.

    A participant's id whose raised epoch is above `LAST_EPOCH` is used up: it is dropped, and later
    transactions use another id. The owner gets a new id by `initialize`.
    """
    producers, used_up_through = dict(state.producers), state.used_up_through
    for producer_id in state.participants.keys() & producers.keys():
        producers[producer_id] += 1
        if producers[producer_id] > LAST_EPOCH:
            del producers[producer_id]
            used_up_through = max(used_up_through, producer_id)
    return replace(
        state,
        state=decided,
        owner=_next_epoch(decision.owner),
        producers=producers,
        used_up_through=used_up_through,
        decision=decision,
        client_identities=()
        if decision.client is None
        else state.client_identities or (decision.owner,),
    )


def _owner_of_client(state: TransactionMetadata, client: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """Return the owner that a client expects, by the identity that it has.

    The end of a transaction has raised the owner's epoch, also if others have aborted it.
    """
    decision = state.decision
    has_ended = decision is not None and client in (decision.owner, decision.client)
    if decision is not None and has_ended and client != state.client:
        return _next_epoch(decision.owner)
    return state.present(client)


def _next_epoch(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return replace(producer, producer_epoch=producer.producer_epoch + 1)


def _is_own_decision(state: TransactionMetadata, owner: ProducerIdAndEpoch) -> bool:
    """Whether the newest transaction is decided, and was this owner's."""
    return state.decision is not None and state.decision.owner == owner


def _record(state: TransactionMetadata, change: str) -> TransactionRecord:
    return replace(state, revision=state.revision + 1).to_record(change)


def _fenced(state: TransactionMetadata, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    return ProducerFencedError(
        f"{producer} may not write for transactional id {state.transactional_id!r} any more: its "
        f"transaction was decided, or another process took over (owner {state.owner}); close it",
        transactional_id=state.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


def _concurrent(state: TransactionMetadata) -> ConcurrentTransactionsError:
    return ConcurrentTransactionsError(
        f"transaction {state.transaction} of {state.transactional_id!r} is {state.state}, and not "
        f"complete; try again when it has ended",
        transactional_id=state.transactional_id,
    )


def _invalid(state: TransactionMetadata, what: str) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"transactional id {state.transactional_id!r} is {state.state} in transaction "
        f"{state.transaction}: {what}",
        transactional_id=state.transactional_id,
    )
