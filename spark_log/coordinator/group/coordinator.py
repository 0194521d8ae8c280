"""Coordinates a group from within its members: join, heartbeat, release, leave, expire.

There is no coordinator process. A member that sees the need of a change decides it, and makes it by
one conditional append to the group's log (`GroupLog`). The watchers among the members check the
topics and the heartbeats of all members (`HeartbeatWatch`).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import replace
from random import Random
from typing import ClassVar, Protocol

from spark_log.config import TopicConfig
from spark_log.coordinator.assignors import assignor
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.heartbeat_watch import HeartbeatWatch
from spark_log.coordinator.group.heartbeats import Heartbeats, HeartbeatWriter
from spark_log.coordinator.group.join_requests import JoinRequests, join_request
from spark_log.coordinator.group.records import GroupRecord
from spark_log.coordinator.group.status import MemberStatus, present_member
from spark_log.errors import SparkLogError, UnknownMemberIdError
from spark_log.metadata import MetadataImage
from spark_log.storage import Store
from spark_log.threads import call_beside
from spark_log.types import TopicPartition
from spark_log.util import Clock, SuppressedErrors, random_id

_RACE_MS = 10.0
_TURN_MS = 10.0
_MAX_PAUSE_MS = 2000.0
"""Maximum pause after a lost race. Below it, a pause is at most twice `_RACE_MS`, doubled with each
lost race, or `_TURN_MS` for each process that changes the group, if that is longer."""

_log = logging.getLogger(__name__)


class GroupCluster(Protocol):
    """The part of `Cluster` that a group needs."""

    @property
    def store(self) -> Store:
        """The files of the root."""

    @property
    def clock(self) -> Clock:
        """The clock that measures time."""

    @property
    def suppressed(self) -> SuppressedErrors:
        """The counts of failures that do not stop a caller."""

    def image(self) -> MetadataImage:
        """Return the present metadata."""


class GroupCoordinator:
    """Reads and changes one group, as a member or without membership.

    For one thread at a time. Nothing runs in the background: a member has to call `heartbeat` at
    least every `next_duty_ms`. After a crash at any point the other members expire this one.

    Attributes:
        group_id: the group's id.
        heartbeats: the counts of its heartbeats, for metrics.
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
        random: Random | None = None,
    ) -> None:
        """Return the coordinator of a group; nothing is read yet.

        Args:
            cluster: the opened root.
            group_id: any string; the group exists once a member has joined.
            heartbeat_interval_ms: ``heartbeat.interval.ms``.
            log_config: the topic config of the group's log.
            new_id: the function that returns the unique part of member ids.
            random: the random numbers that vary pauses.
        """
        self.group_id = group_id
        self._cluster = cluster
        self._clock = cluster.clock
        self._new_id = new_id
        self._random = random or Random()
        self._log = self.log_class(cluster.store, group_id, self._clock, log_config)
        self._log.on_lost_race = self._give_way
        self._heartbeats = Heartbeats.of_group(cluster.store, group_id, cluster.suppressed)
        self._requests = JoinRequests(self._heartbeats)
        self._own_heartbeats = HeartbeatWriter(
            self._heartbeats, f"group {group_id}", self._clock, heartbeat_interval_ms
        )
        self._watch = HeartbeatWatch(
            self._heartbeats,
            self._clock,
            heartbeat_interval_ms,
            is_local=cluster.store.is_local,
        )
        self._image: MetadataImage | None = None
        self._topics: dict[str, GroupTopic] = {}
        self._joined_group: Group | None = None  # the state after which `_topics` were read
        self._member: Member | None = None
        self._is_joining = False
        self.heartbeats = self._own_heartbeats.counts

    # --- membership ------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """Id of this member; empty without membership."""
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
    ) -> MemberStatus:
        """Join the group, or change the subscription of this member.

        Args:
            topics: topics to subscribe to; they need not exist yet.
            pattern: a regular expression: subscribe instead to all topics whose names match it from
                their start.
            assignors: the names of assignors, the preferred one first; one of them has to be
                supported by all members.
            instance_id: ``group.instance.id``, which makes this a static member. It replaces the
                member with the same instance id, which is fenced, and gets its partitions
                (KIP-345).
            client_id: ``client.id``, shown to users.
            rack: ``client.rack``.
            session_timeout_ms: the time without heartbeats after which the member expires.
            max_poll_interval_ms: ``max.poll.interval.ms``, shown to users; the member itself has to
                leave in time.

        Raises:
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group refuses this member; nothing was changed.
            InvalidConfigurationError: an assignor is not known.
            UnknownMemberIdError: this was a member before, and no longer is.
            UnknownOutcomeError: it is not known whether this is a member. Join again; the other
                membership, if it exists, expires.
        """
        for name in assignors:
            assignor(name)  # raises if it is not known
        self._joined_group = None
        member = Member(
            self.member_id or self._new_member_id(instance_id, client_id),
            instance_id=instance_id,
            client_id=client_id,
            client_host=socket.gethostname(),
            rack=rack,
            topics=tuple(sorted(set(topics))),
            pattern=pattern,
            assignors=tuple(assignors),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max_poll_interval_ms,
        )
        if self._member is None:
            self._is_joining = True
            try:
                while not self._request_to_join(member):
                    member = replace(member, member_id=self._new_member_id(instance_id, client_id))
            finally:
                self._is_joining = False
            self._watch.begin(self._clock.monotonic_ms())
            group = self._log.state
            _log.info(
                "group %s: joined as %s in generation %d, members: %d",
                self.group_id,
                member.member_id,
                group.generation,
                len(group.members),
            )
        else:
            self._commit(lambda group: self._decide_join(group, member))
        self._member = member
        return self.status()

    def status(self) -> MemberStatus:
        """Return this member's status in the newest generation that was read; reads nothing.

        Raises:
            UnknownMemberIdError: it is not a member: it left, or others expired it.
            FencedInstanceIdError: a process with the same instance id has replaced it.
        """
        return MemberStatus.of(self._log.state, self._check_present(self._log.state))

    def heartbeat(self) -> MemberStatus:
        """Write a heartbeat if one is due, check other members and topics, and read new records.

        If nothing is due and nothing is new, this costs one lookup of a file name.

        Raises:
            UnknownMemberIdError: it is not a member: it left, or others expired it.
            FencedInstanceIdError: a process with the same instance id has replaced it.
            StorageError: the storage does not answer; call again.
        """
        now_ms = self._clock.monotonic_ms()
        if self._member is not None:
            self._own_heartbeats.beat_if_due(self._member.member_id, now_ms)
        self._log.replay()
        try:
            self._check_present(self._log.state)
        except UnknownMemberIdError:
            self._heartbeats.forget([self.member_id] if self.member_id else [])
            raise
        if self._watch.begin_check(now_ms):
            self.check_group()
        return self.status()

    def next_duty_ms(self) -> float:
        """Return the milliseconds until the next heartbeat or the next check of members is due."""
        due_ms = min(self._own_heartbeats.due_ms, self._watch.due_ms)
        return max(0.0, due_ms - self._clock.monotonic_ms())

    def release(self, partitions: Collection[TopicPartition]) -> MemberStatus:
        """Release revoked partitions: this member does not commit them any more.

        Raises:
            UnknownMemberIdError: it is not a member: it left, or others expired it.
            FencedInstanceIdError: a process with the same instance id has replaced it.
            StorageError: they may not be released; call again.
        """
        member_id = self.member_id
        self._commit(lambda group: group_decisions.release(group, member_id, partitions))
        return self.status()

    def forget(self) -> None:
        """Forget a membership that has ended; `join` makes a new one."""
        self._member = None

    def leave(self, *, is_final: bool = True) -> None:
        """Leave the group; without effect if this is not a member.

        Args:
            is_final: whether a static member leaves, too. If false, a static member keeps its
                partitions for its session timeout, so that it can join again (KIP-345).

        Raises:
            StorageError: it may still be a member, until others expire it.
        """
        member, self._member = self._member, None
        if member is None or (member.instance_id is not None and not is_final):
            return
        self.remove([member.member_id])
        _log.info("group %s: %s has left", self.group_id, member.member_id)

    # --- duties ----------------------------------------------------------------------------------

    def check_group(self) -> None:
        """Expire dead members, and reassign the group if its topics have changed.

        Raises:
            StorageError: the storage does not answer; another member may do it.
        """
        member = self._member
        if member is None:
            return
        watchers = self._watch.watchers(self._log.state)
        dead = self._watch.expired_members(self._log.state, member.member_id, watchers)
        if dead:
            _log.info(
                "group %s: %s removes %s, which wrote no heartbeat for session.timeout.ms (%s)",
                self.group_id,
                member.member_id,
                ", ".join(dead),
                ", ".join(str(self._log.state.members[name].session_timeout_ms) for name in dead),
            )
            self._commit(
                lambda group: group_decisions.remove(group, dead, self._read_topics(), "expire")
            )
            self._heartbeats.forget(dead)
        if member.member_id in watchers:
            # Mostly the topics have not changed, and then the log need not be read.
            topics = self._read_topics()
            if group_decisions.update_topics(self._log.state, topics) is not None:
                self._commit(
                    lambda group: group_decisions.update_topics(group, self._read_topics())
                )

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members from the group; ids that are no members are ignored.

        Raises:
            StorageError: they may still be members.
        """
        self._log.commit(
            lambda group: group_decisions.remove(group, member_ids, self._read_topics(), "leave")
        )
        self._heartbeats.forget(member_ids)

    def raise_generation(self, at_least: int) -> None:
        """Raise the generation of a group whose log was lost to at least a value.

        Raises:
            StorageError: it may not have been raised.
        """
        self._log.commit(lambda group: group_decisions.raise_generation(group, at_least))

    def describe(self) -> Group:
        """Return the present state of the group.

        Raises:
            StorageError: the storage does not answer.
            CorruptRecordError: its log is damaged.
        """
        self._log.replay()
        return self._log.state

    # --- joining ---------------------------------------------------------------------------------

    def _new_member_id(self, instance_id: str | None, client_id: str) -> str:
        return f"{instance_id or client_id or 'consumer'}-{self._new_id()}"

    def _request_to_join(self, member: Member) -> bool:
        """Make a new member join, by its own append or by that of another process.

        Returns:
            Whether it joined. If not, another process may have added and removed it already: it has
            to join under another id, because a removed member must not return.
        """
        self._log.replay()
        generation = self._log.state.generation
        attempts = 0

        def decide(group: Group) -> GroupRecord | None:
            nonlocal attempts
            attempts += 1
            if member.member_id in group.members:  # another process has added it
                return self._decide_join(group, member)
            if group.last_removal > generation:  # it may have been added, and removed
                raise _RequestExpiredError
            # Others join at the same time: this record adds them, too.
            are_others_waiting = is_crowded or attempts > 1
            waiting = self._requests.members(group) if are_others_waiting else ()
            return self._decide_join(group, member, waiting)

        try:
            # The metadata are read after the group; on an object store, while the heartbeat is put.
            read_image = self._cluster.image
            if not self._cluster.store.is_local:
                read_image = call_beside(read_image)
            # The first heartbeat is written before others can check it.
            self._own_heartbeats.begin(member.member_id, join_request(member, generation))
            _log.debug(
                "group %s: %s asks to join, in generation %d",
                self.group_id,
                member.member_id,
                generation,
            )
            self._update_topics(read_image())
            self._joined_group = self._log.state
            is_crowded = self._await_first_members(member.member_id, member.session_timeout_ms)
            self._log.commit(decide, is_recent=not is_crowded)
        except _RequestExpiredError:
            _log.debug(
                "group %s: a member was removed while %s waited to join: asking with another id",
                self.group_id,
                member.member_id,
            )
            self._heartbeats.forget([member.member_id])
            return False
        except SparkLogError:
            self._heartbeats.forget([member.member_id])
            raise
        return True

    def _decide_join(
        self, group: Group, member: Member, waiting: Collection[Member] = ()
    ) -> GroupRecord | None:
        topics = self._read_joined_topics(group)
        assert self._image is not None
        return group_decisions.join(group, member, topics, self._image.cluster_config(), waiting)

    def _read_joined_topics(self, group: Group) -> dict[str, GroupTopic]:
        """Return the topics as `_read_topics` does; read once for each state of the group."""
        if self._joined_group is not group:
            self._read_topics()
            self._joined_group = group
        return self._topics

    def _await_first_members(self, member_id: str, session_timeout_ms: int) -> bool:
        """Wait ``group.initial.rebalance.delay.ms`` for others, if the group has no members.

        While more members arrive, the wait is repeated, for at most half of the session timeout.
        Kafka's ``InitialDelayedJoin`` waits for at most the rebalance timeout.

        Returns:
            Whether it waited.
        """
        if self._log.state.members:
            return False
        assert self._image is not None
        delay_ms = self._image.cluster_config().group_initial_rebalance_delay_ms
        if not delay_ms:
            return False
        waited_ms, known, found = 0, 0, 1
        while found > known and waited_ms + delay_ms <= max(delay_ms, session_timeout_ms / 2):
            known = found
            _log.debug(
                "group %s: %s waits %d ms for more members, of %d so far",
                self.group_id,
                member_id,
                delay_ms,
                found,
            )
            self._sleep_until_member(member_id, delay_ms)
            waited_ms += delay_ms
            if self._log.state.members:
                break
            found = self._requests.count(self._log.state)
        if member_id not in self._log.state.members:
            self._give_way(0)
        return True

    def _sleep_until_member(self, member_id: str, duration_ms: float) -> None:
        """Sleep until another process has added this member, at most for a duration."""
        while duration_ms > 0 and member_id not in self._log.state.members:
            pause_ms = min(duration_ms, self._own_heartbeats.interval_ms)
            self._clock.sleep_ms(pause_ms)
            duration_ms -= pause_ms
            self._log.replay()

    def _give_way(self, races: int) -> None:
        """Pause after a lost race, longer if more processes change the group."""
        if self._is_joining:
            others = self._requests.count(self._log.state)
        else:
            others = sum(bool(member.revoking) for member in self._log.state.members.values())
        mean_ms = max(_RACE_MS * 2.0 ** min(races, 20), _TURN_MS * others)
        self._clock.sleep_ms(self._random.uniform(0, min(mean_ms, _MAX_PAUSE_MS)))

    def _commit(self, decide: Callable[[Group], GroupRecord | None]) -> None:
        """Change the group as its member; raise if this is no longer a member."""

        def decide_as_member(group: Group) -> GroupRecord | None:
            self._check_present(group)
            return decide(group)

        self._log.commit(decide_as_member)

    def _check_present(self, group: Group) -> Member:
        return present_member(group, self.group_id, self._member)

    def _read_topics(self) -> dict[str, GroupTopic]:
        """Return the existing topics. Call this after the group's log was read, never before.

        The topics are then not older than those in the last record of the log, so that no change of
        a topic is undone.
        """
        self._update_topics(self._cluster.image())
        return self._topics

    def _update_topics(self, image: MetadataImage) -> None:
        if image is not self._image:
            self._image = image
            self._log.trimmer.max_clock_skew_ms = image.cluster_config().max_clock_skew_ms
            self._topics = {topic.name: GroupTopic.of(topic) for topic in image.topics()}


class _RequestExpiredError(Exception):
    """A member was removed after a request to join was written: the request is no longer valid."""
