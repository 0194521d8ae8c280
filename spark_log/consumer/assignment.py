"""What a consumer reads now: kept in step with the metadata, its position and the fetcher."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

from spark_log.config import ConsumerConfig, offset_reset
from spark_log.consumer.committer import Committer
from spark_log.consumer.fetcher import Fetcher, Taken
from spark_log.consumer.log_lookup import LogLookup
from spark_log.consumer.membership import Membership
from spark_log.consumer.offset_reset import ResetPolicy
from spark_log.consumer.subscription import AssignedPartition, Subscription
from spark_log.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicOrPartitionError,
    nearest,
)
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
        membership: Membership,
        committer: Committer | None,
    ) -> None:
        """Begin with nothing.

        Args:
            cluster: the opened root.
            config: the consumer's.
            fetcher: reads what is assigned.
            lookup: finds where to begin.
            membership: decides what is assigned of a subscription.
            committer: of the group; None without one.
        """
        self.subscription = Subscription()
        self._cluster = cluster
        self._config = config
        self._fetcher = fetcher
        self._lookup = lookup
        self._membership = membership
        self._committer = committer
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
        """Read nothing."""
        for named in list(self.subscription.partitions):
            self._remove(named)
        self.subscription.clear()
        self._membership.leave()
        self._gone = None

    def request_update(self) -> None:
        """Look at the metadata at the next `update`."""
        self._metadata_due_ms = -math.inf

    def update(self) -> None:
        """Bring the assignment in step with the metadata, if it is time, and find positions.

        Raises:
            UnknownTopicOrPartitionError: the topic of an assigned partition was deleted.
            NoOffsetForPartitionError: see `resolve`.
        """
        now_ms = self._cluster.clock.monotonic_ms()
        if self._fetcher.take_notice() or now_ms >= self._metadata_due_ms:
            self._refresh(now_ms)
        if self._gone is not None:
            raise self._gone
        if self._unresolved and now_ms >= self._resolve_due_ms:
            try:
                self.resolve()
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
        return max(0.0, due_ms - self._cluster.clock.monotonic_ms())

    def _refresh(self, now_ms: float) -> None:
        try:
            image = self._cluster.image()
        except (StorageError, OffsetOutOfRangeError) as error:
            # A root that is not mounted looks like one without records.
            _log.warning("the metadata cannot be read just now, trying again: %s", error)
            self._metadata_due_ms = now_ms + self._config.retry_backoff_ms
            return
        self._metadata_due_ms = now_ms + self._config.metadata_max_age_ms
        lost = {
            named for named, state in self.subscription.partitions.items() if _is_gone(state, image)
        }
        if self.subscription.is_subscribed:
            self._rebalance(image, lost)
        elif lost:
            self._gone = _gone_error(lost, image)

    def _rebalance(self, image: MetadataImage, lost: set[TopicPartition]) -> None:
        exclude = self._config.exclude_internal_topics
        topics = self.subscription.topics(image, exclude_internal=exclude)
        self._warn_of_missing(image)
        wanted = self._membership.assigned(topics, image)
        held = set(self.subscription.partitions)
        revoked = held - wanted - lost
        listener = self.subscription.listener
        if lost and listener is not None:
            listener.on_partitions_lost(set(lost))
        if revoked and listener is not None:
            listener.on_partitions_revoked(set(revoked))
        for named in lost | revoked:
            self._remove(named)
        added = wanted - (held - lost - revoked)
        for named in added:
            self._add(named, image)
        if added and listener is not None:
            listener.on_partitions_assigned(added)

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

    def _remove(self, named: TopicPartition) -> None:
        state = self.subscription.partitions.pop(named)
        self._unresolved.discard(named)
        self._fetcher.remove(named)
        self._lookup.forget(state.topic, named.partition)

    # --- positions -------------------------------------------------------------------------------

    def resolve(self) -> None:
        """Find where to begin in each partition of which that is not known.

        That is where a seek said, else what the group has committed, else by
        ``auto.offset.reset``.

        Raises:
            NoOffsetForPartitionError: that is ``none``, and nothing else says it.
            StorageError: the storage cannot be read; nothing is changed.
        """
        self._lookup.check_root()  # before and after: what it is not there for looks empty
        partitions = self.subscription.partitions
        found: dict[TopicPartition, int] = {}
        asked = [named for named in self._unresolved if partitions[named].reset is None]
        if asked and self._committer is not None:
            committed = self._committer.committed()
            found = {named: committed[named].offset for named in asked if named in committed}
        for named in self._unresolved - set(found):
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
        assert state.position is not None
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

        A partition whose position is out of range goes on by ``auto.offset.reset``.

        Raises:
            OffsetOutOfRangeError: that is ``none``.
            CorruptRecordError: with file and position.
            StorageError: the storage refuses.
        """
        taken = self._fetcher.take(max_records, timeout_ms)
        if taken.failure is not None:
            named, error = taken.failure
            if not isinstance(error, OffsetOutOfRangeError):
                raise error
            self._out_of_range(named, error)
            return Taken([], taken.positions)
        return taken

    def advance(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on behind what was handed out."""
        partitions = self.subscription.partitions
        for named, offset in positions.items():
            state = partitions.get(named)
            if state is not None:
                state.position = offset

    def _out_of_range(self, named: TopicPartition, error: OffsetOutOfRangeError) -> None:
        state = self.subscription.partitions[named]
        try:
            # What is being mounted again was empty a moment ago: so all is looked at once more.
            self._lookup.check_root()
            view = self._lookup.view(state.topic, named.partition)
            image = self._cluster.image()
            self._lookup.check_root()
        except (StorageError, OffsetOutOfRangeError) as missing:
            self._fetcher.retry_later(named, missing)
            return
        if _is_gone(state, image):
            self.request_update()
            self._fetcher.retry_later(named, error)
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


def _is_gone(state: AssignedPartition, image: MetadataImage) -> bool:
    found = image.find(state.topic.name)
    return found is None or found.topic_id != state.topic.topic_id


def _gone_error(
    lost: Iterable[TopicPartition], image: MetadataImage
) -> UnknownTopicOrPartitionError:
    name = min(lost).topic
    again = "" if image.find(name) is None else " and created again: assign it again to read it"
    return UnknownTopicOrPartitionError(
        f"topic {name!r} was deleted while it was read{again}", topic=name
    )
