"""A consumer's place in its group: what `GroupMember` knows, as `Consumer` asks for it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Set
from typing import TYPE_CHECKING

from spark_log.config import ConsumerConfig
from spark_log.consumer.coordinator_metrics import CoordinatorMetrics, seconds_since
from spark_log.consumer.membership import Share
from spark_log.errors import CommitFailedError, FencedInstanceIdError, UnknownMemberIdError
from spark_log.metadata import Cluster
from spark_log.metadata.image import MetadataImage
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator.group.coordinator import GroupStatus
    from spark_log.coordinator.group.member import GroupMember

_POLLS_PER_INTERVAL = 3
_MOST_BEGINS = 3


class GroupMembership:
    """See `Membership`. Joins when it is asked for its share the first time.

    What it is asked for between two calls of `share` is of the newest generation, what it has told
    is not: so nothing is released before the consumer has heard of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        config: ConsumerConfig,
        on_change: Callable[[], None],
        metrics: CoordinatorMetrics | None = None,
    ) -> None:
        """Get ready; touches nothing.

        Args:
            cluster: the opened root.
            group_id: the group.
            config: the consumer's.
            on_change: called on another thread when `has_news`.
            metrics: told of joins.
        """
        self._cluster = cluster
        self._group_id = group_id
        self._config = config
        self._on_change = on_change
        self._metrics = metrics or CoordinatorMetrics(cluster.clock.monotonic_ms)
        self._beats_before = 0
        self._member: GroupMember | None = None
        self._topics: frozenset[str] = frozenset()
        self._told: GroupStatus | None = None
        self._fenced: FencedInstanceIdError | None = None
        self._finalizer: weakref.finalize[..., GroupMembership] | None = None

    def has_news(self) -> bool:
        """See `Membership.has_news`."""
        if self._member is None:
            return False
        try:
            return self._member.poll() != self._told
        except UnknownMemberIdError:
            return True

    def is_lost(self) -> bool:
        """See `Membership.is_lost`."""
        if self._member is None or self._fenced is not None:
            return True
        try:
            self._member.poll()
        except UnknownMemberIdError:
            return True
        return False

    def next_poll_ms(self) -> float:
        """See `Membership.next_poll_ms`."""
        return self._config.max_poll_interval_ms / _POLLS_PER_INTERVAL

    def share(self, topics: Set[str], image: MetadataImage) -> Share:
        """See `Membership.share`."""
        if self._fenced is not None:
            raise self._fenced
        try:
            member = self._opened()
            if self._told is None or self._topics != topics:
                with self._metrics.joins.timed():
                    member.join(topics)
                self._topics = frozenset(topics)
            status = self._told = member.poll()
        except FencedInstanceIdError as error:
            self._fenced = error
            raise
        ids = {name: topic.topic_id for name, topic in status.topics.items()}
        return Share(status.assigned, status.revoking, ids, status.generation, status.is_settled)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See `Membership.release`."""
        try:
            self._opened().release(partitions)
        except FencedInstanceIdError as error:
            self._fenced = error
            raise

    def begin(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None] | None:
        """See `Membership.begin`."""
        member = self._member
        if member is None:
            return None
        begun: dict[TopicPartition, int | None] = {}
        try:
            for _ in range(_MOST_BEGINS):
                before = member.poll()
                found = member.begin(partitions)
                begun = {named: each.offset for named, each in found.items()}
                # What has no position and what was taken away look alike, but in one generation.
                if member.poll().generation == before.generation:
                    mine = before.assigned.intersection(partitions)
                    return {named: begun.get(named) for named in mine}
        except UnknownMemberIdError:  # which `share` will tell
            return {}
        return begun

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """See `Membership.commit`."""
        member = self._member
        if member is None or self._told is None:
            raise CommitFailedError(
                f"nothing was committed: this consumer is not in group {self._group_id!r} yet, or "
                f"not any more, and has no partitions; poll first"
            )
        image = self._cluster.image()
        unknown = {named.topic for named in offsets} - topic_ids.keys()
        ids = {name: image.topic(name).topic_id for name in unknown}
        member.commit(offsets, {**ids, **topic_ids})

    def leave(self) -> None:
        """See `Membership.leave`."""
        member, self._member = self._member, None
        self._told, self._fenced = None, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if member is not None:
            member.close()
            self._beats_before += member.heartbeats.total

    def figures(self) -> dict[str, float]:
        """See `Membership.figures`."""
        counts = None if self._member is None else self._member.heartbeats
        last_ms = None if counts is None or not counts.total else counts.last_ms
        return {
            "heartbeat-total": self._beats_before + (counts.total if counts else 0),
            "last-heartbeat-seconds-ago": seconds_since(
                last_ms, self._cluster.clock.monotonic_ms()
            ),
        }

    def _opened(self) -> GroupMember:
        if self._member is None:
            # Only here: deltalake takes a while to import, and many consumers have no group.
            from spark_log.coordinator import OffsetsTable
            from spark_log.coordinator.group.member import GroupMember

            self._member = GroupMember(
                self._cluster,
                self._group_id,
                OffsetsTable(self._cluster),
                config=self._config,
                on_change=self._on_change,
            )
            self._finalizer = weakref.finalize(self, _close_later, self._member, os.getpid())
            self._finalizer.atexit = False  # it expires, as after any other end of a process
        return self._member


def _close_later(member: GroupMember, process: int) -> None:
    """End the thread of a consumer that was dropped; on another one, since this may be any.

    In a process that forked it is not this one's to leave.
    """
    if os.getpid() == process:
        threading.Thread(target=member.close, name="spark-log-group-leaver", daemon=True).start()
