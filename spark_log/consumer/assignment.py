"""What a consumer reads now: kept in step with the metadata, its position and the fetcher."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from spark_log.config import ConsumerConfig, offset_reset
from spark_log.consumer.auto_commit import AutoCommit
from spark_log.consumer.committer import Committer
from spark_log.consumer.coordinator_metrics import CoordinatorMetrics
from spark_log.consumer.fetcher import Fetcher, Taken
from spark_log.consumer.log_lookup import LogLookup
from spark_log.consumer.membership import Membership, Share
from spark_log.consumer.offset_reset import ResetPolicy
from spark_log.consumer.subscription import AssignedPartition, Subscription
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


class Assignment:
    """The assigned partitions of one consumer. For one thread at a time.

    Attributes:
        subscription: topics, a pattern, or partitions, and the state of each assigned partition.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetcher: Fetcher,
        lookup: LogLookup,
        subscription: Subscription,
        membership: Membership,
        committer: Committer | None,
        auto_commit: AutoCommit,
        metrics: CoordinatorMetrics,
        in_caller: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> None:
        """Begin with nothing.

        Args:
            cluster: the opened root.
            config: the consumer's.
            fetcher: reads what is assigned.
            lookup: finds where to begin.
            subscription: see the attribute.
            membership: decides what is assigned of a subscription.
            committer: of the group; None without one.
            auto_commit: commits what is about to be taken away.
            metrics: told of rebalances, and of what a listener takes.
            in_caller: runs a listener's method in the thread that polls.
        """
        self._in_caller = in_caller
        self.subscription = subscription
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._lookup = lookup
        self._membership = membership
        self._committer = committer
        self._auto_commit = auto_commit
        self._metrics = metrics
        self._policy = offset_reset(config.auto_offset_reset)
        self._metadata_due_ms = -math.inf
        self._resolve_due_ms = -math.inf
        self._unresolved: set[TopicPartition] = set()
        self._gone: UnknownTopicOrPartitionError | None = None
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
        for named in partitions:
            topic = image.topic(named.topic)
            self._cluster.partition_log(topic, named.partition)
            wanted[named] = topic
        self.subscription.assign()
        self._gone = None
        held = self.subscription.partitions
        for named in [each for each in held if each not in wanted]:
            self._remove(named)
        for named, topic in wanted.items():
            if named in held and held[named].topic.topic_id != topic.topic_id:
                self._remove(named)
            if named not in held:
                self._add(named, image)

    def clear(self) -> None:
        """Read nothing, and give up the place in the group."""
        self.leave()
        for named in list(self.subscription.partitions):
            self._remove(named)
        self.subscription.clear()
        self._gone = None

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
            for named in list(self.subscription.partitions):
                self._remove(named)
            self._membership.leave()

    def request_update(self) -> None:
        """Look at the metadata at the next `update`."""
        self._metadata_due_ms = -math.inf

    def needs_update(self) -> bool:
        """Return whether `update` has something to do; a sign of life, and reads nothing."""
        if self._fetcher.take_notice():
            self.request_update()
        now_ms = self._cluster.clock.monotonic_ms()
        return (
            self._membership.has_news()
            or now_ms >= self._metadata_due_ms
            or self._gone is not None
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
        is_news = self._membership.has_news()  # at every call: it is a sign of life
        if self._fetcher.take_notice() or is_news or now_ms >= self._metadata_due_ms:
            self._refresh(now_ms)
        if self._gone is not None:
            raise self._gone
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
        self._fetcher.keep_quota(image.client_quota(self._config.client_id).consumer_byte_rate)
        if self.subscription.is_subscribed:
            self._rebalance(image, now_ms)
            return
        partitions = self.subscription.partitions
        gone = {named for named, state in partitions.items() if _is_gone(state, image)}
        if gone:
            self._gone = _gone_error(gone, image)

    def _renew(self, image: MetadataImage) -> None:
        """Go by the settings that topics have now: for how long what was listed counts."""
        for named, state in self.subscription.partitions.items():
            if _is_gone(state, image):
                continue
            found = image.topic(named.topic)
            if found.overrides != state.topic.overrides:
                self._lookup.forget(state.topic, named.partition)
                state.topic = found
                self._fetcher.renew(named, self._cluster.partition_log(found, named.partition))

    def _rebalance(self, image: MetadataImage, now_ms: float) -> None:
        self._warn_of_missing(image)
        self._metrics.begin_rebalance()
        for _ in range(2):
            try:
                self._take_share(image, now_ms)
            except UnknownMemberIdError as error:
                self._metrics.failed_rebalances += 1
                self._lose(set(self.subscription.partitions))
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

    def _take_share(self, image: MetadataImage, now_ms: float) -> None:
        """Stop reading what goes to others, release it, and begin with what is new."""
        partitions = self.subscription.partitions
        exclude = self._config.exclude_internal_topics
        topics = self.subscription.topics(image, exclude_internal=exclude)
        released: frozenset[TopicPartition] = frozenset()
        while True:
            try:
                if released:
                    self._membership.release(released)
                share = self._membership.share(topics, image)
            except StorageError as error:
                if isinstance(error.__cause__, PermissionError):
                    raise
                _log.warning("the group cannot be changed just now, trying again: %s", error)
                self._metrics.failed_rebalances += 1
                self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
                return
            self._lose({named for named in partitions if self._is_not_in(share, named, image)})
            released = share.revoking
            if not released:
                break
            self._revoke(released.intersection(partitions))
        added = {named for named in share.assigned if named not in partitions}
        known = {named for named in added if _is_known(named, share, image)}
        for named in known:
            self._add(named, image)
        if known != added:  # this image is older than the group's, or a topic was just deleted
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
        if known and self.subscription.listener is not None:
            self._tell("assigned", self.subscription.listener.on_partitions_assigned, known)
        self._metrics.end_rebalance(share.generation, is_settled=share.is_settled)

    def _is_not_in(self, share: Share, named: TopicPartition, image: MetadataImage) -> bool:
        state = self.subscription.partitions[named]
        return (
            _is_gone(state, image)
            or share.topic_ids.get(named.topic) != state.topic.topic_id
            or not (named in share.assigned or named in share.revoking)
        )

    def _revoke(self, revoked: Collection[TopicPartition]) -> None:
        """Stop reading partitions that may still be committed."""
        if not revoked:
            return
        self._auto_commit.commit_now()
        if self.subscription.listener is not None:
            self._tell("revoked", self.subscription.listener.on_partitions_revoked, set(revoked))
        self._drop(revoked)

    def _lose(self, lost: Collection[TopicPartition]) -> None:
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
            with self._metrics.callbacks[what].timed():
                method(partitions)

        self._in_caller(call)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        if self._committer is not None:
            self._committer.wait()  # what is under way counts as long as it has them
        self._auto_commit.note(partitions)
        for named in partitions:
            if named in self.subscription.partitions:  # a listener may have unsubscribed
                self._remove(named)

    def _warn_of_missing(self, image: MetadataImage) -> None:
        missing = frozenset(
            name for name in self.subscription.named_topics() if image.find(name) is None
        )
        for name in sorted(missing - self._missing):
            near = nearest(name, (topic.name for topic in image.topics()), limit=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            _log.warning("there is no topic %r yet, waiting for it%s", name, hint)
        self._missing = missing

    def _add(self, named: TopicPartition, image: MetadataImage) -> None:
        self.subscription.partitions[named] = AssignedPartition(image.topic(named.topic))
        self._unresolved.add(named)
        self._resolve_due_ms = -math.inf

    def _remove(self, named: TopicPartition) -> None:
        state = self.subscription.partitions.pop(named)
        self._unresolved.discard(named)
        self._fetcher.remove(named)
        self._lookup.forget(state.topic, named.partition)

    # --- positions -------------------------------------------------------------------------------

    def resolve(self) -> None:
        """Find where to begin in each partition of which that is not known.

        That is where a seek said, else what the group has committed, else by
        ``auto.offset.reset``. What the group has just taken away stays as it is.

        Raises:
            NoOffsetForPartitionError: that is ``none``, and nothing else says it.
            StorageError: the storage cannot be read; nothing is changed.
        """
        self._lookup.check_root()  # before and after: what it is not there for looks empty
        partitions = self.subscription.partitions
        asked = {named for named in self._unresolved if partitions[named].reset is None}
        begun = self._begun(asked) if asked else {}
        found = {named: offset for named, offset in begun.items() if offset is not None}
        for named in self._unresolved - found.keys() - (asked - begun.keys()):
            state = partitions[named]
            policy = state.reset if state.reset is not None else self._policy
            if policy == "none":
                raise NoOffsetForPartitionError(
                    f"nothing says where to begin in {named}: the consumer has no position, its "
                    f"group committed none, and auto.offset.reset is none; seek, or set that to "
                    f"earliest or latest",
                    topic=named.topic,
                    partition=named.partition,
                )
            found[named] = self._lookup.reset(state.topic, named.partition, policy)
        self._lookup.check_root()
        for named, offset in found.items():
            self.seek(named, offset)
            self.subscription.state(named).is_sought = False

    def _begun(self, asked: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the group's positions, None without one; without what it has taken away."""
        if self._committer is None:
            return dict.fromkeys(asked)
        begun = self._membership.begin(asked)
        if begun is not None:
            return begun
        committed = self._committer.committed()
        return {named: committed[named].offset if named in committed else None for named in asked}

    def seek(self, named: TopicPartition, offset: int) -> None:
        """Go on at an offset; where it is not in the log, the next read is out of range."""
        state = self.subscription.state(named)
        is_fetched = state.position is not None and named not in self._unresolved
        state.position, state.reset = offset, None
        self._unresolved.discard(named)
        if is_fetched:
            self._fetcher.seek(named, offset)
            return
        self._fetcher.add(named, self._cluster.partition_log(state.topic, named.partition), offset)
        if state.is_paused:
            self._fetcher.pause(named)

    def reset(self, named: TopicPartition, policy: ResetPolicy | None) -> None:
        """Go on where a policy says, which is found when it is needed; None: see `resolve`."""
        state = self.subscription.state(named)
        self._fetcher.remove(named)
        state.position, state.reset = None, policy
        self._unresolved.add(named)
        self._resolve_due_ms = -math.inf

    def position(self, named: TopicPartition) -> int:
        """Return the offset of the next record, found if need be; see `resolve`."""
        state = self.subscription.state(named)
        if state.position is None:
            self.resolve()
        if state.position is None:
            if self._is_of_deleted_topic(named):
                raise UnknownTopicOrPartitionError(
                    f"topic {named.topic!r} was deleted; poll to see what this consumer has now",
                    topic=named.topic,
                )
            raise IllegalStateError(
                f"the group is just taking {named} away from this consumer; poll to see what it has"
            )
        return state.position

    def pause(self, named: TopicPartition) -> None:
        """Leave a partition out."""
        self.subscription.state(named).is_paused = True
        if named not in self._unresolved:
            self._fetcher.pause(named)

    def resume(self, named: TopicPartition) -> None:
        """End a `pause`."""
        self.subscription.state(named).is_paused = False
        if named not in self._unresolved:
            self._fetcher.resume(named)

    # --- reading ---------------------------------------------------------------------------------

    def take(self, max_records: int | None, timeout_ms: float) -> Taken:
        """Return what was fetched; see `Fetcher.take`. Positions stay where they are.

        With a failure it is for `recover` to go on.
        """
        return self._fetcher.take(max_records, timeout_ms)

    def recover(self, named: TopicPartition, error: Exception) -> None:
        """Go on with a partition that could not be read.

        One whose position is out of range goes on by ``auto.offset.reset``.

        Raises:
            OffsetOutOfRangeError: that is ``none``.
            LogTruncatedError: what was read or committed lies behind the log's end.
            CorruptRecordError: with file and position.
            StorageError: the storage refuses.
        """
        if isinstance(error, OffsetOutOfRangeError | LogTruncatedError):
            self._out_of_range(named, error)
        elif self._is_of_deleted_topic(named):  # whose files vanish one by one
            self.request_update()
            self._fetcher.retry_later(named, error)
        else:
            raise error

    def _is_of_deleted_topic(self, named: TopicPartition) -> bool:
        try:
            self._lookup.check_root()
            is_gone = _is_gone(self.subscription.partitions[named], self._cluster.image())
            self._lookup.check_root()
        except (StorageError, OffsetOutOfRangeError):
            return False
        return is_gone

    def advance(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on behind what was handed out."""
        partitions = self.subscription.partitions
        for named, offset in positions.items():
            state = partitions.get(named)
            if state is not None:
                state.position, state.is_sought = offset, False

    def _out_of_range(
        self, named: TopicPartition, error: OffsetOutOfRangeError | LogTruncatedError
    ) -> None:
        state = self.subscription.partitions[named]
        try:
            # What is being mounted again was empty a moment ago: so all is looked at once more.
            self._lookup.check_root()
            image = self._cluster.image()
            is_gone = _is_gone(state, image)
            view = None if is_gone else self._lookup.view(state.topic, named.partition)
            self._lookup.check_root()
        except UnknownTopicOrPartitionError as deleted:
            self.request_update()
            self._fetcher.retry_later(named, deleted)
            return
        except (StorageError, OffsetOutOfRangeError) as missing:
            self._fetcher.retry_later(named, missing)
            return
        if view is None:
            self.request_update()
            self._fetcher.retry_later(named, error)
        elif isinstance(error, LogTruncatedError):
            if view.log_end_offset < error.witnessed_offset or state.position is None:
                raise error
            self._fetcher.seek(named, state.position)
        elif error.offset > view.log_end_offset and not state.is_sought:
            raise _truncated(named, error.offset, view)
        elif view.log_start_offset <= error.offset <= view.log_end_offset:
            self._fetcher.seek(named, error.offset)
        elif self._policy == "none":
            raise error
        else:
            _log.warning(
                "%s: %s; going on by auto.offset.reset=%s",
                named,
                error,
                self._config.auto_offset_reset,
            )
            self.reset(named, self._policy)


def _truncated(named: TopicPartition, offset: int, view: LogView) -> LogTruncatedError:
    return LogTruncatedError(
        f"{named}: the log ends at offset {view.log_end_offset}, but records before {offset} were "
        f"read from it, or {offset} was committed: files were removed. Restore them from a copy; "
        f"or go on with what there is: seek, or set the group's offsets anew",
        path=str(named),
        log_end_offset=view.log_end_offset,
        witnessed_offset=offset,
    )


def _is_gone(state: AssignedPartition, image: MetadataImage) -> bool:
    found = image.find(state.topic.name)
    return found is None or found.topic_id != state.topic.topic_id


def _is_known(named: TopicPartition, share: Share, image: MetadataImage) -> bool:
    found = image.find(named.topic)
    return (
        found is not None
        and found.topic_id == share.topic_ids.get(named.topic)
        and named.partition in found.partitions
    )


def _gone_error(
    lost: Iterable[TopicPartition], image: MetadataImage
) -> UnknownTopicOrPartitionError:
    name = min(lost).topic
    again = "" if image.find(name) is None else " and created again: assign it again to read it"
    return UnknownTopicOrPartitionError(
        f"topic {name!r} was deleted while it was read{again}", topic=name
    )
