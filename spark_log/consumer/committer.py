"""Committed offsets of a consumer's group: read at once, written on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from spark_log.consumer.coordinator_metrics import Latency
from spark_log.consumer.membership import Membership
from spark_log.consumer.subscription import Subscription
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator import OffsetsTable
    from spark_log.coordinator.group.standalone_commits import StandaloneCommits

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Committer:
    """Commits in the order of the calls; a commit is all of its offsets or none, and durable."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        membership: Membership,
        subscription: Subscription,
        latency: Latency,
    ) -> None:
        """Commit for a consumer.

        Args:
            cluster: the opened root.
            group_id: the group.
            membership: in whose name, where the consumer subscribes.
            subscription: tells whether it does; who assigns partitions by hand is no member.
            latency: told of commits that took effect.
        """
        self._cluster = cluster
        self._group_id = group_id
        self._membership = membership
        self._subscription = subscription
        self._opened: OffsetsTable | None = None
        self._memberless: StandaloneCommits | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._opening = threading.Lock()
        self._submitting = threading.Lock()
        self._latency = latency

    def committed(self) -> Offsets:
        """Return the group's position in every partition that it has one in.

        Raises:
            StorageError: the table cannot be read.
        """
        return {
            named: OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
            for named, each in self._table().fetch(self._group_id).items()
        }

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> Future[None]:
        """Commit, after all that was asked for before.

        Args:
            offsets: by partition, the next offset to read.
            topic_ids: of the topics that were read: one that was created again since is another.

        Returns:
            What is done when they are durable; its exceptions are those of `OffsetsTable.commit`,
            for a member those of `Membership.commit` too, for who is none those of
            `StandaloneCommits.commit`.
        """
        is_member = self._subscription.is_subscribed
        with self._submitting:  # what is taken away is committed on another thread
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark-log-committer")
            submit = self._thread.submit
            self._last = submit(self._commit, dict(offsets), dict(topic_ids), is_member)
            return self._last

    def wait(self, timeout_ms: float | None = None) -> None:
        """Wait until what was asked for is done, whatever came of it."""
        if self._last is not None:
            wait_for([self._last], None if timeout_ms is None else timeout_ms / 1000)

    def close(self, *, waits: bool = True) -> None:
        """End after what was asked for; whether to wait for it."""
        if self._thread is not None:
            self._thread.shutdown(wait=waits)
            self._thread = None

    def _commit(self, offsets: Offsets, topic_ids: dict[str, str], is_member: bool) -> None:
        with self._latency.timed():
            if not offsets:
                return
            if is_member:
                self._membership.commit(offsets, topic_ids)
            else:
                self._memberless_commits().commit(offsets, topic_ids)

    def _memberless_commits(self) -> StandaloneCommits:
        if self._memberless is None:
            from spark_log.coordinator.group.standalone_commits import StandaloneCommits

            self._memberless = StandaloneCommits(self._cluster, self._table(), self._group_id)
        return self._memberless

    def _table(self) -> OffsetsTable:
        with self._opening:
            if self._opened is None:
                # Only here: deltalake takes a while to import, and many consumers commit nothing.
                from spark_log.coordinator import OffsetsTable

                self._opened = OffsetsTable(self._cluster)
            return self._opened
