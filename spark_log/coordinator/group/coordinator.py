"""A member's way to its group: join, heartbeat, release, leave; and the duties that it shares.

There is no coordinator process. Whoever finds something that has to change decides it, and one
conditional append to the group's log makes it so (`GroupLog`). The first three members are the
*watchers*: they look after everybody's heartbeats and after topics; all others look after these.
For each watcher that is silent two more members watch.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar, Protocol

from spark_log.clock import Clock
from spark_log.config.config import TopicConfig
from spark_log.coordinator.assignors import assignor
from spark_log.coordinator.group import changes as group_changes
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.group_log import Decide, GroupLog
from spark_log.coordinator.group.heartbeats import HeartbeatCounts, Heartbeats, HeartbeatWatch
from spark_log.coordinator.group.records import GroupRecord
from spark_log.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    StorageError,
    UnknownMemberIdError,
)
from spark_log.metadata.image import MetadataImage
from spark_log.storage import Store
from spark_log.suppressed import SuppressedErrors
from spark_log.types import TopicPartition, random_id

WATCHERS = 3
"""Members that watch all others: so a group of a thousand reads thousands of heartbeats, not a
million. Where all of them are silent for a quarter of their timeout, three times as many watch, and
so on. So a living member behind a hundred dead ones (of a process that is started again and again)
has expired all of them after about two timeouts, not after one timeout for each three."""

_LOOKS_PER_HEARTBEAT = 12
_MAX_LOOK_INTERVAL_MS = 250.0
"""Between two looks at heartbeats on a local root: what a death is noticed later than its timeout.
Elsewhere a look is a request that costs money: there it is the heartbeat's interval."""

_log = logging.getLogger(__name__)


class GroupCluster(Protocol):
    """What is needed of a `Cluster`."""

    @property
    def store(self) -> Store:
        """The root's files."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def suppressed(self) -> SuppressedErrors:
        """Counts what fails and is done without."""

    def image(self) -> MetadataImage:
        """Return the metadata as it is now."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A member's place, as of the newest generation that it has seen.

    Attributes:
        member_id: who it is.
        generation: of the group.
        protocol: name of the assignor.
        assigned: what it reads and commits.
        revoking: what it may only commit: stop reading it, commit it, and `release` it.
        topics: id and size of the topics that the assignment is about.
        is_settled: nothing is on its way from one member to another.
    """

    member_id: str
    generation: int
    protocol: str
    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    topics: dict[str, GroupTopic]
    is_settled: bool

    @property
    def held(self) -> frozenset[TopicPartition]:
        """What it may commit in this generation."""
        return self.assigned | self.revoking


class GroupCoordinator:
    """One group, seen and changed by one member, or by somebody who is none.

    For one thread at a time. Nothing runs by itself: who is a member calls `heartbeat` at least
    every `next_duty_ms`. A crash at any point leaves a member that others expire.

    Attributes:
        group_id: the group's.
        heartbeat_interval_ms: of this member.
        heartbeats: that were written, for metrics.
    """

    log_class: ClassVar[type[GroupLog]] = GroupLog

    def __init__(
        self,
        cluster: GroupCluster,
        group_id: str,
        *,
        heartbeat_interval_ms: float = 3000,
        log_config: TopicConfig | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Look at a group; touches nothing.

        Args:
            cluster: the opened root.
            group_id: any text; the group exists once somebody joined.
            heartbeat_interval_ms: ``heartbeat.interval.ms``.
            log_config: of the group's log.
            new_id: makes what tells members apart.
        """
        self.group_id = group_id
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self._cluster = cluster
        self._clock = cluster.clock
        self._new_id = new_id
        self._log = self.log_class(cluster.store, group_id, self._clock, log_config)
        self._heartbeats = Heartbeats(cluster.store, group_id, cluster.suppressed)
        self._watch = HeartbeatWatch(self._heartbeats, self._clock)
        self._look_interval_ms = (
            min(heartbeat_interval_ms / _LOOKS_PER_HEARTBEAT, _MAX_LOOK_INTERVAL_MS)
            if cluster.store.is_mapped
            else heartbeat_interval_ms
        )
        self._image: MetadataImage | None = None
        self._topics: dict[str, GroupTopic] = {}
        self._member: Member | None = None
        self._beats = 0
        self.heartbeats = HeartbeatCounts()
        self._beat_due_ms = -math.inf
        self._look_due_ms = -math.inf

    # --- membership ------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """Who this is; empty for who is no member."""
        return "" if self._member is None else self._member.member_id

    def join(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        assignors: Collection[str] = ("range",),
        instance_id: str | None = None,
        client_id: str = "",
        rack: str | None = None,
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
    ) -> GroupStatus:
        """Become a member, or as a member subscribe to something else.

        Args:
            topics: to subscribe to; they need not exist yet.
            pattern: or all topics whose names match this from their start.
            assignors: names, the one that is liked best first; one has to be known to all members.
            instance_id: of a static member: it takes the place, and the partitions, of the member
                that has the same one, which is fenced (KIP-345).
            client_id: for people.
            rack: where it reads best.
            session_timeout_ms: how long its heartbeat may stand still before it is expired.
            max_poll_interval_ms: for people: to leave in time is the member's own duty.

        Raises:
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                it may not; nothing was changed.
            InvalidConfigurationError: there is no such assignor.
            UnknownMemberIdError: it was a member, and is not any more.
            UnknownOutcomeError: whether it is a member could not be found out. Join again: the
                other membership, if there is one, is expired.
        """
        for name in assignors:
            assignor(name)
        is_new = self._member is None
        member = Member(
            f"{instance_id or client_id or 'consumer'}-{self._new_id()}"
            if self._member is None
            else self._member.member_id,
            instance_id,
            client_id,
            socket.gethostname(),
            rack,
            tuple(sorted(set(topics))),
            pattern,
            tuple(assignors),
            session_timeout_ms,
            max_poll_interval_ms,
        )
        if is_new:  # before the others begin to watch it
            self._heartbeats.beat(member.member_id, 1)
            self._beats, self._beat_due_ms = 1, self._clock.monotonic_ms()
            self._beat_due_ms += self.heartbeat_interval_ms
            self.heartbeats.note(self._clock.monotonic_ms())

        def decide(group: Group) -> GroupRecord | None:
            if not is_new:
                self._check_present(group)
            topics = self._read_topics()
            assert self._image is not None
            return group_changes.join(group, member, topics, self._image.cluster_config())

        try:
            self._log.commit(decide)
        except (
            GroupMaxSizeReachedError,
            InconsistentGroupProtocolError,
            InvalidSessionTimeoutError,
        ):
            if is_new:
                self._heartbeats.forget([member.member_id])
            raise
        self._member = member
        return self.status()

    def status(self) -> GroupStatus:
        """Return this member's place in the newest generation that was seen; reads nothing.

        Raises:
            UnknownMemberIdError: it is no member: it left, or the others expired it.
            FencedInstanceIdError: another process has taken its place.
        """
        group = self._log.group
        member = self._check_present(group)
        return GroupStatus(
            member.member_id,
            group.generation,
            group.protocol or "",
            member.owned,
            member.revoking,
            dict(group.topics),
            group.state == "Stable",
        )

    def heartbeat(self) -> GroupStatus:
        """Give a sign of life if it is time, do the group's duties, and see what has changed.

        With nothing due and nothing new it costs one look for a file's name.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError: see `status`.
            StorageError: the storage does not answer; call again.
        """
        now_ms = self._clock.monotonic_ms()
        if self._member is not None and now_ms >= self._beat_due_ms:
            self._beat(now_ms)
        self._log.replay()
        try:
            self._check_present(self._log.group)
        except UnknownMemberIdError:
            self._heartbeats.forget([self.member_id] if self.member_id else [])
            raise
        if now_ms >= self._look_due_ms:
            self._look_due_ms = now_ms + self._look_interval_ms
            self.watch()
        return self.status()

    def next_duty_ms(self) -> float:
        """Return how long until `heartbeat` has something to do, news aside."""
        due_ms = min(self._beat_due_ms, self._look_due_ms)
        return max(0.0, due_ms - self._clock.monotonic_ms())

    def release(self, partitions: Collection[TopicPartition]) -> GroupStatus:
        """Give up what is revoked: from now on it is not committed here any more.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError: see `status`.
            StorageError: it may not have been given up; call again.
        """
        member_id = self.member_id
        self._commit(lambda group: group_changes.release(group, member_id, partitions))
        return self.status()

    def forget(self) -> None:
        """Give up a membership that the group does not have any more: `join` makes a new one."""
        self._member = None

    def leave(self, *, is_final: bool = True) -> None:
        """Stop being a member; harmless for who is none.

        Args:
            is_final: whether a static member leaves too. Else its partitions wait for it to come
                back, until its session timeout (KIP-345).

        Raises:
            StorageError: it may still be a member, until the others expire it.
        """
        member, self._member = self._member, None
        if member is None or (member.instance_id is not None and not is_final):
            return
        self.remove([member.member_id])

    # --- duties ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Do what somebody has to do: expire who is dead, and take in what became of topics.

        Raises:
            StorageError: the storage does not answer; another one may do it.
        """
        member = self._member
        if member is None:
            return
        first = self._watchers()
        watched = self._log.group.members if member.member_id in first else first
        dead = sorted(
            self._watch.dead(
                {
                    name: self._log.group.members[name].session_timeout_ms
                    for name in watched
                    if name != member.member_id
                }
            )
        )
        if dead:
            _log.info("group %s: expiring %s", self.group_id, ", ".join(dead))
            self._commit(
                lambda group: group_changes.remove(group, dead, self._read_topics(), "expire")
            )
            self._heartbeats.forget(dead)
        if member.member_id in first:
            self._commit(lambda group: group_changes.update_topics(group, self._read_topics()))

    def _watchers(self) -> list[str]:
        """Return the first members: three, and two more for each of them that is silent."""
        members = list(self._log.group.members)
        count = WATCHERS
        while True:
            silent = sum(name in self._watch.silent for name in members[:count])
            if WATCHERS + 2 * silent <= count:
                return members[:count]
            count = WATCHERS + 2 * silent

    def remove(self, member_ids: Collection[str]) -> None:
        """Let members go, whoever they are; harmless for who is none.

        Raises:
            StorageError: they may still be members.
        """
        self._log.commit(
            lambda group: group_changes.remove(group, member_ids, self._read_topics(), "leave")
        )
        self._heartbeats.forget(member_ids)

    def raise_generation(self, at_least: int) -> None:
        """Let the generation be no lower: where commits say that the group's log was lost.

        Raises:
            StorageError: it may not have been raised.
        """
        self._log.commit(lambda group: group_changes.raise_generation(group, at_least))

    def describe(self) -> Group:
        """Return the group as it is now, for whoever looks; `Group.state` tells how it is.

        Raises:
            StorageError: the storage does not answer.
            CorruptRecordError: its log is damaged.
        """
        self._log.replay()
        return self._log.group

    def _commit(self, decide: Decide) -> None:
        """Change the group as its member, which it may have ceased to be."""

        def decide_as_member(group: Group) -> GroupRecord | None:
            self._check_present(group)
            return decide(group)

        self._log.commit(decide_as_member)

    def _beat(self, now_ms: float) -> None:
        self._beats += 1
        try:
            self._heartbeats.beat(self.member_id, self._beats)
        except StorageError as error:
            _log.warning("group %s: a heartbeat failed, trying again: %s", self.group_id, error)
            self._beat_due_ms = now_ms + self.heartbeat_interval_ms / _LOOKS_PER_HEARTBEAT
        else:
            self._beat_due_ms = now_ms + self.heartbeat_interval_ms
            self.heartbeats.note(now_ms)

    def _check_present(self, group: Group) -> Member:
        member = self._member
        if member is not None and member.member_id in group.members:
            return group.members[member.member_id]
        if member is not None and member.instance_id in group.instances:
            raise FencedInstanceIdError(
                f"another process with group.instance.id {member.instance_id!r} has taken the "
                f"place of {member.member_id!r} in group {self.group_id!r}; give each its own",
                group_id=self.group_id,
                member_id=member.member_id,
                instance_id=member.instance_id or "",
            )
        raise UnknownMemberIdError(
            f"{self.member_id or 'this consumer'!r} is not in group {self.group_id!r}"
            + ("" if member is None else ": it left, or was silent for session.timeout.ms")
            + "; join again",
            group_id=self.group_id,
            member_id=self.member_id,
        )

    def _read_topics(self) -> dict[str, GroupTopic]:
        """Return the topics that exist: read after the group's log, never before.

        So it is no older than what any record of the log was made from, and no change of a topic is
        taken back.
        """
        image = self._cluster.image()
        if image is not self._image:
            self._image = image
            self._log.max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
            self._topics = {
                topic.name: GroupTopic(topic.topic_id, topic.num_partitions)
                for topic in image.topics()
            }
        return self._topics
