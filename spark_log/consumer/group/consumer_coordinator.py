"""Keeps a consumer's assignment in step with the metadata and with its group."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.group.consumer_group import ConsumerGroup
from spark_log.consumer.group.membership import GroupAssignment
from spark_log.consumer.position import FetchPositions, SubscriptionState, shown_partitions
from spark_log.consumer.rebalance_listener import (
    ConsumerRebalanceListener,
    ConsumerRebalanceListenerInvoker,
)
from spark_log.errors import (
    AuthorizationError,
    FencedInstanceIdError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    nearest,
)
from spark_log.metadata import MetadataImage
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)


class ConsumerCoordinator:
    """Adds and removes assigned partitions, and runs rebalances. For one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        *,
        name: str,
        fetcher: Fetcher,
        positions: FetchPositions,
        subscription: SubscriptionState,
        group: ConsumerGroup,
        listener_invoker: ConsumerRebalanceListenerInvoker,
    ) -> None:
        """Start with no partitions. The name is the consumer's in log lines."""
        self._cluster = cluster
        self._config = config
        self._name = name
        self._fetcher = fetcher
        self._positions = positions
        self._subscription = subscription
        self._membership = group.membership
        self._committer = group.committer
        self._auto_commit = group.auto_commit
        self._metrics = group.metrics
        self._listener_invoker = listener_invoker
        self._metadata_due_ms = -math.inf
        self._deleted: UnknownTopicOrPartitionError | None = None
        self._missing: frozenset[str] = frozenset()

    # --- calls of the user -----------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that stay assigned keep their positions.

        Raises:
            IllegalStateError: the consumer subscribes to topics.
            UnknownTopicOrPartitionError: a partition does not exist; nothing is changed.
        """
        image = self._cluster.image()
        wanted = {}
        for tp in partitions:
            topic = image.topic(tp.topic)
            self._cluster.partition_log(topic, tp.partition)
            wanted[tp] = topic
        self._subscription.assign()
        self._deleted = None
        held = self._subscription.partitions
        for tp in [each for each in held if each not in wanted]:
            self._positions.remove(tp)
        for tp, topic in wanted.items():
            if tp in held and held[tp].topic.topic_id != topic.topic_id:
                self._positions.remove(tp)
            if tp not in held:
                self._positions.add(tp, topic)
        _log.info("%s: reads %s, as assigned by the user", self._name, shown_partitions(wanted))

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        """Read topics, which the next `update` assigns; the errors are those of `Consumer`."""
        self._subscription.subscribe(topics, pattern, listener)
        self.request_update()
        _log.info("%s: subscribed to %s", self._name, self._subscription.describe())

    def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        self.leave()
        for tp in list(self._subscription.partitions):
            self._positions.remove(tp)
        self._subscription.clear()
        self._deleted = None
        _log.info("%s: unsubscribed", self._name)

    def leave(self, timeout_ms: float | None = None) -> None:
        """Leave the group, if the consumer is a member, and give up its partitions.

        Before that, calls the listener and waits for the commits that were begun.

        Args:
            timeout_ms: the maximum time to wait for commits; None for no limit.
        """
        if not self._subscription.is_subscribed or self._committer is None:
            self._membership.leave()
            return
        held = set(self._subscription.partitions)
        listener = self._subscription.listener
        try:
            if held and listener is not None:
                if self._membership.is_lost():
                    self._listener_invoker.lost(listener, held)
                else:
                    self._listener_invoker.revoked(listener, held)
        finally:
            self._committer.wait(timeout_ms)
            for tp in list(self._subscription.partitions):
                self._positions.remove(tp)
            self._membership.leave()

    # --- steps of a poll -------------------------------------------------------------------------

    def request_update(self) -> None:
        """Read the metadata in the next `update`."""
        self._metadata_due_ms = -math.inf

    def needs_update(self) -> bool:
        """Return whether `update` has something to do.

        Tells the group that the consumer polls, and reads nothing from the storage.
        """
        if self._fetcher.consume_metadata_hint():
            self.request_update()
        now_ms = self._cluster.clock.monotonic_ms()
        return (
            self._membership.poll()
            or now_ms >= self._metadata_due_ms
            or self._deleted is not None
            or self._positions.needs_resolve(now_ms)
        )

    def update(self) -> None:
        """Update the assignment from metadata and group if due, and find missing positions.

        Raises:
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            FencedInstanceIdError: another process took over the ``group.instance.id``.
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group refuses the consumer.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
        """
        now_ms = self._cluster.clock.monotonic_ms()
        is_changed = self._membership.poll()  # in every call, so that the group sees the poll
        if self._fetcher.consume_metadata_hint() or is_changed or now_ms >= self._metadata_due_ms:
            self._refresh(now_ms)
        if self._deleted is not None:
            raise self._deleted
        if not self._positions.resolve_if_due(now_ms):
            self.request_update()  # it removes the deleted topic's partitions, or reports them

    def recover(self, tp: TopicPartition, error: Exception) -> None:
        """Continue a partition after a failed read, as `FetchPositions.recover` does."""
        if not self._positions.recover(tp, error):
            self.request_update()

    def next_update_ms(self) -> float:
        """Return the milliseconds until `update` has something to do."""
        due_ms = min(self._metadata_due_ms, self._positions.resolve_due_ms())
        left_ms = max(0.0, due_ms - self._cluster.clock.monotonic_ms())
        return min(left_ms, self._membership.next_poll_ms())

    def _refresh(self, now_ms: float) -> None:
        try:
            image = self._cluster.image()
        except (StorageError, OffsetOutOfRangeError) as error:
            # An unmounted root looks like one without records.
            _log.warning("the metadata cannot be read, retrying: %s", error)
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
            return
        self._metadata_due_ms = now_ms + self._config.metadata_max_age_ms
        self._update_topics(image)
        self._fetcher.set_quota(image.client_quota(self._config.client_id).consumer_byte_rate)
        if self._subscription.is_subscribed:
            self._rebalance(image, now_ms)
            return
        partitions = self._subscription.partitions
        deleted = {tp for tp, state in partitions.items() if state.is_deleted(image)}
        if deleted:
            self._deleted = _deleted_error(deleted, image)

    def _update_topics(self, image: MetadataImage) -> None:
        """Read partitions by the current settings of their topics."""
        for tp, state in self._subscription.partitions.items():
            if state.is_deleted(image):
                continue
            topic = image.topic(tp.topic)
            if not topic.has_same_logs(state.topic):
                self._positions.update_topic(tp, topic)

    # --- rebalances ------------------------------------------------------------------------------

    def _rebalance(self, image: MetadataImage, now_ms: float) -> None:
        self._warn_of_missing(image)
        self._metrics.begin_rebalance()
        for _ in range(2):
            try:
                self._apply_assignment(image, now_ms)
            except UnknownMemberIdError as error:
                self._metrics.failed_rebalances += 1
                self._lose_partitions(set(self._subscription.partitions))
                if isinstance(error, FencedInstanceIdError):
                    raise
                _log.warning("joining the group again: %s", error)
                self._membership.leave()
            except (
                BaseException
            ):  # mostly raised by a listener: a later poll continues the rebalance
                self._metrics.failed_rebalances += 1
                self.request_update()
                raise
            else:
                return
        self._metadata_due_ms = now_ms + self._config.retry_backoff_ms

    def _apply_assignment(self, image: MetadataImage, now_ms: float) -> None:
        """Stop reading revoked partitions, release them, and start to read new ones."""
        partitions = self._subscription.partitions
        exclude = self._config.exclude_internal_topics
        topics = self._subscription.topics(image, exclude_internal=exclude)
        released: frozenset[TopicPartition] = frozenset()
        while True:
            try:
                if released:
                    self._membership.release(released)
                assignment = self._membership.current_assignment(topics, image)
            except AuthorizationError:
                raise
            except StorageError as error:
                _log.warning("the group cannot be read or changed, retrying: %s", error)
                self._metrics.failed_rebalances += 1
                self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
                return
            self._lose_partitions({tp for tp in partitions if self._is_lost(assignment, tp, image)})
            released = assignment.revoking
            if not released:
                break
            self._revoke_partitions(released.intersection(partitions))
        added = {tp for tp in assignment.assigned if tp not in partitions}
        known = {tp for tp in added if _is_known(tp, assignment, image)}
        for tp in known:
            self._positions.add(tp, image.topic(tp.topic))
        if known != added:  # this image is older than the group's, or a topic was just deleted
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
        if known:
            _log.info("%s: assigned %s", self._name, shown_partitions(known))
            self._listener_invoker.assigned(self._subscription.listener, known)
        _log.debug(
            "%s: has %d partitions in generation %d%s",
            self._name,
            len(partitions),
            assignment.generation,
            "" if assignment.is_settled else "; partitions of the group are still moving",
        )
        self._metrics.end_rebalance(assignment.generation, is_settled=assignment.is_settled)

    def _is_lost(
        self, assignment: GroupAssignment, tp: TopicPartition, image: MetadataImage
    ) -> bool:
        """Return whether a partition that is read now is neither assigned nor being revoked."""
        state = self._subscription.partitions[tp]
        return (
            state.is_deleted(image)
            or assignment.topic_ids.get(tp.topic) != state.topic.topic_id
            or not (tp in assignment.assigned or tp in assignment.revoking)
        )

    def _revoke_partitions(self, revoked: Collection[TopicPartition]) -> None:
        """Stop reading partitions that can still be committed."""
        if revoked:
            _log.info("%s: revoked %s", self._name, shown_partitions(revoked))
            self._auto_commit.commit_now()
            self._listener_invoker.revoked(self._subscription.listener, revoked)
            self._drop(revoked)

    def _lose_partitions(self, lost: Collection[TopicPartition]) -> None:
        """Stop reading partitions that cannot be committed any more."""
        if lost:
            _log.info("%s: lost %s", self._name, shown_partitions(lost))
            self._listener_invoker.lost(self._subscription.listener, lost)
            self._drop(lost)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        if self._committer is not None:
            self._committer.wait()  # commits under way are valid until the partitions are released
        self._auto_commit.forget(partitions)
        for tp in partitions:
            if tp in self._subscription.partitions:  # a listener may have unsubscribed
                self._positions.remove(tp)

    def _warn_of_missing(self, image: MetadataImage) -> None:
        missing = frozenset(
            name for name in self._subscription.named_topics() if image.find(name) is None
        )
        for name in sorted(missing - self._missing):
            near = nearest(name, (topic.name for topic in image.topics()), limit=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            _log.warning("there is no topic %r yet, waiting for it%s", name, hint)
        self._missing = missing


def _is_known(tp: TopicPartition, assignment: GroupAssignment, image: MetadataImage) -> bool:
    found = image.find(tp.topic)
    return (
        found is not None
        and found.topic_id == assignment.topic_ids.get(tp.topic)
        and tp.partition in found.partitions
    )


def _deleted_error(
    deleted: Iterable[TopicPartition], image: MetadataImage
) -> UnknownTopicOrPartitionError:
    name = min(deleted).topic
    again = "" if image.find(name) is None else " and created again; assign it again to read it"
    return UnknownTopicOrPartitionError(
        f"topic {name!r} was deleted while this consumer read it{again}", topic=name
    )
