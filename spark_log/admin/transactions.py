"""Transactions: listed, described and aborted; producers are fenced (KIP-664)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from spark_log import coordinator as groups
from spark_log import transaction as txn
from spark_log.admin.cluster_calls import all_partitions, map_partitions, open_log
from spark_log.cluster import Cluster
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
)
from spark_log.log import OpenTransaction
from spark_log.metadata import MetadataImage
from spark_log.record import ProducerIdAndEpoch
from spark_log.storage import map_requests
from spark_log.types import (
    AbortTransactionSpec,
    HangingTransaction,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)


def list_transactions(
    cluster: Cluster,
    *,
    state_filters: Collection[str] | None,
    producer_id_filters: Collection[int] | None,
    duration_filter_ms: float | None,
    transactional_id_pattern: str | None,
) -> list[TransactionListing]:
    """Return the transactional ids that have not expired and pass all filters, sorted."""
    states = _states(state_filters)
    pattern = _pattern(transactional_id_pattern)
    now_us = cluster.clock.time_us()  # wall clock: shown to users; nothing is decided by it
    ids = txn.TransactionStateLog.list_names(cluster.store, cluster.clock)
    listed = []
    for state in _read_states(cluster, [each for each in ids if pattern.fullmatch(each)]):
        owner = state.owner
        if owner is None or (states is not None and state.state not in states):
            continue
        if producer_id_filters and owner.producer_id not in producer_id_filters:
            continue
        start_us = state.start_time_us
        if duration_filter_ms is not None and (
            start_us < 0 or (now_us - start_us) / 1000 <= duration_filter_ms
        ):
            continue
        listed.append(
            TransactionListing(state.transactional_id, owner.producer_id, str(state.state))
        )
    return listed


def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Return descriptions of transactional ids, in the given order."""
    states = _read_states(cluster, list(transactional_ids))
    image = cluster.image()
    return {state.transactional_id: _describe(state, image) for state in states}


def abort_transaction(cluster: Cluster, spec: AbortTransactionSpec) -> None:
    """End an open transaction of a partition.

    Raises:
        InvalidTxnStateError: the transaction is not open, or was committed.
    """
    log = open_log(cluster, cluster.image(), TopicPartition(*spec.topic_partition))
    present = log.transactions().open_of(spec.producer_id)
    if present is None or present.producer_epoch != spec.producer_epoch:
        raise InvalidTxnStateError(
            f"producer {spec.producer_id} has no open transaction of epoch "
            f"{spec.producer_epoch} in {spec.topic_partition}; describe_producers lists those "
            f"that are open"
        )
    commit_offsets = groups.LazyTransactionalOffsets(cluster).commit_offsets
    observer = txn.TransactionObserver(cluster, commit_offsets=commit_offsets)
    end = observer.end(present, log)
    if end != "aborted":
        why = "has just begun; try again" if end is None else f"{end}; it cannot be aborted"
        raise InvalidTxnStateError(
            f"the transaction of producer {spec.producer_id}, epoch {spec.producer_epoch}, in "
            f"{spec.topic_partition}: {why}"
        )


def fence_producers(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> dict[str, ProducerIdAndEpoch]:
    """Begin a new epoch of transactional ids; return their new producer ids and epochs."""
    fenced = {}
    commit_offsets = groups.LazyTransactionalOffsets(cluster).commit_offsets
    for transactional_id in transactional_ids:
        coordinator = txn.TransactionCoordinator(
            cluster, transactional_id, commit_offsets=commit_offsets
        )
        timeout_ms = coordinator.refresh().timeout_ms
        fenced[transactional_id] = coordinator.initialize(timeout_ms)
    return fenced


def find_hanging_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None
) -> list[HangingTransaction]:
    """Return the transactions that are open in partitions, and that no process will end."""
    image = cluster.image()
    given = all_partitions(image) if partitions is None else partitions
    wanted = [TopicPartition(*each) for each in given]
    found = map_partitions(cluster, image, lambda tp: _hanging(cluster, image, tp), wanted)
    return [each for tp in wanted for each in found[tp]]


def _hanging(
    cluster: Cluster, image: MetadataImage, tp: TopicPartition
) -> list[HangingTransaction]:
    log = open_log(cluster, image, tp)
    suspects = [each for each in log.transactions().open if not _is_ended_by_others(cluster, each)]
    if not suspects:
        return []
    # A transaction may have been completed between the two reads.
    present, entries = log.transactions(), dict(log.producers().entries())
    return [
        HangingTransaction(
            topic_partition=tp,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            start_offset=each.first_offset,
            last_timestamp=entries[each.producer_id].appended_ms,
            transactional_id=txn.find_transactional_id(cluster.store, each.producer_id),
        )
        for each in suspects
        if present.open_of(each.producer_id) == each and each.producer_id in entries
    ]


def _is_ended_by_others(cluster: Cluster, transaction: OpenTransaction) -> bool:
    """Return whether a transaction is ongoing, or decided and not complete."""
    transactional_id = txn.find_transactional_id(cluster.store, transaction.producer_id)
    if transactional_id is None:
        return False
    state = txn.TransactionStateLog.view(cluster.store, transactional_id, cluster.clock).state
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if state.participant(producer) is None:
        return not state.has_passed(producer)
    return state.is_open


def _read_states(
    cluster: Cluster, transactional_ids: Collection[str]
) -> list[txn.TransactionMetadata]:
    views = map_requests(
        cluster.store,
        lambda each: txn.TransactionStateLog.view(cluster.store, each, cluster.clock),
        transactional_ids,
    )
    return [view.state for view in views]


def _describe(state: txn.TransactionMetadata, image: MetadataImage) -> TransactionDescription:
    if state.owner is None:
        raise TransactionalIdNotFoundError(
            f"there is no transactional id {state.transactional_id!r}, or it has expired; "
            f"list_transactions lists those that exist",
            transactional_id=state.transactional_id,
        )
    start_us = state.start_time_us
    return TransactionDescription(
        state=str(state.state),
        producer_id=state.owner.producer_id,
        producer_epoch=state.owner.producer_epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_start_time_ms=-1 if start_us < 0 else start_us // 1000,
        topic_partitions=frozenset(
            TopicPartition(topic.name, each.partition)
            for each in _partitions(state)
            if (topic := image.find_by_id(each.topic_id)) is not None
        ),
        participants=tuple(sorted(state.participants)),
        groups=tuple(sorted(set().union(*(each.groups for each in state.participants.values())))),
        batch_id=state.batch_id,
    )


def _partitions(state: txn.TransactionMetadata) -> set[txn.TopicIdPartition]:
    """Return the partitions of a transaction that is not complete."""
    is_open = state.is_open
    participants = state.participants.values() if is_open else ()
    return {partition for each in participants for partition in each.partitions}


def _states(filters: Collection[str] | None) -> set[txn.TransactionState] | None:
    if filters is None:
        return None
    known = {state.lower(): state for state in txn.TransactionState}
    unknown = [each for each in filters if each.lower() not in known]
    if unknown:
        raise InvalidConfigurationError(
            f"{unknown[0]!r} is no state of a transaction; expected one of "
            f"{', '.join(txn.TransactionState)}"
        )
    return {known[each.lower()] for each in filters}


def _pattern(text: str | None) -> re.Pattern[str]:
    try:
        return re.compile(".*" if text is None else text, re.DOTALL)
    except re.error as error:
        raise InvalidConfigurationError(f"{text!r} is no regular expression: {error}") from None
