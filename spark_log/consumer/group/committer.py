"""Reads and writes the committed offsets of a consumer's group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from spark_log.cluster import Cluster
from spark_log.consumer.group.membership import ConsumerMembership
from spark_log.consumer.latency import Latency
from spark_log.consumer.position import SubscriptionState, checked_partitions, shown_positions
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator import OffsetsTable, StandaloneCommits, TransactionalOffsets

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, Exception | None], object]
"""A function that is called with the offsets of a commit, and with None or its error."""


def checked_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Offsets:
    """Return offsets of a user to commit, as a dict.

    Raises:
        TypeError: a key or a value has the wrong type.
        ValueError: an offset is negative.
        InvalidConfigurationError: the metadata of an offset is not Unicode text.
    """
    from spark_log.coordinator import check_metadata

    for tp in checked_partitions(offsets):
        position = offsets[tp]
        if not isinstance(position, OffsetAndMetadata):
            raise TypeError(
                f"{tp}: {position!r} is a {type(position).__name__}; give OffsetAndMetadata(offset)"
            )
        if position.offset < 0:
            raise ValueError(f"{tp}: offset {position.offset} is negative")
        check_metadata(tp, position)
    return dict(offsets)


class Committer:
    """Commits offsets on a thread of its own, in the order of the calls.

    Each commit is atomic (all of its offsets or none) and durable.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        membership: ConsumerMembership,
        subscription: SubscriptionState,
        latency: Latency,
        on_commit: Callable[[Offsets], object],
    ) -> None:
        """Prepare; the thread starts with the first commit.

        Args:
            cluster: the opened root.
            group_id: the group's id.
            membership: the membership by which a consumer that subscribes commits.
            subscription: the subscription state. A consumer with assigned partitions is no member,
                and commits without membership.
            latency: the latency metric that records the commits that took effect.
            on_commit: the function that is called on the thread with the offsets of each commit
                that took effect, before its future is done.
        """
        self._cluster = cluster
        self._group_id = group_id
        self._membership = membership
        self._subscription = subscription
        self._table: OffsetsTable | None = None
        self._transactions: TransactionalOffsets | None = None
        self._memberless: StandaloneCommits | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._opening = threading.Lock()
        self._submitting = threading.Lock()
        self._latency = latency
        self._on_commit = on_commit

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the committed offsets of the group in some partitions.

        Raises:
            UnstableOffsetCommitError: a transaction that commits one of them is not decided; call
                again.
            StorageError: the table of offsets cannot be read.
        """
        table = self._open_table()
        assert self._transactions is not None
        self._transactions.settle_group(self._group_id, partitions)
        return {
            tp: OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
            for tp, each in table.fetch(self._group_id).items()
            if tp in partitions
        }

    def initial_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets at which to start newly assigned partitions.

        The group's offset of a partition is None if the group committed none. For a member,
        partitions that other members may have got meanwhile are missing. The errors are those of
        `committed`.
        """
        offsets = self._membership.initial_offsets(partitions)
        if offsets is not None:
            return offsets
        committed = self.committed(partitions)
        return {tp: committed[tp].offset if tp in committed else None for tp in partitions}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> Future[None]:
        """Commit offsets after all earlier commits.

        Args:
            offsets: partition → the offset of the next record to read.
            topic_ids: topic → the id of the topic that was read. If a topic was deleted and created
                again since, the commit fails.

        Returns:
            A future that is done when the offsets are durable. Its exceptions are those of
            `OffsetsTable.commit`; for a member also those of `ConsumerMembership.commit`, for other
            consumers those of `StandaloneCommits.commit`.
        """
        is_member = self._subscription.is_subscribed
        with self._submitting:  # revoked partitions are committed on another thread
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark-log-committer")
            submit = self._thread.submit
            self._last = submit(self._commit, dict(offsets), dict(topic_ids), is_member)
            return self._last

    def wait(self, timeout_ms: float | None = None) -> None:
        """Wait until all commits so far have succeeded or failed."""
        if self._last is not None:
            wait_for([self._last], None if timeout_ms is None else timeout_ms / 1000)

    def close(self, *, waits: bool = True) -> None:
        """End the thread after the commits so far.

        Args:
            waits: whether to return only after the thread has ended.
        """
        if self._thread is not None:
            self._thread.shutdown(wait=waits)
            self._thread = None

    def _commit(self, offsets: Offsets, topic_ids: dict[str, str], is_member: bool) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            positions = {tp: each.offset for tp, each in offsets.items()}
            _log.debug("group %s: committing %s", self._group_id, shown_positions(positions))
        began_ms = self._cluster.clock.monotonic_ms()
        with self._latency.measure():
            if offsets and is_member:
                self._membership.commit(offsets, topic_ids)
            elif offsets:
                self._memberless_commits().commit(offsets, topic_ids)
        _log.debug(
            "group %s: committed the offsets of %d partitions in %.1f ms",
            self._group_id,
            len(offsets),
            self._cluster.clock.monotonic_ms() - began_ms,
        )
        self._on_commit(offsets)

    def _memberless_commits(self) -> StandaloneCommits:
        if self._memberless is None:
            from spark_log.coordinator import StandaloneCommits

            self._memberless = StandaloneCommits(self._cluster, self._open_table(), self._group_id)
        return self._memberless

    def _open_table(self) -> OffsetsTable:
        with self._opening:
            if self._table is None:
                # A late import: deltalake takes long to import, and many consumers never commit.
                from spark_log.coordinator import OffsetsTable, TransactionalOffsets

                table = OffsetsTable(self._cluster)
                self._transactions = TransactionalOffsets(self._cluster, table)
                self._table = table
            return self._table
