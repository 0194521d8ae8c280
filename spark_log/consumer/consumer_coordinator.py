"""What a consumer reads now: kept in step with the metadata, its position and the fetcher."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from spark_log.config.config import ConsumerConfig, offset_reset
from spark_log.consumer.auto_commit import AutoCommit
from spark_log.consumer.committer import Committer
from spark_log.consumer.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.fetcher import Fetch, Fetcher
from spark_log.consumer.membership import GroupAssignment, Membership
from spark_log.consumer.offset_fetcher import OffsetFetcher
from spark_log.consumer.offset_reset import ResetPolicy
from spark_log.consumer.subscription_state import SubscriptionState, TopicPartitionState
from spark_log.errors import (
    FencedInstanceIdError,
    IllegalStateError,
    LogTruncatedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    nearest,
)
from spark_log.log.partition_directory import LogView
from spark_log.metadata import Cluster
from spark_log.metadata.image import MetadataImage
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)


class ConsumerCoordinator:
    """The assigned partitions of one consumer. For one thread at a time.

    Attributes:
        subscription: topics, a pattern, or partitions, and the state of each assigned partition.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetcher: Fetcher,
        offset_fetcher: OffsetFetcher,
        subscription: SubscriptionState,
        membership: Membership,
        committer: Committer | None,
        auto_commit: AutoCommit,
        metrics: CoordinatorMetrics,
        run_in_caller: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        """Begin with nothing.

        Args:
            cluster: the opened root.
            config: the consumer's.
            fetcher: reads what is assigned.
            offset_fetcher: finds where to begin.
            subscription: see the attribute.
            membership: decides what is assigned of a subscription.
            committer: of the group; None without one.
            auto_commit: commits what is about to be taken away.
            metrics: told of rebalances, and of what a listener takes.
            run_in_caller: runs a listener's method in the thread that polls.
        """
        self._run_in_caller = run_in_caller
        self.subscription = subscription
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._offset_fetcher = offset_fetcher
        self._membership = membership
        self._committer = committer
        self._auto_commit = auto_commit
        self._metrics = metrics
        self._policy = offset_reset(config.auto_offset_reset)
        self._metadata_due_ms = -math.inf
        self._resolve_due_ms = -math.inf
        self._unresolved: set[TopicPartition] = set()
        self._deleted: UnknownTopicOrPartitionError | None = None
        self._missing: frozenset[str] = frozenset()

    # --- what is assigned ------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that are kept go on where they stand.

        Raises:
            IllegalStateError: there is a subscription.
            UnknownTopicOrPartitionError: one of them does not exist; nothing is changed.
        """
        image = self._cluster.image()
        wanted = {}
        for tp in partitions:
            topic = image.topic(tp.topic)
            self._cluster.partition_log(topic, tp.partition)
            wanted[tp] = topic
        self.subscription.assign()
        self._deleted = None
        held = self.subscription.partitions
        for tp in [each for each in held if each not in wanted]:
            self._remove(tp)
        for tp, topic in wanted.items():
            if tp in held and held[tp].topic.topic_id != topic.topic_id:
                self._remove(tp)
            if tp not in held:
                self._add(tp, image)

    def clear(self) -> None:
        """Read nothing, and give up the place in the group."""
        self.leave()
        for tp in list(self.subscription.partitions):
            self._remove(tp)
        self.subscription.clear()
        self._deleted = None

    def leave(self, timeout_ms: float | None = None) -> None:
        """Give up the place in the group, if there is one, and what was shared out.

        A listener is told before, and what was committed until then is awaited.

        Args:
            timeout_ms: how long to wait for commits; None: as long as it takes.
        """
        if not self.subscription.is_subscribed or self._committer is None:
            self._membership.leave()
            return
        held = set(self.subscription.partitions)
        listener = self.subscription.listener
        try:
            if held and listener is not None:
                if self._membership.is_lost():
                    self._tell("lost", listener.on_partitions_lost, held)
                else:
                    self._tell("revoked", listener.on_partitions_revoked, held)
        finally:
            self._committer.wait(timeout_ms)
            for tp in list(self.subscription.partitions):
                self._remove(tp)
            self._membership.leave()

    def request_update(self) -> None:
        """Look at the metadata at the next `update`."""
        self._metadata_due_ms = -math.inf

    def needs_update(self) -> bool:
        """Return whether `update` has something to do; a sign of life, and reads nothing."""
        if self._fetcher.consume_metadata_hint():
            self.request_update()
        now_ms = self._cluster.clock.monotonic_ms()
        return (
            self._membership.poll()
            or now_ms >= self._metadata_due_ms
            or self._deleted is not None
            or (bool(self._unresolved) and now_ms >= self._resolve_due_ms)
        )

    def update(self) -> None:
        """Bring the assignment in step with metadata and group, if it is time; find positions.

        Raises:
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            FencedInstanceIdError: another process has taken this one's place in the group.
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group does not take it in.
            NoOffsetForPartitionError: see `resolve`.
        """
        now_ms = self._cluster.clock.monotonic_ms()
        is_news = self._membership.poll()  # at every call: it is a sign of life
        if self._fetcher.consume_metadata_hint() or is_news or now_ms >= self._metadata_due_ms:
            self._refresh(now_ms)
        if self._deleted is not None:
            raise self._deleted
        if self._unresolved and now_ms >= self._resolve_due_ms:
            try:
                self.resolve()
            except UnknownTopicOrPartitionError:
                self.request_update()  # by which the partition is given up, or this is raised
            except StorageError as error:
                if isinstance(error.__cause__, PermissionError):
                    raise
                _log.warning("where to begin cannot be found just now, trying again: %s", error)
            self._resolve_due_ms = now_ms + self._config.retry_backoff_ms

    def next_update_ms(self) -> float:
        """Return how long until `update` has something to do."""
        due_ms = self._metadata_due_ms
        if self._unresolved:
            due_ms = min(due_ms, self._resolve_due_ms)
        left_ms = max(0.0, due_ms - self._cluster.clock.monotonic_ms())
        return min(left_ms, self._membership.next_poll_ms())

    def _refresh(self, now_ms: float) -> None:
        try:
            image = self._cluster.image()
        except (StorageError, OffsetOutOfRangeError) as error:
            # A root that is not mounted looks like one without records.
            _log.warning("the metadata cannot be read just now, trying again: %s", error)
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
            return
        self._metadata_due_ms = now_ms + self._config.metadata_max_age_ms
        self._renew(image)
        self._fetcher.set_quota(image.client_quota(self._config.client_id).consumer_byte_rate)
        if self.subscription.is_subscribed:
            self._rebalance(image, now_ms)
            return
        partitions = self.subscription.partitions
        gone = {tp for tp, state in partitions.items() if _is_deleted(state, image)}
        if gone:
            self._deleted = _deleted_error(gone, image)

    def _renew(self, image: MetadataImage) -> None:
        """Go by the settings that topics have now: for how long what was listed counts."""
        for tp, state in self.subscription.partitions.items():
            if _is_deleted(state, image):
                continue
            found = image.topic(tp.topic)
            if found.overrides != state.topic.overrides:
                self._offset_fetcher.forget(state.topic, tp.partition)
                state.topic = found
                self._fetcher.update_log(tp, self._cluster.partition_log(found, tp.partition))

    def _rebalance(self, image: MetadataImage, now_ms: float) -> None:
        self._warn_of_missing(image)
        self._metrics.begin_rebalance()
        for _ in range(2):
            try:
                self._apply_assignment(image, now_ms)
            except UnknownMemberIdError as error:
                self._metrics.failed_rebalances += 1
                self._lose_partitions(set(self.subscription.partitions))
                if isinstance(error, FencedInstanceIdError):
                    raise
                _log.warning("joining the group again: %s", error)
                self._membership.leave()
            except BaseException:  # mostly a listener's: the rest is done, or tried again, later
                self._metrics.failed_rebalances += 1
                self.request_update()
                raise
            else:
                return
        self._metadata_due_ms = now_ms + self._config.retry_backoff_ms

    def _apply_assignment(self, image: MetadataImage, now_ms: float) -> None:
        """Stop reading what goes to others, release it, and begin with what is new."""
        partitions = self.subscription.partitions
        exclude = self._config.exclude_internal_topics
        topics = self.subscription.topics(image, exclude_internal=exclude)
        released: frozenset[TopicPartition] = frozenset()
        while True:
            try:
                if released:
                    self._membership.release(released)
                share = self._membership.current_assignment(topics, image)
            except StorageError as error:
                if isinstance(error.__cause__, PermissionError):
                    raise
                _log.warning("the group cannot be changed just now, trying again: %s", error)
                self._metrics.failed_rebalances += 1
                self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
                return
            self._lose_partitions({tp for tp in partitions if self._is_not_in(share, tp, image)})
            released = share.revoking
            if not released:
                break
            self._revoke_partitions(released.intersection(partitions))
        added = {tp for tp in share.assigned if tp not in partitions}
        known = {tp for tp in added if _is_known(tp, share, image)}
        for tp in known:
            self._add(tp, image)
        if known != added:  # this image is older than the group's, or a topic was just deleted
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
        if known and self.subscription.listener is not None:
            self._tell("assigned", self.subscription.listener.on_partitions_assigned, known)
        self._metrics.end_rebalance(share.generation, is_settled=share.is_settled)

    def _is_not_in(self, share: GroupAssignment, tp: TopicPartition, image: MetadataImage) -> bool:
        state = self.subscription.partitions[tp]
        return (
            _is_deleted(state, image)
            or share.topic_ids.get(tp.topic) != state.topic.topic_id
            or not (tp in share.assigned or tp in share.revoking)
        )

    def _revoke_partitions(self, revoked: Collection[TopicPartition]) -> None:
        """Stop reading partitions that may still be committed."""
        if not revoked:
            return
        self._auto_commit.commit_now()
        if self.subscription.listener is not None:
            self._tell("revoked", self.subscription.listener.on_partitions_revoked, set(revoked))
        self._drop(revoked)

    def _lose_partitions(self, lost: Collection[TopicPartition]) -> None:
        """Stop reading partitions that cannot be committed any more."""
        if not lost:
            return
        if self.subscription.listener is not None:
            self._tell("lost", self.subscription.listener.on_partitions_lost, set(lost))
        self._drop(lost)

    def _tell(
        self,
        what: str,
        method: Callable[[set[TopicPartition]], object],
        partitions: set[TopicPartition],
    ) -> None:
        """Call a method of the listener, in the thread that it belongs to."""

        def call() -> None:
            with self._metrics.callbacks[what].measure():
                method(partitions)

        self._run_in_caller(call)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        if self._committer is not None:
            self._committer.wait()  # what is under way counts as long as it has them
        self._auto_commit.forget(partitions)
        for tp in partitions:
            if tp in self.subscription.partitions:  # a listener may have unsubscribed
                self._remove(tp)

    def _warn_of_missing(self, image: MetadataImage) -> None:
        missing = frozenset(
            name for name in self.subscription.named_topics() if image.find(name) is None
        )
        for name in sorted(missing - self._missing):
            near = nearest(name, (topic.name for topic in image.topics()), limit=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            _log.warning("there is no topic %r yet, waiting for it%s", name, hint)
        self._missing = missing

    def _add(self, tp: TopicPartition, image: MetadataImage) -> None:
        self.subscription.partitions[tp] = TopicPartitionState(image.topic(tp.topic))
        self._unresolved.add(tp)
        self._resolve_due_ms = -math.inf

    def _remove(self, tp: TopicPartition) -> None:
        state = self.subscription.partitions.pop(tp)
        self._unresolved.discard(tp)
        self._fetcher.remove(tp)
        self._offset_fetcher.forget(state.topic, tp.partition)

    # --- positions -------------------------------------------------------------------------------

    def resolve(self) -> None:
        """Find where to begin in each partition of which that is not known.

        That is where a seek said, else what the group has committed, else by
        ``auto.offset.reset``. What the group has just taken away stays as it is.

        Raises:
            NoOffsetForPartitionError: that is ``none``, and nothing else says it.
            StorageError: the storage cannot be read; nothing is changed.
        """
        self._offset_fetcher.check_root()  # before and after: what it is not there for looks empty
        partitions = self.subscription.partitions
        asked = {tp for tp in self._unresolved if partitions[tp].reset is None}
        begun = self._begun(asked) if asked else {}
        found = {tp: offset for tp, offset in begun.items() if offset is not None}
        for tp in self._unresolved - found.keys() - (asked - begun.keys()):
            state = partitions[tp]
            policy = state.reset if state.reset is not None else self._policy
            if policy == "none":
                raise NoOffsetForPartitionError(
                    f"nothing says where to begin in {tp}: the consumer has no position, its "
                    f"group committed none, and auto.offset.reset is none; seek, or set that to "
                    f"earliest or latest",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            found[tp] = self._offset_fetcher.reset_offset(state.topic, tp.partition, policy)
        self._offset_fetcher.check_root()
        for tp, offset in found.items():
            self.seek(tp, offset)
            self.subscription.state(tp).is_sought = False

    def _begun(self, asked: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the group's positions, None without one; without what it has taken away."""
        if self._committer is None:
            return dict.fromkeys(asked)
        begun = self._membership.initial_offsets(asked)
        if begun is not None:
            return begun
        committed = self._committer.committed()
        return {tp: committed[tp].offset if tp in committed else None for tp in asked}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at an offset; where it is not in the log, the next read is out of range."""
        state = self.subscription.state(tp)
        is_fetched = state.position is not None and tp not in self._unresolved
        state.position, state.reset = offset, None
        self._unresolved.discard(tp)
        if is_fetched:
            self._fetcher.seek(tp, offset)
            return
        self._fetcher.add(tp, self._cluster.partition_log(state.topic, tp.partition), offset)
        if state.is_paused:
            self._fetcher.pause(tp)

    def reset(self, tp: TopicPartition, policy: ResetPolicy | None) -> None:
        """Go on where a policy says, which is found when it is needed; None: see `resolve`."""
        state = self.subscription.state(tp)
        self._fetcher.remove(tp)
        state.position, state.reset = None, policy
        self._unresolved.add(tp)
        self._resolve_due_ms = -math.inf

    def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record, found if need be; see `resolve`."""
        state = self.subscription.state(tp)
        if state.position is None:
            self.resolve()
        if state.position is None:
            if self._is_of_deleted_topic(tp):
                raise UnknownTopicOrPartitionError(
                    f"topic {tp.topic!r} was deleted; poll to see what this consumer has now",
                    topic=tp.topic,
                )
            raise IllegalStateError(
                f"the group is just taking {tp} away from this consumer; poll to see what it has"
            )
        return state.position

    def pause(self, tp: TopicPartition) -> None:
        """Leave a partition out."""
        self.subscription.state(tp).is_paused = True
        if tp not in self._unresolved:
            self._fetcher.pause(tp)

    def resume(self, tp: TopicPartition) -> None:
        """End a `pause`."""
        self.subscription.state(tp).is_paused = False
        if tp not in self._unresolved:
            self._fetcher.resume(tp)

    # --- reading ---------------------------------------------------------------------------------

    def collect_fetch(self, max_records: int | None, timeout_ms: float) -> Fetch:
        """Return what was fetched; see `Fetcher.collect_fetch`. Positions stay where they are.

        With a failure it is for `recover` to go on.
        """
        return self._fetcher.collect_fetch(max_records, timeout_ms)

    def recover(self, tp: TopicPartition, error: Exception) -> None:
        """Go on with a partition that could not be read.

        One whose position is out of range goes on by ``auto.offset.reset``.

        Raises:
            OffsetOutOfRangeError: that is ``none``.
            LogTruncatedError: what was read or committed lies behind the log's end.
            CorruptRecordError: with file and position.
            StorageError: the storage refuses.
        """
        if isinstance(error, OffsetOutOfRangeError | LogTruncatedError):
            self._out_of_range(tp, error)
        elif self._is_of_deleted_topic(tp):  # whose files vanish one by one
            self.request_update()
            self._fetcher.retry_later(tp, error)
        else:
            raise error

    def _is_of_deleted_topic(self, tp: TopicPartition) -> bool:
        try:
            self._offset_fetcher.check_root()
            is_deleted = _is_deleted(self.subscription.partitions[tp], self._cluster.image())
            self._offset_fetcher.check_root()
        except (StorageError, OffsetOutOfRangeError):
            return False
        return is_deleted

    def advance(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on behind what was handed out."""
        partitions = self.subscription.partitions
        for tp, offset in positions.items():
            state = partitions.get(tp)
            if state is not None:
                state.position, state.is_sought = offset, False

    def _out_of_range(
        self, tp: TopicPartition, error: OffsetOutOfRangeError | LogTruncatedError
    ) -> None:
        state = self.subscription.partitions[tp]
        try:
            # What is being mounted again was empty a moment ago: so all is looked at once more.
            self._offset_fetcher.check_root()
            image = self._cluster.image()
            is_deleted = _is_deleted(state, image)
            view = None if is_deleted else self._offset_fetcher.view(state.topic, tp.partition)
            self._offset_fetcher.check_root()
        except UnknownTopicOrPartitionError as deleted:
            self.request_update()
            self._fetcher.retry_later(tp, deleted)
            return
        except (StorageError, OffsetOutOfRangeError) as missing:
            self._fetcher.retry_later(tp, missing)
            return
        if view is None:
            self.request_update()
            self._fetcher.retry_later(tp, error)
        elif isinstance(error, LogTruncatedError):
            if view.log_end_offset < error.witnessed_offset or state.position is None:
                raise error
            self._fetcher.seek(tp, state.position)
        elif error.offset > view.log_end_offset and not state.is_sought:
            raise _truncated(tp, error.offset, view)
        elif view.log_start_offset <= error.offset <= view.log_end_offset:
            self._fetcher.seek(tp, error.offset)
        elif self._policy == "none":
            raise error
        else:
            _log.warning(
                "%s: %s; going on by auto.offset.reset=%s",
                tp,
                error,
                self._config.auto_offset_reset,
            )
            self.reset(tp, self._policy)


def _truncated(tp: TopicPartition, offset: int, view: LogView) -> LogTruncatedError:
    return LogTruncatedError(
        f"{tp}: the log ends at offset {view.log_end_offset}, but records before {offset} were "
        f"read from it, or {offset} was committed: files were removed. Restore them from a copy; "
        f"or go on with what there is: seek, or set the group's offsets anew",
        path=str(tp),
        log_end_offset=view.log_end_offset,
        witnessed_offset=offset,
    )


def _is_deleted(state: TopicPartitionState, image: MetadataImage) -> bool:
    found = image.find(state.topic.name)
    return found is None or found.topic_id != state.topic.topic_id


def _is_known(tp: TopicPartition, share: GroupAssignment, image: MetadataImage) -> bool:
    found = image.find(tp.topic)
    return (
        found is not None
        and found.topic_id == share.topic_ids.get(tp.topic)
        and tp.partition in found.partitions
    )


def _deleted_error(
    lost: Iterable[TopicPartition], image: MetadataImage
) -> UnknownTopicOrPartitionError:
    name = min(lost).topic
    again = "" if image.find(name) is None else " and created again: assign it again to read it"
    return UnknownTopicOrPartitionError(
        f"topic {name!r} was deleted while it was read{again}", topic=name
    )
