"""The owner of the transactions of a write: made once, by the first task that needs it.

Spark passes the query's id to tasks only, not to the Python processes of the driver. Therefore any
number of tasks may initialize the transactional id at the same time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from spark_log.cluster import Cluster
from spark_log.errors import ProducerFencedError
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import (
    TransactionCoordinator,
    TransactionMetadata,
    TransactionStateLog,
    record_producer,
)


def present_owner(
    cluster: Cluster, coordinator: TransactionCoordinator, timeout_ms: int
) -> ProducerIdAndEpoch:
    """Return the owner, with the epoch of the current or the next transaction.

    A transaction that is ongoing is left as it is: another task may have begun it.

    Args:
        cluster: the opened root.
        coordinator: the coordinator of the write's transactional id; it has read the state.
        timeout_ms: ``transaction.timeout.ms`` of the next transaction.

    Raises:
        InvalidTxnTimeoutError: the timeout is above ``transaction.max.timeout.ms``.
        UnknownOutcomeError, StorageError: the owner is not known; call again.
    """
    state = coordinator.state
    if state.owner is None:
        _make_first(cluster, coordinator)
        state = coordinator.refresh()
    is_due = state.needs_producer_id or state.timeout_ms != timeout_ms
    if is_due and not state.is_ongoing:
        # Fenced: another task has initialized it meanwhile, and may have begun a transaction.
        with suppress(ProducerFencedError):
            return coordinator.initialize(timeout_ms, expected=state.owner)
        state = coordinator.refresh()
    assert state.owner is not None
    return state.owner


def _make_first(cluster: Cluster, coordinator: TransactionCoordinator) -> None:
    """Make the first owner, unless one exists: `initialize` would abort its transaction.

    No write has its timeout of 0, so `present_owner` initializes it before its first transaction.
    """
    producer_id = cluster.producer_ids.next_id()
    while not coordinator.state.is_new(producer_id):
        producer_id = cluster.producer_ids.next_id()
    record_producer(cluster.store, producer_id, coordinator.transactional_id)
    owner = ProducerIdAndEpoch(producer_id, 0)

    def with_owner(state: TransactionMetadata) -> TransactionMetadata:
        return replace(state, revision=state.revision + 1, timeout_ms=0, owner=owner)

    log = TransactionStateLog(cluster.store, coordinator.transactional_id, cluster.clock)
    log.commit(
        lambda state: with_owner(state).to_record("initialize") if state.owner is None else None
    )
