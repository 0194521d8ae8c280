"""The membership of a consumer in a group: a `GroupMember` as a `ConsumerMembership`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Set
from typing import TYPE_CHECKING

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.group.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.group.membership import GroupAssignment
from spark_log.consumer.latency import seconds_since
from spark_log.errors import CommitFailedError, FencedInstanceIdError, UnknownMemberIdError
from spark_log.metadata import MetadataImage
from spark_log.threads import call_beside
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.coordinator import GroupMember, MemberStatus, OffsetsTable

_POLLS_PER_INTERVAL = 3


class GroupMembership:
    """A `ConsumerMembership` in a group. The first `current_assignment` joins the group.

    `GroupMember` may read a newer generation at any time; `poll` reports it, and only
    `current_assignment` makes it the consumer's generation. No partition is therefore released
    before the consumer was told to stop reading it.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        config: ConsumerConfig,
        on_change: Callable[[], None],
        metrics: CoordinatorMetrics | None = None,
    ) -> None:
        """Prepare; accesses no storage.

        Args:
            cluster: the opened root.
            group_id: the group's id.
            config: the consumer's config.
            on_change: the function that is called on another thread when `poll` would return True.
            metrics: the metrics that record the joins.
        """
        self._cluster = cluster
        self._group_id = group_id
        self._config = config
        self._on_change = on_change
        self._metrics = metrics or CoordinatorMetrics(cluster.clock.monotonic_ms)
        self._past_heartbeats = 0
        self._member: GroupMember | None = None
        self._table: OffsetsTable
        self._topics: frozenset[str] = frozenset()
        self._known_status: MemberStatus | None = None
        self._fenced: FencedInstanceIdError | None = None
        self._finalizer: weakref.finalize[..., GroupMembership] | None = None

    def poll(self) -> bool:
        """Return whether `current_assignment` would return or raise something new.

        Tells the group that the consumer polls, and reads nothing from the storage.
        """
        if self._member is None:
            return False
        try:
            return self._member.poll() != self._known_status
        except UnknownMemberIdError:
            return True

    def is_lost(self) -> bool:
        """Return whether the consumer is no member any more, and lost its partitions."""
        if self._member is None or self._fenced is not None:
            return True
        try:
            self._member.poll()
        except UnknownMemberIdError:
            return True
        return False

    def next_poll_ms(self) -> float:
        """Return a third of ``max.poll.interval.ms``."""
        return self._config.max_poll_interval_ms / _POLLS_PER_INTERVAL

    def current_assignment(self, topics: Set[str], image: MetadataImage) -> GroupAssignment:
        """Return the assignment; join the group, or change the subscription, if necessary.

        The image is not used: the group's coordinator reads the metadata itself.
        """
        if self._fenced is not None:
            raise self._fenced
        try:
            member = self._open_member()
            if self._known_status is None or self._topics != topics:
                with self._metrics.joins.measure():
                    if self._known_status is None and not self._cluster.store.is_local:
                        call_beside(self._table.refresh)  # it is read after the join
                    member.join(topics)
                self._topics = frozenset(topics)
            status = self._known_status = member.poll()
        except FencedInstanceIdError as error:
            self._fenced = error
            raise
        return GroupAssignment(
            status.assigned,
            status.revoking,
            {name: topic.topic_id for name, topic in status.topics.items()},
            status.generation,
            status.is_settled,
        )

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up revoked partitions, which are not read any more and whose commits are done."""
        try:
            self._open_member().release(partitions)
        except FencedInstanceIdError as error:
            self._fenced = error
            raise

    def initial_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | None] | None:
        """Return the committed offsets at which to start newly assigned partitions."""
        if self._member is None:
            return None
        try:
            return self._member.begin(partitions)
        except UnknownMemberIdError:  # `current_assignment` will raise it
            return {}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit offsets of assigned or revoked partitions, all or none."""
        member = self._member
        if member is None or self._known_status is None:
            raise CommitFailedError(
                f"nothing was committed: this consumer is not a member of group "
                f"{self._group_id!r} and has no partitions; call poll() to join the group"
            )
        unknown = {tp.topic for tp in offsets} - topic_ids.keys()
        if unknown:
            image = self._cluster.image()
            topic_ids = {**{name: image.topic(name).topic_id for name in unknown}, **topic_ids}
        member.commit(offsets, topic_ids)

    def leave(self) -> None:
        """Leave the group; does nothing if already left. A static member's place is kept."""
        member, self._member = self._member, None
        self._known_status, self._fenced = None, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if member is not None:
            member.close()
            self._past_heartbeats += member.heartbeats.total

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of the member in the generation that the consumer knows."""
        status, instance_id = self._known_status, self._config.group_instance_id
        if status is None:
            return ConsumerGroupMetadata(self._group_id, group_instance_id=instance_id)
        return ConsumerGroupMetadata(
            self._group_id, status.generation, status.member_id, instance_id
        )

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the heartbeats, by Kafka's names."""
        member = self._member  # any thread may read the metrics
        counts = None if member is None else member.heartbeats
        last_ms = None if counts is None or not counts.total else counts.last_ms
        return {
            "heartbeat-total": self._past_heartbeats + (counts.total if counts else 0),
            "last-heartbeat-seconds-ago": seconds_since(
                last_ms, self._cluster.clock.monotonic_ms()
            ),
        }

    def _open_member(self) -> GroupMember:
        if self._member is None:
            # A late import: deltalake takes long to import, and many consumers have no group.
            from spark_log.coordinator import GroupMember, OffsetsTable, TransactionalOffsets

            table = self._table = OffsetsTable(self._cluster)
            self._member = GroupMember(
                self._cluster,
                self._group_id,
                table,
                settle=TransactionalOffsets(self._cluster, table).settle,
                config=self._config,
                on_change=self._on_change,
            )
            self._finalizer = weakref.finalize(self, _close_later, self._member, os.getpid())
            # At exit the member is not closed: it expires, as after any other end of a process.
            self._finalizer.atexit = False
        return self._member


def _close_later(member: GroupMember, process: int) -> None:
    """End the thread of a consumer that was garbage-collected without `Consumer.close`.

    Uses another thread, because the garbage collector may run on any thread. Does nothing in a
    forked process, in which the member belongs to the parent.
    """
    if os.getpid() == process:
        threading.Thread(target=member.close, name="spark-log-group-leaver", daemon=True).start()
