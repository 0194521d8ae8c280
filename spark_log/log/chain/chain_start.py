"""Deletion of records on all replicas of a chain, by moving their log start offset."""

from __future__ import annotations

from functools import partial

from spark_log.errors import OffsetOutOfRangeError, UnknownOutcomeError
from spark_log.log.chain.chain_attempt import ChainAttempt
from spark_log.log.chain.replica_chain import MAX_CHANGES, ReplicaChain
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.log.log_start import move_log_start
from spark_log.storage import with_reserve


def move_chain_start(chain: ReplicaChain, offset: int, view: LogView | None = None) -> int:
    """Move the log start offset of all in-sync and joining replicas, the leader first.

    A replica that comes back later gets the leader's log start offset before the barrier of its
    epoch.

    Args:
        chain: the partition's replicas.
        offset: the offset of the first record that is kept, at most the high watermark.
        view: a complete view of one replica's log, made a moment ago, so that this replica need not
            be listed; None without one.

    Returns:
        The lowest log start offset of the in-sync replicas (Kafka's low watermark).

    Raises:
        LeaderNotAvailableError: the partition has no leader.
        OffsetOutOfRangeError: a replica ends before the offset.
        UnknownOutcomeError: it could not be determined whether the start was moved everywhere.
        StorageError: the storage does not answer; the start was not moved on any replica.
    """
    with chain.attempt(OffsetOutOfRangeError) as attempt:
        return _move_all(chain, offset, view, attempt)


def _move_all(chain: ReplicaChain, offset: int, view: LogView | None, attempt: ChainAttempt) -> int:
    state = chain.available(chain.states.current(), needs_enough=False)
    for _ in range(MAX_CHANGES):
        newer, starts, lags = state, [], False
        for broker_id in state.chain:
            try:
                with blaming(broker_id):
                    replica = chain.replica(state, broker_id)
                    here = view if view is not None and view.origin == replica.files.url else None
                    move = partial(_move_start, chain, broker_id, replica, offset, here)
                    starts.append(with_reserve(replica.files.store, move))
                attempt.has_put = True
            except OffsetOutOfRangeError:
                if broker_id in state.isr:
                    raise
                lags = True
            except ReplicaFailedError as failed:
                attempt.has_put |= isinstance(failed.error, UnknownOutcomeError)
                newer = chain.shrink_isr(state, failed, attempt)
                break
        if lags:
            chain.replicate()
        if newer is state:
            newer = chain.states.refresh()
            if newer.leader_epoch == state.leader_epoch and not lags:
                return min(starts)
        state = chain.available(newer, needs_enough=False)
    raise chain.unknown_outcome(f"its replicas changed {MAX_CHANGES} times")


def _move_start(
    chain: ReplicaChain, broker_id: int, replica: LocalLog, offset: int, view: LogView | None
) -> int:
    """Move the start of one replica.

    Raises:
        OffsetOutOfRangeError: the replica's log ends before the offset, and its root exists.
        StorageError: the root was emptied, or the storage does not answer.
    """
    try:
        return move_log_start(replica, offset, view)
    except OffsetOutOfRangeError:
        chain.check_root(broker_id)
        raise
