"""Committed offsets of a consumer's group: read at once, written on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from spark_log.consumer.membership import Membership
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator import OffsetsTable

Offsets = dict[TopicPartition, OffsetAndMetadata]


class Committer:
    """Commits in the order of the calls; a commit is all of its offsets or none, and durable."""

    def __init__(self, cluster: Cluster, group_id: str, membership: Membership) -> None:
        """Args: cluster: the opened root; group_id: the group; membership: who commits."""
        self._cluster = cluster
        self._group_id = group_id
        self._membership = membership
        self._opened: OffsetsTable | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._opening = threading.Lock()
        self.commits = 0

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
            What is done when they are durable; its exceptions are those of `OffsetsTable.commit`.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark-log-committer")
        return self._thread.submit(self._commit, dict(offsets), dict(topic_ids))

    def close(self, *, waits: bool = True) -> None:
        """End after what was asked for; whether to wait for it."""
        if self._thread is not None:
            self._thread.shutdown(wait=waits)
            self._thread = None

    def _commit(self, offsets: Offsets, topic_ids: dict[str, str]) -> None:
        table = self._table()
        generation = self._membership.generation()
        if generation is None:  # an earlier member's position would go before one of less
            generation = table.generation(self._group_id)
        table.commit(
            self._group_id,
            offsets,
            generation=generation,
            member_id=self._membership.member_id(),
            topic_ids=topic_ids,
        )
        self.commits += 1

    def _table(self) -> OffsetsTable:
        with self._opening:
            if self._opened is None:
                # Only here: deltalake takes a while to import, and many consumers commit nothing.
                from spark_log.coordinator import OffsetsTable

                self._opened = OffsetsTable(self._cluster)
            return self._opened
