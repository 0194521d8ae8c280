"""Positions of the assigned partitions: initial positions, seeks, and recovery of failed reads."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig, offset_reset
from spark_log.consumer.fetch import Fetcher
from spark_log.consumer.position.offset_fetcher import OffsetFetcher
from spark_log.consumer.position.offset_reset import ResetPolicy, log_truncated
from spark_log.consumer.position.subscription_state import SubscriptionState, TopicPartitionState
from spark_log.errors import (
    AuthorizationError,
    IllegalStateError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ReplicationError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from spark_log.log import Lag
from spark_log.metadata import TopicImage
from spark_log.types import TopicPartition

CommittedOffsets = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int | None]]
"""A function that returns the group's committed offsets of partitions: None without one. Partitions
that the group is revoking are missing."""

_log = logging.getLogger(__name__)


class FetchPositions:
    """Keeps the positions in the `SubscriptionState` and the `Fetcher` in step.

    A partition without a position is *unresolved*: `resolve` finds its position, and only then the
    fetcher reads it. For one thread at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        *,
        fetcher: Fetcher,
        offset_fetcher: OffsetFetcher,
        subscription: SubscriptionState,
        committed_offsets: CommittedOffsets | None = None,
    ) -> None:
        """Start with no partitions. Without a group there is no lookup of committed offsets."""
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._offset_fetcher = offset_fetcher
        self._subscription = subscription
        self._committed_offsets = committed_offsets or _no_offsets
        self._policy = offset_reset(config.auto_offset_reset)
        self._unresolved: set[TopicPartition] = set()
        self._resolve_due_ms = -math.inf

    def add(self, tp: TopicPartition, topic: TopicImage) -> None:
        """Assign a partition; its position is found by the next `resolve_if_due`."""
        self._subscription.partitions[tp] = TopicPartitionState(topic)
        self._unresolved.add(tp)
        self._resolve_due_ms = -math.inf

    def remove(self, tp: TopicPartition) -> None:
        """Stop reading a partition."""
        state = self._subscription.partitions.pop(tp)
        self._unresolved.discard(tp)
        self._fetcher.remove(tp)
        self._offset_fetcher.forget(state.topic, tp.partition)

    def update_topic(self, tp: TopicPartition, topic: TopicImage) -> None:
        """Read a partition by its topic's new settings: they decide how long a listing is valid.

        Args:
            tp: an assigned partition.
            topic: the partition's topic, with other settings than before.
        """
        state = self._subscription.partitions[tp]
        self._offset_fetcher.forget(state.topic, tp.partition)
        state.topic = topic
        self._fetcher.update_log(tp, self._cluster.partition_log(topic, tp.partition))

    # --- calls of the user -----------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at an offset. If the log does not contain it, the next read is out of range.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        self._start(tp, offset)
        self._subscription.state(tp).is_sought = True
        _log.debug("%s: seek to offset %d", tp, offset)

    def reset(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> None:
        """Continue at the offset of a reset policy, which the next `resolve` finds.

        Raises:
            IllegalStateError: a partition is not assigned; nothing is changed.
        """
        self._check_assigned(partitions)
        for tp in partitions:
            self._reset(tp, policy)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`.

        Raises:
            IllegalStateError: a partition is not assigned; nothing is changed.
        """
        self._check_assigned(partitions)
        for tp in partitions:
            self._subscription.state(tp).is_paused = True
            if tp not in self._unresolved:
                self._fetcher.pause(tp)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned; nothing is changed.
        """
        self._check_assigned(partitions)
        for tp in partitions:
            self._subscription.state(tp).is_paused = False
            if tp not in self._unresolved:
                self._fetcher.resume(tp)

    def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record; find it if necessary.

        Raises:
            IllegalStateError: the partition is not assigned, or is being revoked.
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            UnknownTopicOrPartitionError: the topic was deleted.
            UnstableOffsetCommitError: a transaction that commits an offset is not decided.
            StorageError: the storage cannot be read.
        """
        state = self._subscription.state(tp)
        if state.position is None:
            try:
                self.resolve()
            except SparkLogError:
                if state.position is None:
                    raise
        if state.position is None:
            if self._is_of_deleted_topic(tp):
                raise UnknownTopicOrPartitionError(
                    f"topic {tp.topic!r} was deleted; call poll() to update the assignment",
                    topic=tp.topic,
                )
            raise IllegalStateError(
                f"the group is revoking {tp} from this consumer; call poll() to update the "
                f"assignment"
            )
        return state.position

    def lag(self, partitions: Collection[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the number of offsets between position and current end, by partition.

        Args:
            partitions: the partitions; empty for all assigned partitions.

        Raises:
            SparkLogError: the errors of `position`.
        """
        chosen = partitions or list(self._subscription.partitions)
        positions = {tp: self.position(tp) for tp in chosen}
        bounds = self._offset_fetcher.bounds(chosen)
        return {tp: Lag.of(positions[tp], *bounds[tp]).unread for tp in chosen}

    # --- returned records ------------------------------------------------------------------------

    def advance(self, positions: Mapping[TopicPartition, int]) -> None:
        """Move positions past the records that were returned."""
        for tp, offset in positions.items():
            self.advance_to(tp, offset)

    def advance_to(self, tp: TopicPartition, offset: int) -> None:
        """Move one position past the records that were returned."""
        state = self._subscription.partitions.get(tp)
        if state is not None:
            state.position, state.is_sought = offset, False

    def rewind(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch again from the positions: the rows fetched after them were not returned."""
        for tp in partitions:
            state = self._subscription.partitions.get(tp)
            if state is not None and state.position is not None:
                self._start(tp, state.position)

    # --- initial positions -----------------------------------------------------------------------

    def needs_resolve(self, now_ms: float) -> bool:
        """Return whether a partition has no position and the last attempt is long enough ago."""
        return bool(self._unresolved) and now_ms >= self._resolve_due_ms

    def resolve_due_ms(self) -> float:
        """Return the monotonic time of the next attempt to find positions, infinity if none."""
        return self._resolve_due_ms if self._unresolved else math.inf

    def resolve_if_due(self, now_ms: float) -> bool:
        """Find missing positions, at most once per ``retry.backoff.ms``. A failed read is logged.

        Returns:
            False if a topic was deleted, so that the metadata has to be read again.

        Raises:
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            StorageError: access to the storage is denied.
        """
        if not self.needs_resolve(now_ms):
            return True
        is_known = True
        try:
            self.resolve()
        except UnknownTopicOrPartitionError:
            is_known = False
        except AuthorizationError:
            raise
        except (StorageError, ReplicationError) as error:
            _log.warning("the start offsets cannot be read, retrying: %s", error)
        except UnstableOffsetCommitError as error:
            _log.info("waiting for a transaction: %s", error)
        self._resolve_due_ms = now_ms + self._config.retry_backoff_ms
        return is_known

    def resolve(self) -> None:
        """Find the positions of all unresolved partitions.

        A position is the target of a seek, or else the committed offset, or else the offset of
        ``auto.offset.reset``. Partitions that the group is revoking stay unresolved.

        Raises:
            NoOffsetForPartitionError: no offset is committed, and ``auto.offset.reset`` is
                ``none``.
            UnknownTopicOrPartitionError: a topic was deleted.
            UnstableOffsetCommitError: a transaction that commits one of them is not decided.
            LeaderNotAvailableError, StorageError: a partition cannot be read, and the others have
                got their positions; or the root or the group cannot be read.
        """
        # An unmounted root looks like one without records.
        check_root = self._offset_fetcher.check_root_beside()
        partitions = self._subscription.partitions
        topics = {tp: partitions[tp].topic for tp in self._unresolved}
        asked = {tp for tp in self._unresolved if partitions[tp].reset is None}
        listed = self._offset_fetcher.views_beside(topics)
        try:
            committed = self._committed_offsets(asked) if asked else {}
        finally:
            views = listed()
        found = {tp: offset for tp, offset in committed.items() if offset is not None}
        policies: dict[TopicPartition, ResetPolicy] = {}
        for tp in self._unresolved - found.keys() - (asked - committed.keys()):
            reset = partitions[tp].reset
            policies[tp] = self._policy if reset is None else reset
        missing = {tp: topics[tp] for tp in policies}
        answers = self._offset_fetcher.reset_offsets(missing, policies, views)
        check_root()
        failed = [each for each in answers.values() if isinstance(each, SparkLogError)]
        found |= {tp: each for tp, each in answers.items() if isinstance(each, int)}
        for tp, offset in found.items():
            self._start(tp, offset)
            self._subscription.state(tp).is_sought = False
            _log.debug("%s: starts at offset %d (%s)", tp, offset, policies.get(tp, "committed"))
        if failed:
            error = min(failed, key=_patience)
            raise error from error.__cause__

    # --- failed reads ----------------------------------------------------------------------------

    def recover(self, tp: TopicPartition, error: Exception) -> bool:
        """Continue a partition after a failed read.

        If the position is out of range, ``auto.offset.reset`` gives the next one.

        Returns:
            False if the topic was deleted, so that the metadata has to be read again.

        Raises:
            OffsetOutOfRangeError: ``auto.offset.reset`` is ``none``.
            LogTruncatedError: offsets that were read or committed lie after the log's end.
            CorruptRecordError: stored bytes are damaged; has the file and the position in it.
            StorageError: access to the storage is denied.
        """
        if isinstance(error, OffsetOutOfRangeError | LogTruncatedError):
            return self._recover_out_of_range(tp, error)
        if not self._is_of_deleted_topic(tp):
            raise error
        self._fetcher.retry_later(tp, error)  # the files of the topic disappear one by one
        return False

    def _is_of_deleted_topic(self, tp: TopicPartition) -> bool:
        """Return whether the topic was deleted; False if the metadata cannot be read."""
        try:
            self._offset_fetcher.check_root()
            deleted = self._subscription.partitions[tp].is_deleted(self._cluster.image())
            self._offset_fetcher.check_root()
        except (StorageError, OffsetOutOfRangeError):
            return False
        return deleted

    def _recover_out_of_range(
        self, tp: TopicPartition, error: OffsetOutOfRangeError | LogTruncatedError
    ) -> bool:
        state = self._subscription.partitions[tp]
        try:
            # All is read once more: a root that is being mounted was empty a moment ago.
            self._offset_fetcher.check_root()
            is_deleted = state.is_deleted(self._cluster.image())
            view = None if is_deleted else self._offset_fetcher.view(state.topic, tp.partition)
            self._offset_fetcher.check_root()
        except UnknownTopicOrPartitionError as deleted:
            self._fetcher.retry_later(tp, deleted)
            return False
        except (StorageError, OffsetOutOfRangeError) as missing:
            self._fetcher.retry_later(tp, missing)
            return True
        if view is None:
            self._fetcher.retry_later(tp, error)
            return False
        if isinstance(error, LogTruncatedError):
            if view.log_end_offset < error.witnessed_offset or state.position is None:
                raise error
            self._fetcher.seek(tp, state.position)
        elif error.offset > view.log_end_offset and not state.is_sought:
            raise log_truncated(tp, error.offset, view)
        elif view.log_start_offset <= error.offset <= view.log_end_offset:
            self._fetcher.seek(tp, error.offset)
        elif self._policy == "none":
            raise error
        else:
            _log.warning(
                "%s: %s; resetting the position by auto.offset.reset=%s",
                tp,
                error,
                self._config.auto_offset_reset,
            )
            self._reset(tp, self._policy)
        return True

    # --- the fetcher -----------------------------------------------------------------------------

    def _start(self, tp: TopicPartition, offset: int) -> None:
        """Set a position, and let the fetcher continue or begin there."""
        state = self._subscription.state(tp)
        is_fetched = state.position is not None and tp not in self._unresolved
        state.position, state.reset = offset, None
        self._unresolved.discard(tp)
        if is_fetched:
            self._fetcher.seek(tp, offset)
            return
        log = self._offset_fetcher.take_log(state.topic, tp.partition)
        self._fetcher.add(tp, log, offset)
        if state.is_paused:
            self._fetcher.pause(tp)

    def _reset(self, tp: TopicPartition, policy: ResetPolicy) -> None:
        """Stop reading a partition until `resolve` has found the offset of a reset policy."""
        state = self._subscription.state(tp)
        self._fetcher.remove(tp)
        state.position, state.reset = None, policy
        self._unresolved.add(tp)
        self._resolve_due_ms = -math.inf

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._subscription.state(tp)


def _no_offsets(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
    return dict.fromkeys(partitions)


def _patience(error: SparkLogError) -> int:
    """Return the rank of an error to raise first: errors that may pass by themselves come last."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return 0
    return 1 + isinstance(error, StorageError | ReplicationError) + error.retriable
