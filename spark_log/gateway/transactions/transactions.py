"""`Transactions`: the transactional ids that clients use through one gateway."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from spark_log.cluster import Cluster
from spark_log.coordinator import LazyTransactionalOffsets
from spark_log.metadata import random_producer_id
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import (
    KeptIdentityCoordinator,
    OpenLog,
    PresentProducer,
    TopicIdPartition,
    TransactionOffset,
)
from spark_log.types import ConsumerGroupMetadata, TopicPartition

_MAX_COORDINATORS: Final = 1_024
"""Maximum number of transactional ids whose last state is kept, so that a change costs one append
and no read. The least recently used ones are read again when they are needed."""


@dataclass(slots=True)
class _Entry:
    coordinator: KeptIdentityCoordinator
    lock: threading.Lock = field(default_factory=threading.Lock)


class Transactions:
    """Begins and ends transactions for clients. Safe to use from several threads.

    Every change is a conditional append to the log of its transactional id, so any gateway may make
    it: two that both think they coordinate an id are as safe as two clients.
    """

    def __init__(self, cluster: Cluster, open_log: OpenLog | None = None) -> None:
        """Return the transactions of a root; nothing is read yet.

        Args:
            cluster: the opened root.
            open_log: the function that returns the partitions that this gateway appends to: a
                marker then costs one put. Any thread calls it.
        """
        self._open_log = open_log
        self._cluster = cluster
        self._offsets = LazyTransactionalOffsets(cluster)
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        """Return a new producer, or a new epoch of the one that a transactional id has.

        Args:
            transactional_id: the transactional id; None for an idempotent producer without one.
            timeout_ms: ``transaction.timeout.ms``.
            expected: the only producer that may continue (KIP-360); None for any.
            check: called with each decision about a transactional id; raises to change nothing.

        Raises:
            ProducerFencedError: another process has taken over from the expected producer.
            InvalidTxnTimeoutError: the timeout is above ``transaction.max.timeout.ms``.
            SparkLogError: the storage does not answer; call again.
        """
        if transactional_id is None:
            return ProducerIdAndEpoch(random_producer_id(), 0)
        with self._coordinator(transactional_id) as coordinator:
            return coordinator.initialize(timeout_ms, expected, check)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
    ) -> None:
        """Register partitions before the first write to them; begin a transaction if none is.

        If all of them are registered, this makes no request.

        Raises:
            ProducerFencedError: the epoch has passed, or another process has taken over.
            TransactionAbortableError: the transaction was aborted by others.
            InvalidTxnStateError: the producer cannot begin a transaction.
            SparkLogError: the storage does not answer; call again.
        """
        with self._coordinator(transactional_id) as coordinator:
            coordinator.register(producer, partitions)

    def send_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        offsets: Sequence[TransactionOffset],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Keep offsets of one group, which the end of the transaction commits.

        They are in the state of the transactional id, so that any gateway can end the transaction,
        and the group knows that they are pending. The call may be repeated.

        Args:
            transactional_id: the transactional id.
            producer: the producer.
            member: the group, and the member that has read the records; -1 and an empty member id
                without membership.
            offsets: the offsets of the group.
            check: called before they are kept; raises if they may be older than others.

        Raises:
            CommitFailedError: the member has left or was replaced, or its generation has passed.
            ProducerFencedError: the epoch has passed, or another process has taken over.
            TransactionAbortableError: the transaction was aborted by others.
            UnstableOffsetCommitError: another transaction may commit one of the partitions, and is
                not decided; call again.
            SparkLogError: the storage does not answer; call again.
        """
        with self._coordinator(transactional_id) as coordinator:
            coordinator.register(producer, groups={each.group_id for each in offsets})
            self._send_offsets(coordinator, producer, member, offsets, check)

    def _send_offsets(
        self,
        coordinator: KeptIdentityCoordinator,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        offsets: Sequence[TransactionOffset],
        check: Callable[[], None] | None,
    ) -> None:
        partitions = [TopicPartition(each.topic, each.partition) for each in offsets]
        # The group refuses a member that it has lost before any offset is kept.
        self._offsets.send(coordinator.state, producer, member, partitions)
        coordinator.send_offsets(producer, offsets, check)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_committed: bool,
        check: Callable[[], None] | None = None,
    ) -> ProducerIdAndEpoch:
        """Commit or abort; return the producer's identity in its next transaction.

        The same call again has the same result, so that a client whose answer was lost may repeat
        it.

        Args:
            transactional_id: the transactional id.
            producer: the producer.
            is_committed: whether to commit.
            check: called with each decision; raises to change nothing.

        Raises:
            ProducerFencedError: another process has taken over.
            TransactionAbortableError: the transaction was aborted by others.
            InvalidTxnStateError: there is nothing to commit, or the other was decided.
            SparkLogError: the storage does not answer; call again.
        """
        with self._coordinator(transactional_id) as coordinator:
            if is_committed:
                return coordinator.commit(producer, check=check)
            return coordinator.abort(producer, check)

    # --- clients that keep their identity --------------------------------------------------------

    def add_kept(
        self,
        transactional_id: str,
        client: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition] = (),
        groups: Collection[str] = (),
        check: Callable[[], None] | None = None,
    ) -> int:
        """Register partitions and groups; return the number of the transaction.

        See `KeptIdentityCoordinator.register_kept`.
        """
        with self._coordinator(transactional_id) as coordinator:
            return coordinator.register_kept(client, partitions, groups, check)

    def verify_kept(
        self,
        transactional_id: str,
        client: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
        *,
        is_recent: bool = False,
    ) -> PresentProducer:
        """Return the identity under which a client's batches are appended.

        See `KeptIdentityCoordinator.verify_kept`.
        """
        with self._coordinator(transactional_id) as coordinator:
            return coordinator.verify_kept(client, partitions, is_recent=is_recent)

    def send_kept_offsets(
        self,
        transactional_id: str,
        client: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        offsets: Sequence[TransactionOffset],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Keep offsets as `send_offsets` does; the client has added their group before.

        Raises:
            InvalidTxnStateError: it has not.
            SparkLogError: as in `send_offsets`.
        """
        groups = {each.group_id for each in offsets}
        with self._coordinator(transactional_id) as coordinator:
            present = coordinator.verify_kept(client, groups=groups, is_recent=True)
            self._send_offsets(coordinator, present.producer, member, offsets, check)

    def end_kept(
        self,
        transactional_id: str,
        client: ProducerIdAndEpoch,
        *,
        is_committed: bool,
        known: int | None,
        never_aborts_commits: bool = False,
        check: Callable[[], None] | None = None,
    ) -> int | None:
        """Commit or abort the known transaction; return the number of an unknown one.

        See `KeptIdentityCoordinator.end_kept`.
        """
        with self._coordinator(transactional_id) as coordinator:
            return coordinator.end_kept(
                client,
                is_committed=is_committed,
                known=known,
                never_aborts_commits=never_aborts_commits,
                check=check,
            )

    @contextmanager
    def _coordinator(self, transactional_id: str) -> Iterator[KeptIdentityCoordinator]:
        """Lend the coordinator of an id, which is for one thread at a time."""
        with self._lock:
            entry = self._entries.get(transactional_id)
            if entry is None:
                entry = self._entries[transactional_id] = _Entry(
                    KeptIdentityCoordinator(
                        self._cluster,
                        transactional_id,
                        open_log=self._open_log,
                        commit_offsets=self._offsets.commit_offsets,
                    )
                )
            self._entries.move_to_end(transactional_id)
            while len(self._entries) > _MAX_COORDINATORS:
                self._entries.popitem(last=False)
        with entry.lock:
            yield entry.coordinator
