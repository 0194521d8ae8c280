"""A group member with a thread that keeps its membership while the application does other work.

The thread is Kafka's heartbeat thread. It writes heartbeats, checks the other members, and reads a
change of the group as soon as its record is in the log: on a local root after a notification of the
operating system, else by looking up the record's name. The application polls; its assignment does
not change between two polls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Self

from spark_log.config import ConsumerConfig
from spark_log.coordinator.group.coordinator import GroupCluster, GroupCoordinator
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.heartbeats import HeartbeatCounts
from spark_log.coordinator.group.member_commits import FencedOffsets, MemberCommits, Settle
from spark_log.coordinator.group.status import MemberStatus
from spark_log.errors import SparkLogError, StorageError, UnknownMemberIdError
from spark_log.log import ProbeInterval
from spark_log.storage import watch_directories
from spark_log.types import OffsetAndMetadata, TopicPartition

_HINTED_READ_INTERVAL_MS = 100.0
"""Interval at which the log is read despite notifications, because a notification may get lost."""

_log = logging.getLogger(__name__)


class GroupMember:
    """One member, with its own thread from `join` to `close`. Safe to use from any thread.

    If a process ends without `close`, the other members expire it after ``session.timeout.ms``.
    """

    def __init__(
        self,
        cluster: GroupCluster,
        group_id: str,
        table: FencedOffsets[Any] | None = None,
        *,
        settle: Settle | None = None,
        config: ConsumerConfig | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Return a member that has not joined yet; nothing is read yet.

        Args:
            cluster: the opened root.
            group_id: any string.
            table: the offsets table; None if `begin` and `commit` are not used.
            settle: the function that settles pending offsets of transactions before a partition
                begins; None if no transaction commits offsets of the group.
            config: the consumer's config.
            on_change: the function that is called on the member's thread when `poll` would return a
                new status or raise.
        """
        self.group_id = group_id
        self._config = config or ConsumerConfig()
        self._cluster = cluster
        self._clock = cluster.clock
        self._on_change = on_change
        self._coordinator = GroupCoordinator(
            cluster,
            group_id,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms,
        )
        self._commits = (
            MemberCommits(table, group_id, self._current_status, self.refresh, settle)
            if table
            else None
        )
        self._status: MemberStatus | None = None
        self._failure: SparkLogError | None = None
        self._polled_status: MemberStatus | None = None
        self._polled_ms = 0.0
        self._lock = threading.RLock()
        self._watch = watch_directories(cluster.store)
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_failing = False

    # --- membership ------------------------------------------------------------------------------

    def join(self, topics: Collection[str] = (), *, pattern: str | None = None) -> MemberStatus:
        """Join the group, or change the subscription.

        A member that was expired joins as a new member, without partitions.

        Args:
            topics: the topics to subscribe to; they need not exist yet.
            pattern: a regular expression: subscribe instead to all topics whose names match it from
                their start.

        Raises:
            GroupMaxSizeReachedError, InconsistentGroupProtocolError, InvalidSessionTimeoutError:
                the group refuses this member; nothing was changed.
            InvalidConfigurationError: an assignor is not known.
            UnknownOutcomeError: it is not known whether this is a member; join again.
            StorageError: the storage does not answer; join again.
        """
        config = self._config
        with self._lock:
            if self._failure is not None or self._status is None:
                self._coordinator.forget()
            self._status = self._polled_status = self._coordinator.join(
                topics,
                pattern=pattern,
                assignors=config.partition_assignment_strategy,
                instance_id=config.group_instance_id,
                client_id=config.client_id,
                rack=config.client_rack or None,
                session_timeout_ms=config.session_timeout_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
            )
            self._failure = None
            self._polled_ms = self._clock.monotonic_ms()
            if self._thread is None:
                self._watch.add(GroupLog.directory_of(self.group_id))
                name = f"spark-log-group-{self.group_id}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            else:
                self._watch.wake()
            return self._status

    def poll(self) -> MemberStatus:
        """Return this member's status, and record that the application is alive; no request.

        Raises:
            UnknownMemberIdError: others expired it, or it did not poll for
                ``max.poll.interval.ms``. It has lost its partitions; join again.
            FencedInstanceIdError: a process with the same instance id has replaced it.
        """
        # Without the lock, which the thread holds while it waits for the storage.
        self._polled_ms = self._clock.monotonic_ms()
        self._polled_status = status = self._current_status()
        return status

    def refresh(self) -> MemberStatus:
        """Read the group, and return this member's present status; one lookup if nothing is new.

        Raises:
            UnknownMemberIdError: this is not a member any more; join again.
            FencedInstanceIdError: a process with the same instance id has replaced it.
            StorageError: the group cannot be read.
        """
        with self._lock:
            self._current_status()
            self._coordinator.describe()
            self._status = self._coordinator.status()
            return self._status

    @property
    def heartbeats(self) -> HeartbeatCounts:
        """The number of heartbeats written, and the time of the last one."""
        return self._coordinator.heartbeats

    def is_changed(self) -> bool:
        """Return whether `poll` would raise, or return another status than the last time."""
        return self._failure is not None or self._status != self._polled_status

    def release(self, partitions: Collection[TopicPartition]) -> MemberStatus:
        """Release revoked partitions: this member no longer commits them."""
        with self._lock:
            self._current_status()
            self._status = self._coordinator.release(partitions)
            return self._status

    def close(self, *, leaves: bool = True) -> None:
        """Stop the thread; without effect the second time.

        Args:
            leaves: whether a dynamic member leaves, so that others get its partitions at once. A
                static member keeps them for ``session.timeout.ms`` (KIP-345).
        """
        is_first, self._is_closed = not self._is_closed, True
        with self._lock:
            if is_first and leaves and self._failure is None and self._status is not None:
                try:
                    self._coordinator.leave(is_final=False)
                except StorageError as error:
                    _log.warning("group %s: leaving failed: %s", self.group_id, error)
            self._status = None
        self._watch.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- committed offsets -----------------------------------------------------------------------

    def begin(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets of partitions that were just assigned to this member.

        From then on the commits of their earlier owners are refused.

        Returns:
            Partition → the committed offset, or None if the group committed none. Partitions that
            other members got meanwhile are left out.

        Raises:
            UnknownMemberIdError: this is not a member any more; join again.
            CommitFailedError: the group changes too often.
            UnstableOffsetCommitError: a transaction that commits one of the partitions is not
                decided; call again.
            StorageError: the storage does not answer; call again.
        """
        assert self._commits is not None
        found = self._commits.begin(partitions)
        return {tp: None if each is None else each.offset for tp, each in found.items()}

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit offsets of partitions that this member has, all of them or none."""
        assert self._commits is not None
        self._commits.commit(offsets, topic_ids)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        probes = ProbeInterval.of(self._cluster.store)
        if not self._cluster.store.is_local:
            probes = replace(probes, min_ms=probes.max_ms)  # a change of a group takes longer
        quiet_since_ms = now_ms = self._clock.monotonic_ms()
        due_ms = self._coordinator.next_duty_ms()
        while not self._is_closed:
            pause_ms = (
                _HINTED_READ_INTERVAL_MS
                if self._watch.gives_hints
                else probes.pause_ms(now_ms - quiet_since_ms)
            )
            self._watch.wait(min(due_ms, pause_ms))
            with self._lock:
                before = self._status, self._failure
                due_ms = self._do_duties()
                has_changed = (self._status, self._failure) != before
            now_ms = self._clock.monotonic_ms()
            if has_changed:
                if self._failure is None:
                    _log.debug("group %s: %s", self.group_id, self._status)
                quiet_since_ms = now_ms
                self._on_change()

    def _do_duties(self) -> float:
        """Run `GroupCoordinator.heartbeat`; return the milliseconds until it is due again."""
        if self._is_closed or self._status is None or self._failure is not None:
            return _HINTED_READ_INTERVAL_MS
        try:
            idle_ms = self._clock.monotonic_ms() - self._polled_ms
            if idle_ms > self._config.max_poll_interval_ms:
                member_id = self._status.member_id
                self._failure = UnknownMemberIdError(
                    f"{member_id!r} left group {self.group_id!r}: it did not poll for "
                    f"{idle_ms / 1000:.0f} s, more than max.poll.interval.ms. Poll more often, "
                    f"reduce max.poll.records, or raise max.poll.interval.ms; then join again",
                    group_id=self.group_id,
                    member_id=member_id,
                )
                _log.warning("%s", self._failure)  # the application may never poll again
                self._coordinator.leave(is_final=False)
            else:
                self._status = self._coordinator.heartbeat()
        except UnknownMemberIdError as error:
            _log.debug("group %s: %s", self.group_id, error)
            self._failure = error
        except SparkLogError as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            _log.log(level, "group %s: retrying: %s", self.group_id, error)
            self._is_failing = True
            return self._config.retry_backoff_ms
        else:
            self._is_failing = False
        return self._coordinator.next_duty_ms()

    def _current_status(self) -> MemberStatus:
        failure, status = self._failure, self._status
        if failure is not None:
            raise failure
        if status is None:
            raise UnknownMemberIdError(
                f"this consumer is not in group {self.group_id!r}; join it",
                group_id=self.group_id,
            )
        return status
