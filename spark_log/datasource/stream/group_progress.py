"""A streaming query's progress, reported as the committed offsets of a consumer group.

So that lag is seen where that of every group is. The query itself goes by its checkpoint alone: it
never starts from what is reported, and a report that fails harms nothing but the report.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_log.clock import Clock
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.standalone_commits import StandaloneCommits
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import (
    CommitFailedError,
    CorruptRecordError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition

_TIMEOUT_S = 5
"""A query does not wait longer than this for others' commits."""

_PAUSE_MS = 10_000
"""After a report that failed, the next comes no earlier."""

_logger = logging.getLogger(__name__)


class GroupProgress:
    """Commits what a query has processed, in the group's name, without being its member.

    A commit names the partitions that have moved since the last one, is refused while the group has
    members (DESIGN.md, 9), and is durable when `report` returns.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Args: cluster: the opened root; group: the group's id.

        Raises:
            UnsupportedStoreError: the root lies where Delta cannot (``memory://``).
        """
        self._commits = StandaloneCommits(cluster, OffsetsTable(cluster), group)
        self._clock: Clock = cluster.clock
        self._group = group
        self._reported: dict[TopicPartition, tuple[str, int]] = {}
        self._not_before_ms = float("-inf")

    def report(self, processed: StreamOffset, topic_ids: Mapping[str, str]) -> bool:
        """Commit what has been processed, where that is news.

        Args:
            processed: up to where.
            topic_ids: of the topics as they are now: what was read of one that is gone, or was
                created again since, is nobody's position any more.

        Returns:
            Whether everything is committed now; if not, a warning was logged, and the next call
            may try again.
        """
        moved = {}
        for named, offset in processed.offsets.items():
            topic_id = topic_ids.get(named.topic)
            if topic_id is None or processed.is_another(named.topic, topic_id):
                continue
            if self._reported.get(named) != (topic_id, offset):
                moved[named] = (topic_id, offset)
        if not moved:
            return True
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._not_before_ms:
            return False
        try:
            self._commits.commit(
                {named: OffsetAndMetadata(offset) for named, (_, offset) in moved.items()},
                timeout_s=_TIMEOUT_S,
            )
        except (
            CommitFailedError,
            CorruptRecordError,
            StorageError,
            UnknownTopicOrPartitionError,
        ) as error:
            _logger.warning(
                "the query goes on, but its progress could not be reported to group %r: %s",
                self._group,
                error,
            )
            self._not_before_ms = now_ms + _PAUSE_MS
            return False
        self._reported.update(moved)
        return True
