"""A member of a group at work: a thread keeps its place while the application does something else.

Kafka's heartbeat thread. It beats, looks after the others, and sees a change of the group as soon
as its record is there: by a hint of the operating system on a local root, else by looking for the
record's name. The application polls; between two polls nothing of what it has changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self

from spark_log.config import ConsumerConfig
from spark_log.coordinator.group.commits import FencedOffsets, GroupCommits
from spark_log.coordinator.group.coordinator import GroupCluster, GroupCoordinator, GroupStatus
from spark_log.coordinator.group.group_log import group_directory
from spark_log.coordinator.group.heartbeats import HeartbeatCounts
from spark_log.errors import SparkLogError, StorageError, UnknownMemberIdError
from spark_log.log.tail_reader import ProbeInterval
from spark_log.storage.directory_watch import watch_directories
from spark_log.types import OffsetAndMetadata, TopicPartition

_HINTED_LOOK_MS = 100.0
"""Where there are hints, looking is for those that get lost."""

_log = logging.getLogger(__name__)


class GroupMember:
    """One member, with a thread of its own from `join` to `close`. Safe to use from any thread.

    A process that ends without `close` is expired by the others after ``session.timeout.ms``.
    """

    def __init__(
        self,
        cluster: GroupCluster,
        group_id: str,
        table: FencedOffsets[Any] | None = None,
        *,
        config: ConsumerConfig | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Get ready; touches nothing.

        Args:
            cluster: the opened root.
            group_id: any text.
            table: where positions are; None: `begin` and `commit` are not used.
            config: of the consumer.
            on_change: called on the member's thread when there is something new for `poll` to tell.
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
        self._commits = GroupCommits(table, group_id, self._seen, self._refresh) if table else None
        self._status: GroupStatus | None = None
        self._failure: SparkLogError | None = None
        self._told: GroupStatus | None = None
        self._polled_ms = 0.0
        self._lock = threading.RLock()
        self._watch = watch_directories(cluster.store)
        self._thread: threading.Thread | None = None
        self._is_closed = False

    # --- membership ------------------------------------------------------------------------------

    def join(self, topics: Collection[str] = (), *, pattern: str | None = None) -> GroupStatus:
        """Join the group, or subscribe to something else; see `GroupCoordinator.join`.

        Who was expired joins as a new member, with nothing.
        """
        config = self._config
        with self._lock:
            if self._failure is not None or self._status is None:
                self._coordinator.forget()
            self._status = self._told = self._coordinator.join(
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
                self._watch.add(group_directory(self.group_id))
                name = f"spark-log-group-{self.group_id}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            else:
                self._watch.wake()
            return self._status

    def poll(self) -> GroupStatus:
        """Return this member's place, and show that the application is alive; reads nothing.

        Raises:
            UnknownMemberIdError: the others expired it, or it did not poll for
                ``max.poll.interval.ms``: what it had is lost. Join again.
            FencedInstanceIdError: another process has taken its place.
        """
        # Without the lock, which is held while the storage is waited for.
        self._polled_ms = self._clock.monotonic_ms()
        self._told = told = self._seen()
        return told

    @property
    def heartbeats(self) -> HeartbeatCounts:
        """How many heartbeats were written, and when the last one was."""
        return self._coordinator.heartbeats

    def is_changed(self) -> bool:
        """Return whether `poll` has something to tell that it did not tell before."""
        return self._failure is not None or self._status != self._told

    def release(self, partitions: Collection[TopicPartition]) -> GroupStatus:
        """Give up what is revoked; see `GroupCoordinator.release`."""
        with self._lock:
            self._seen()
            self._status = self._coordinator.release(partitions)
            return self._status

    def close(self, *, leaves: bool = True) -> None:
        """End; harmless when done twice.

        Args:
            leaves: whether a dynamic member's partitions go to the others at once. A static one
                keeps them for ``session.timeout.ms`` (KIP-345).
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- positions -------------------------------------------------------------------------------

    def begin(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Any]:
        """Return where to begin in what was just given to it; see `GroupCommits.begin`."""
        assert self._commits is not None
        return self._commits.begin(partitions)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
    ) -> None:
        """Commit positions of what it has; see `GroupCommits.commit`."""
        assert self._commits is not None
        self._commits.commit(offsets, topic_ids)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        probes = ProbeInterval.of(self._cluster.store)
        quiet_since_ms = self._clock.monotonic_ms()
        while not self._is_closed:
            with self._lock:
                before = self._status, self._failure
                due_ms = self._do_duties()
                is_news = (self._status, self._failure) != before
            now_ms = self._clock.monotonic_ms()
            if is_news:
                quiet_since_ms = now_ms
                self._on_change()
            pause_ms = (
                _HINTED_LOOK_MS
                if self._watch.gives_hints
                else probes.pause_ms(now_ms - quiet_since_ms)
            )
            self._watch.wait(min(due_ms, pause_ms))

    def _do_duties(self) -> float:
        """Do what is due, and return how long until something is due again."""
        if self._is_closed or self._status is None or self._failure is not None:
            return _HINTED_LOOK_MS
        try:
            idle_ms = self._clock.monotonic_ms() - self._polled_ms
            if idle_ms > self._config.max_poll_interval_ms:
                member_id = self._status.member_id
                self._failure = UnknownMemberIdError(
                    f"{member_id!r} left group {self.group_id!r}: it did not poll for "
                    f"{idle_ms / 1000:.0f} s, more than max.poll.interval.ms. Poll more often, "
                    f"take less by max.poll.records, or raise the setting; then join again",
                    group_id=self.group_id,
                    member_id=member_id,
                )
                self._coordinator.leave(is_final=False)
            else:
                self._status = self._coordinator.heartbeat()
        except UnknownMemberIdError as error:
            self._failure = error
        except SparkLogError as error:
            _log.warning("group %s: looking again: %s", self.group_id, error)
            return self._config.retry_backoff_ms
        return self._coordinator.next_duty_ms()

    def _seen(self) -> GroupStatus:
        failure, status = self._failure, self._status
        if failure is not None:
            raise failure
        if status is None:
            raise UnknownMemberIdError(
                f"this consumer is not in group {self.group_id!r}; join it",
                group_id=self.group_id,
            )
        return status

    def _refresh(self) -> GroupStatus:
        with self._lock:
            self._seen()
            self._coordinator.describe()
            self._status = self._coordinator.status()
            return self._status
