"""Observes open transactions that block a reader, and ends those whose producer is gone."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from spark_log.cluster import Cluster
from spark_log.errors import SparkLogError
from spark_log.log import OpenTransaction, PartitionLog
from spark_log.record import EndTransactionMarker, ProducerIdAndEpoch
from spark_log.transaction.coordinator import CommitOffsets, TransactionCoordinator
from spark_log.transaction.producers import find_transactional_id
from spark_log.transaction.state import TopicIdPartition
from spark_log.util import Clock

_log = logging.getLogger(__name__)

_READ_AFTER_MS: Final = 500
"""Time that a transaction blocks a reader before its state log is read: most producers have ended
their transaction by then, which costs no request."""

_READ_EVERY_MS: Final = 1000
"""Minimum time between two reads of the state log for one partition."""

_MAX_COORDINATORS: Final = 256
"""Maximum number of coordinators that are kept. An observer does not notice that another
process ends a transaction, so the least recently used coordinators are dropped."""

TransactionEnd = Literal["committed", "aborted", "ended before"]
"""The end of a transaction. ``ended before``: its producer has begun another one since, or the
transaction has not registered the partition."""


@dataclass(slots=True)
class _Sighting:
    """An observer's knowledge of a partition's open transactions.

    Attributes:
        first_ms: (producer id, epoch) → the time at which the transaction was first seen.
        read_at_ms: the time from which the state log may be read again.
        is_listed: whether `first_ms` has the partition's other open transactions, too.
    """

    first_ms: dict[tuple[int, int], float]
    read_at_ms: float
    is_listed: bool = False


class TransactionObserver:
    """Resolves the transactions that block readers. For one thread at a time.

    The age of a transaction is measured by the observer's own monotonic clock, from the time at
    which the observer first saw it. No transaction is therefore aborted before its timeout, even if
    wall clocks are wrong.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock | None = None,
        commit_offsets: CommitOffsets | None = None,
    ) -> None:
        """Return an observer; nothing is read yet.

        Args:
            cluster: the opened root.
            clock: the clock whose monotonic time measures timeouts; None for the cluster's.
            commit_offsets: the function that commits a decided transaction's offsets to their
                groups; without it a transaction with offsets is not completed.
        """
        self._cluster = cluster
        self._commit_offsets = commit_offsets
        self._clock = clock or cluster.clock
        self._sightings: dict[TopicIdPartition, _Sighting] = {}
        self._coordinators: OrderedDict[int, TransactionCoordinator] = OrderedDict()

    def resolve(
        self, blocking: OpenTransaction, log: PartitionLog, partition: TopicIdPartition
    ) -> bool:
        """End an open transaction if it is decided, or has passed its timeout.

        Call this repeatedly while the transaction blocks a reader. It makes no request in the first
        500 ms, and then reads the state log once a second. A failure is logged and counted, and a
        later call retries.

        Args:
            blocking: the transaction.
            log: the partition's log; no other thread uses it during the call.
            partition: the partition.

        Returns:
            Whether the partition has the transaction's marker now, so that the reader may continue.
        """
        now_ms = self._clock.monotonic_ms()
        key = blocking.producer_id, blocking.producer_epoch
        sighting = self._sightings.get(partition)
        if sighting is None:
            sighting = self._sightings[partition] = _Sighting({}, now_ms + _READ_AFTER_MS)
        if key not in sighting.first_ms:
            sighting.first_ms = {key: now_ms}
            sighting.read_at_ms = now_ms + _READ_AFTER_MS
            sighting.is_listed = False
        if now_ms < sighting.read_at_ms:
            return False
        sighting.read_at_ms = now_ms + _READ_EVERY_MS
        with self._cluster.suppressed.suppress("transaction end", log.directory, SparkLogError):
            if not sighting.is_listed:  # the timeouts of the later transactions begin now, too
                for each in log.transactions().open:
                    seen = each.producer_id, each.producer_epoch
                    sighting.first_ms.setdefault(seen, now_ms)
                sighting.is_listed = True
            if self._end(blocking, log, now_ms - sighting.first_ms[key]) is not None:
                del sighting.first_ms[key]
                sighting.read_at_ms = now_ms  # the next one may be decided, too
                return True
            _log.debug(
                "%s: the transaction of producer %d:%d has blocked a reader for %.0f ms",
                log.directory,
                *key,
                now_ms - sighting.first_ms[key],
            )
        return False

    def end(self, blocking: OpenTransaction, log: PartitionLog) -> TransactionEnd | None:
        """End an open transaction now, as if its timeout had passed.

        An ongoing transaction is aborted in all of its partitions. A decision is not changed.

        Args:
            blocking: the transaction.
            log: the partition's log; no other thread uses it during the call.

        Returns:
            The transaction's end; None if the state log of its producer does not have it yet.

        Raises:
            SparkLogError: it could not be ended.
        """
        return self._end(blocking, log, math.inf)

    def _end(
        self, blocking: OpenTransaction, log: PartitionLog, waited_ms: float
    ) -> TransactionEnd | None:
        producer = ProducerIdAndEpoch(blocking.producer_id, blocking.producer_epoch)
        partition = TopicIdPartition(log.files.topic_id, log.files.partition)
        outcome = self._outcome(producer, partition, waited_ms)
        if outcome is None:
            return None
        marker = EndTransactionMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch + 1,
            is_committed=outcome == "committed",
        )
        is_put = log.append_markers([marker]) is not None
        self._coordinators.pop(producer.producer_id, None)
        if outcome == "ended before" and is_put:
            # The record was appended after the marker, by a process that had been paused until the
            # log had forgotten its producer. If the marker existed, the caller had not seen it.
            return "aborted"
        return outcome

    def _outcome(
        self, producer: ProducerIdAndEpoch, partition: TopicIdPartition, waited_ms: float
    ) -> TransactionEnd | None:
        """Return a transaction's end, after aborting it if its timeout has passed.

        Returns None while it is not decided.
        """
        coordinator = self._find_coordinator(producer.producer_id)
        if coordinator is None:
            # The id has expired: its transactions were decided long before. Still wait for the
            # maximum duration of a transaction: an abort cannot be undone.
            config = self._cluster.image().cluster_config()
            return "ended before" if waited_ms >= config.transaction_max_timeout_ms else None
        state = coordinator.refresh()
        if state.participant(producer) is not None and state.is_ongoing:
            if waited_ms < state.timeout_ms:
                return None
            coordinator.expire(state.transaction, _why(waited_ms, state.timeout_ms))
            state = coordinator.state
        if state.is_prepared and waited_ms >= state.timeout_ms:
            with self._cluster.suppressed.suppress(
                "transaction end", coordinator.transactional_id, SparkLogError
            ):
                coordinator.complete()  # the other partitions, too: their owner is gone
        participant = state.participant(producer)
        if state.decision is None or participant is None or partition not in participant.partitions:
            return "ended before" if state.has_passed(producer) else None
        is_committed = state.is_committed and producer.producer_id in state.decision.counting
        return "committed" if is_committed else "aborted"

    def _find_coordinator(self, producer_id: int) -> TransactionCoordinator | None:
        found = self._coordinators.get(producer_id)
        if found is None:
            transactional_id = find_transactional_id(self._cluster.store, producer_id)
            if transactional_id is None:
                return None
            found = TransactionCoordinator(
                self._cluster,
                transactional_id,
                clock=self._clock,
                commit_offsets=self._commit_offsets,
            )
            self._coordinators[producer_id] = found
            if len(self._coordinators) > _MAX_COORDINATORS:
                self._coordinators.popitem(last=False)
        self._coordinators.move_to_end(producer_id)
        return found


def _why(waited_ms: float, timeout_ms: int) -> str:
    if math.isinf(waited_ms):
        return "a user ends it"
    return f"a reader saw it open for {waited_ms:.0f} ms, and its timeout is {timeout_ms} ms"
