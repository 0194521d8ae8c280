"""Offsets of consumer groups in transactions (KIP-447): sends them, commits them, awaits them.

Three logs take part: the state log of the transaction, the group's log, and the offsets table.
The rules are (protocol T11, T12, T13); docs/adr/0022 explains why they are enough.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from spark_log.cluster import Cluster
from spark_log.coordinator.group import (
    Group,
    GroupLog,
    GroupRecord,
    PendingOffsets,
    send_offsets,
    settle_offsets,
)
from spark_log.coordinator.offsets.rows import CommittedOffset, PartitionKey, Row
from spark_log.coordinator.offsets.table import LastCommit
from spark_log.errors import SparkLogError, UnstableOffsetCommitError
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import (
    TransactionCoordinator,
    TransactionMetadata,
    TransactionOffset,
    TransactionState,
)
from spark_log.types import ConsumerGroupMetadata, TopicPartition
from spark_log.util import shown

_log = logging.getLogger(__name__)

_MAX_LOGS: Final = 256
"""Maximum number of group logs, and of undecided transactions, that are kept. The least recently
used ones are dropped, and opened again when they are needed."""


class RolledForwardOffsets(Protocol):
    """The part of the offsets table that transactions use."""

    def last_commit(self, group: str) -> LastCommit:
        """Return the generation and the timestamp of a group's newest commit."""

    def roll_forward(
        self,
        group: str,
        rows: Sequence[Row],
        is_superseded: Callable[[CommittedOffset], bool],
        *,
        generation: int,
        member_id: str,
        decided_ms: float,
    ) -> None:
        """Commit a committed transaction's offsets, except those that are committed already."""


class TransactionalOffsets:
    """The groups' part in the transactions of one root. Safe to use from any thread."""

    def __init__(self, cluster: Cluster, table: RolledForwardOffsets) -> None:
        """Return the transactional offsets of a root; nothing is read yet.

        Args:
            cluster: the opened root.
            table: the root's offsets table.
        """
        self._cluster = cluster
        self._table = table
        self._lock = threading.RLock()
        self._logs: OrderedDict[str, GroupLog] = OrderedDict()
        self._settling = threading.Lock()
        self._undecided: OrderedDict[ProducerIdAndEpoch, _Undecided] = OrderedDict()

    # --- a producer ------------------------------------------------------------------------------

    def send(
        self,
        state: TransactionMetadata,
        producer: ProducerIdAndEpoch,
        member: ConsumerGroupMetadata,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Add pending offsets to a group, after the group was registered in the transaction.

        Costs one lookup of the offsets table, and one lookup and one append of the group's log.

        Args:
            state: the transaction.
            producer: the participant that sends the offsets.
            member: the member, as `Consumer.group_metadata` returns it.
            partitions: the partitions whose offsets the transaction commits; the offsets themselves
                will be in its decision.

        Raises:
            CommitFailedError: the member has left or was replaced, its generation has passed, or it
                does not have one of the partitions; or it is no member, and the group has members.
                Abort the transaction.
            UnstableOffsetCommitError: another transaction may commit one of the partitions, and is
                not decided; call again.
            UnknownOutcomeError, StorageError: it may not be added; call again.
        """
        assert member.group_id is not None
        settled: set[PendingOffsets] = set()
        while True:
            last = self._table.last_commit(member.group_id)
            sent = PendingOffsets(
                state.transactional_id,
                producer,
                # Without membership, the generation is above that of all commits so far: it shows
                # that a commit with a lower one was decided before (`is_superseded_by`).
                member.generation_id if member.member_id else last.generation + 1,
                member.member_id,
                frozenset(partitions),
                last.timestamp_us,
            )
            unsettled = self._send(state, member, sent, settled)
            if not unsettled:
                return
            _log.debug(
                "group %s: %d other transactions have pending offsets of the same partitions",
                member.group_id,
                len(unsettled),
            )
            # Other transactions' offsets must be in the table first: they are older than these.
            self.settle(member.group_id, unsettled)
            settled.update(unsettled)

    def _send(
        self,
        state: TransactionMetadata,
        member: ConsumerGroupMetadata,
        sent: PendingOffsets,
        settled: Collection[PendingOffsets],
    ) -> list[PendingOffsets]:
        """Append pending offsets, or return other transactions' for the same partitions."""
        unsettled: list[PendingOffsets] = []

        def is_own(pending: PendingOffsets) -> bool:
            return pending.transactional_id == state.transactional_id

        def is_over(pending: PendingOffsets) -> bool:
            return is_own(pending) and not _is_newest(state, pending)

        def decide(now: Group) -> GroupRecord | None:
            record = send_offsets(now, sent, member.group_instance_id, is_over)
            unsettled[:] = [
                each
                for each in now.pending_offsets_of(sent.partitions)
                if not is_own(each) and each not in settled
            ]
            return None if unsettled else record

        assert member.group_id is not None
        with self._lock:
            self._log(member.group_id).commit(decide)
        return unsettled

    # --- completing a transaction ----------------------------------------------------------------

    def commit_offsets(self, state: TransactionMetadata) -> None:
        """Roll a committed transaction forward in its groups. Any process may repeat this.

        Raises:
            UnknownOutcomeError, StorageError, CommitFailedError: some offsets may not be
                committed; call again.
            CorruptRecordError: the log of a group is damaged.
        """
        assert state.decision is not None
        by_group: dict[str, list[TransactionOffset]] = {}
        for offset in state.decision.offsets:
            by_group.setdefault(offset.group_id, []).append(offset)
        for group_id, offsets in by_group.items():
            with self._lock:
                log = self._log(group_id)
                decided_ms = self._cluster.clock.monotonic_ms()  # before the group is read
                log.replay()
                pending_offsets = log.state.pending_offsets
            for pending in pending_offsets:
                rows = _rows_of(offsets, pending) if _counts(state, pending) else []
                if rows:
                    self._roll_forward(group_id, rows, pending, decided_ms)

    def _roll_forward(
        self, group_id: str, rows: Sequence[Row], pending: PendingOffsets, decided_ms: float
    ) -> None:
        _log.debug(
            "group %s: committing %d offsets of the transaction of %r",
            group_id,
            len(rows),
            pending.transactional_id,
        )

        def is_superseded(newest: CommittedOffset) -> bool:
            return pending.is_superseded_by(newest.generation, newest.commit_timestamp_us)

        self._table.roll_forward(
            group_id,
            rows,
            is_superseded,
            generation=pending.generation,
            member_id=pending.member_id,
            decided_ms=decided_ms,
        )

    # --- beginning partitions --------------------------------------------------------------------

    def settle_group(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> None:
        """Settle a group's pending offsets, in some of its partitions or in all.

        If the group did not change and has none, this costs one lookup of a file name.

        Raises:
            UnstableOffsetCommitError: a transaction is not decided; try again.
            UnknownOutcomeError, StorageError, CommitFailedError: try again.
            CorruptRecordError: the log of the group, or of a transactional id, is damaged.
        """
        with self._lock:
            log = self._log(group_id)
            log.replay()
            group = log.state
        self.settle(
            group_id,
            group.pending_offsets if partitions is None else group.pending_offsets_of(partitions),
        )

    def settle(self, group_id: str, pending_offsets: Collection[PendingOffsets]) -> None:
        """Return when the transactions of pending offsets are decided, and rolled forward.

        After that, readers begin at the committed offsets of these partitions. A transaction that
        this object has seen ongoing for its timeout is aborted.

        Raises:
            UnstableOffsetCommitError: a transaction is not decided; try again.
            UnknownOutcomeError, StorageError, CommitFailedError: try again.
            CorruptRecordError: the log of the group, or of a transactional id, is damaged.
        """
        undecided: list[PendingOffsets] = []
        over: list[PendingOffsets] = []
        with self._settling:
            for pending in pending_offsets:
                coordinator = self._decide(pending)
                if coordinator is None:
                    undecided.append(pending)
                elif self._complete(coordinator, pending):
                    over.append(pending)
        if over:
            path = GroupLog.directory_of(group_id)
            with self._suppressing("drop of pending offsets", path), self._lock:
                self._log(group_id).commit(lambda group: settle_offsets(group, over))
        if undecided:
            ids = sorted({each.transactional_id for each in undecided})
            partitions = sorted(frozenset().union(*(each.partitions for each in undecided)))
            raise UnstableOffsetCommitError(
                f"group {group_id!r}: {shown(partitions)} may be committed by the transaction of "
                f"{', '.join(map(repr, ids[:3]))}, which is not decided yet; try again",
                group_id=group_id,
                transactional_id=ids[0],
            )

    def _decide(self, pending: PendingOffsets) -> TransactionCoordinator | None:
        """Return the coordinator of a decided transaction; None if it is ongoing.

        A transaction that has passed its timeout is aborted first.
        """
        known = self._undecided.get(pending.producer)
        coordinator = (
            known.coordinator if known else self._open_coordinator(pending.transactional_id)
        )
        state = coordinator.refresh()
        if _is_newest(state, pending) and state.is_ongoing:
            now_ms = self._cluster.clock.monotonic_ms()
            if known is None:
                known = self._undecided[pending.producer] = _Undecided(coordinator, now_ms)
                if len(self._undecided) > _MAX_LOGS:  # others may have settled it
                    self._undecided.popitem(last=False)
            waited_ms = now_ms - known.first_seen_ms
            if waited_ms < state.timeout_ms:
                return None
            coordinator.expire(
                state.transaction,
                f"its pending offsets block a group, after {waited_ms:.0f} ms, and its timeout is "
                f"{state.timeout_ms} ms",
            )
        self._undecided.pop(pending.producer, None)
        return coordinator

    def _complete(self, coordinator: TransactionCoordinator, pending: PendingOffsets) -> bool:
        """Roll a decided transaction forward; return whether it is complete."""
        state = coordinator.state
        if not _is_newest(state, pending):
            return True
        if state.state is TransactionState.PREPARE_COMMIT:
            self.commit_offsets(state)
        # Nothing here waits for the markers: if one cannot be put, blocked readers retry.
        with self._suppressing("transaction end", coordinator.transactional_id):
            coordinator.complete()
        return not coordinator.state.is_prepared

    # --- helpers ---------------------------------------------------------------------------------

    def _suppressing(self, what: str, path: str) -> AbstractContextManager[None]:
        return self._cluster.suppressed.suppress(what, path, SparkLogError)

    def _open_coordinator(self, transactional_id: str) -> TransactionCoordinator:
        return TransactionCoordinator(
            self._cluster, transactional_id, commit_offsets=self.commit_offsets
        )

    def _log(self, group_id: str) -> GroupLog:
        found = self._logs.get(group_id)
        if found is None:
            found = self._logs[group_id] = self._open_log(group_id)
            if len(self._logs) > _MAX_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(group_id)
        return found

    def _open_log(self, group_id: str) -> GroupLog:
        return GroupLog(self._cluster.store, group_id, self._cluster.clock)


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A transaction that was ongoing, and the monotonic time at which it was first seen."""

    coordinator: TransactionCoordinator
    first_seen_ms: float


def _is_newest(state: TransactionMetadata, pending: PendingOffsets) -> bool:
    """Whether a transactional id's newest transaction is the one that sent pending offsets.

    If not, that one is complete: a transaction begins only after the one before it is complete.
    """
    return state.participant(pending.producer) is not None


def _counts(state: TransactionMetadata, pending: PendingOffsets) -> bool:
    """Whether pending offsets were sent by a participant that counts in a committed transaction."""
    assert state.decision is not None
    return (
        pending.transactional_id == state.transactional_id
        and _is_newest(state, pending)
        and pending.producer.producer_id in state.decision.counting
    )


def _rows_of(offsets: Collection[TransactionOffset], pending: PendingOffsets) -> list[Row]:
    return [
        Row(
            PartitionKey(each.topic, each.topic_id, each.partition),
            each.offset,
            each.metadata,
            each.leader_epoch,
        )
        for each in offsets
        if TopicPartition(each.topic, each.partition) in pending.partitions
    ]
