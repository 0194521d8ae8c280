"""Reports a streaming query's progress as committed offsets of a consumer group.

The query's lag is then visible like that of any group. The query itself uses its checkpoint only:
it never starts from the committed offsets, and a failed report does not affect it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable, StandaloneCommits
from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import (
    CommitFailedError,
    CorruptRecordError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import Clock

_TIMEOUT_S = 5
"""Maximum time that a report waits for commits of others."""

_PAUSE_MS = 10_000
"""Minimum time between a failed report and the next one."""

_log = logging.getLogger(__name__)


class GroupProgress:
    """Commits the offsets that a query has processed, without being a member of the group.

    Only partitions that have moved since the last commit are committed. The commit is refused while
    the group has members (protocol G12). It is durable when `report` returns.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Prepare for reports; commits nothing.

        Args:
            cluster: the opened root.
            group: id of the consumer group.

        Raises:
            UnsupportedStoreError: the store does not support Delta tables (``memory://``).
        """
        self._commits = StandaloneCommits(cluster, OffsetsTable(cluster), group)
        self._clock: Clock = cluster.clock
        self._group = group
        self._reported: dict[TopicPartition, tuple[str, int]] = {}
        self._not_before_ms = float("-inf")

    def report(self, processed: StreamOffset, topic_ids: Mapping[str, str]) -> bool:
        """Commit offsets that have changed since the last report.

        Args:
            processed: the offsets up to which records have been processed.
            topic_ids: current ids of the topics. Offsets of a topic that was deleted, or created
                again since, are not committed.

        Returns:
            Whether everything is committed. If not, a warning was logged, and the next call may try
            again.
        """
        moved = {}
        for tp, offset in processed.offsets.items():
            topic_id = topic_ids.get(tp.topic)
            if topic_id is None or processed.is_recreated(tp.topic, topic_id):
                continue
            if self._reported.get(tp) != (topic_id, offset):
                moved[tp] = (topic_id, offset)
        if not moved:
            return True
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._not_before_ms:
            return False
        try:
            self._commits.commit(
                {tp: OffsetAndMetadata(offset) for tp, (_, offset) in moved.items()},
                timeout_s=_TIMEOUT_S,
            )
        except (
            CommitFailedError,
            CorruptRecordError,
            StorageError,
            UnknownTopicOrPartitionError,
        ) as error:
            _log.warning(
                "the query continues, but its progress could not be reported to group %r: %s",
                self._group,
                error,
            )
            self._not_before_ms = now_ms + _PAUSE_MS
            return False
        self._reported.update(moved)
        return True
