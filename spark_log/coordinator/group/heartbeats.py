"""Heartbeats: one small file per member with a counter; a member that stops counting is dead.

On storage: ``__consumer_groups/<group>/members/<member>`` is JSON, overwritten by every heartbeat:
``{"memberId": …, "beat": n}``. No clocks are compared: an observer measures on its own monotonic
clock how long a counter does not change. If a late put restores an older file, its counter is
lower, and it does not count as a heartbeat. The first heartbeat of a member has its request to join
(`JoinRequest`), too. A gateway's has ``"seen": n``, the offset to which it has read the registry.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import NotFoundError, StorageError
from spark_log.storage import FileInfo, Store, file_name, map_requests, newest_modified_us
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors, parse_json, shown

_CHECKS_PER_TIMEOUT = 4
"""Minimum number of checks in a timeout: the time between two checks counts as silence only up to a
quarter of the timeout. An observer that was stopped for longer, or suspended with its machine, has
not observed that others were silent."""

_RETRIES_PER_INTERVAL = 12
"""Number of times that a failed heartbeat is retried within ``heartbeat.interval.ms``."""

_log = logging.getLogger(__name__)


class Heartbeats:
    """Reads and writes the counters of members. Safe to use from any thread."""

    def __init__(
        self, store: Store, directory: str, suppressed: SuppressedErrors = IN_PROCESS
    ) -> None:
        """Return the heartbeats in a directory; nothing is read yet.

        Args:
            store: the store of the root.
            directory: the directory of the counters, relative to the root.
            suppressed: the counts of failures that do not stop a caller.
        """
        self.store = store
        self.suppressed = suppressed
        self.directory = directory

    @classmethod
    def of_group(
        cls, store: Store, group_id: str, suppressed: SuppressedErrors = IN_PROCESS
    ) -> Heartbeats:
        """Return the heartbeats of a group; nothing is read yet.

        Args:
            store: the store of the root.
            group_id: the group's id.
            suppressed: the counts of failures that do not stop a caller.
        """
        return cls(store, f"{GroupLog.directory_of(group_id)}/members", suppressed)

    def beat(
        self,
        member_id: str,
        count: int,
        join: Mapping[str, Any] | None = None,
        seen: int | None = None,
    ) -> None:
        """Write a member's counter.

        Args:
            member_id: the member's id.
            count: the counter's new value.
            join: the member's request to join, while it waits to join.
            seen: the offset to which a gateway has read the registry.

        Raises:
            StorageError: it may not have been written.
        """
        document: dict[str, Any] = {"memberId": member_id, "beat": count}
        if join is not None:
            document["join"] = join
        if seen is not None:
            document["seen"] = seen
        self.store.put(self._path(member_id), json.dumps(document).encode(), sync=False)

    def counter(self, member_id: str) -> int:
        """Return a member's counter; 0 if it has none, or if it cannot be parsed.

        Raises:
            StorageError: it cannot be read.
        """
        return self._number(member_id, "beat")

    def seen(self, member_id: str) -> int:
        """Return the offset to which a gateway has read the registry; 0 if it does not say.

        Raises:
            StorageError: it cannot be read.
        """
        return self._number(member_id, "seen")

    def _number(self, member_id: str, key: str) -> int:
        try:
            data = self.store.open_buffer(self._path(member_id)).to_pybytes()
        except NotFoundError:
            return 0
        try:
            return int(parse_json(data)[key])
        except (ValueError, KeyError, TypeError):
            return 0

    def list(self) -> list[FileInfo]:
        """Return the files of all members, and of those that wait to join.

        Raises:
            StorageError: they cannot be listed.
        """
        return list(self.store.list(self.directory))

    def join_request(self, name: str) -> Mapping[str, Any] | None:
        """Return the request to join in a file of `list`; None if it has none.

        Raises:
            StorageError: it cannot be read, or it is gone.
        """
        data = self.store.open_buffer(f"{self.directory}/{name}").to_pybytes()
        try:
            found = parse_json(data)["join"]
        except (ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, dict) else None

    def forget(self, member_ids: Iterable[str]) -> None:
        """Delete the files of former members; a failure is only counted."""
        for member_id in member_ids:
            with self.suppressed.suppress("heartbeat deletion", self.directory, StorageError):
                self.store.delete(self._path(member_id))

    def _path(self, member_id: str) -> str:
        return f"{self.directory}/{file_name(member_id)}"


def newest_heartbeat_us(store: Store, group_id: str) -> int:
    """Return the time of a group's newest heartbeat, by the storage's clock; costs one listing.

    The time is shown to users; no member is expired by it.

    Returns:
        Microseconds since the epoch; 0 without a heartbeat.

    Raises:
        StorageError: the storage does not answer.
    """
    return newest_modified_us(store.list(f"{GroupLog.directory_of(group_id)}/members"))


@dataclass(slots=True)
class HeartbeatCounts:
    """Counts the heartbeats that a member has written.

    Attributes:
        total: the number of heartbeats.
        last_ms: the monotonic time of the last one.
    """

    total: int = 0
    last_ms: float = 0.0

    def on_heartbeat(self, now_ms: float) -> None:
        """Count one heartbeat."""
        self.total, self.last_ms = self.total + 1, now_ms


class HeartbeatWriter:
    """Writes a member's counter every ``heartbeat.interval.ms``; after a failure, much sooner.

    Attributes:
        interval_ms: the time between two heartbeats.
        due_ms: the monotonic time of the next one.
        shown_ms: the monotonic time before the last one that was written, from which on others
            may have seen it.
        counts: the counts of the heartbeats that were written.
    """

    def __init__(
        self, heartbeats: Heartbeats, owner: str, clock: Clock, interval_ms: float
    ) -> None:
        """Return the writer of a member that has not joined yet.

        Args:
            heartbeats: the heartbeats of the group.
            owner: the group of the member, or what else it belongs to, for log lines.
            clock: the clock whose monotonic time decides when a heartbeat is due.
            interval_ms: ``heartbeat.interval.ms``.
        """
        self.interval_ms = interval_ms
        self.due_ms = self.shown_ms = -math.inf
        self.counts = HeartbeatCounts()
        self._heartbeats = heartbeats
        self._owner = owner
        self._clock = clock
        self._count = 0
        self._seen: int | None = None
        self._is_failing = False

    def begin(self, member_id: str, join: Mapping[str, Any]) -> None:
        """Write the first heartbeat of a new member, before others check its heartbeats.

        Args:
            member_id: the member's id.
            join: its request to join.

        Raises:
            StorageError: it may not have been written.
        """
        began_ms = self._clock.monotonic_ms()
        self._heartbeats.beat(member_id, 1, join)
        self._count, self.shown_ms = 1, began_ms
        self.due_ms = self._clock.monotonic_ms() + self.interval_ms
        self.counts.on_heartbeat(self._clock.monotonic_ms())

    def beat_if_due(self, member_id: str, now_ms: float, seen: int | None = None) -> None:
        """Write the next heartbeat if it is due; after a failure, sooner than usual.

        Of failures in a row the first is logged as a warning.

        Args:
            member_id: the member's id.
            now_ms: the present monotonic time.
            seen: the offset to which a gateway has read the registry: a new one is due at once.
        """
        is_due = now_ms >= self.due_ms
        if not is_due and seen == self._seen:
            return
        self._count += 1
        try:
            self._heartbeats.beat(member_id, self._count, seen=seen)
        except StorageError as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            _log.log(level, "%s: a heartbeat failed, retrying: %s", self._owner, error)
            self._is_failing = True
            self.due_ms = now_ms + self.interval_ms / _RETRIES_PER_INTERVAL
        else:
            self._is_failing = False
            self._seen = seen
            self.shown_ms = now_ms
            if is_due:
                self.due_ms = now_ms + self.interval_ms
            self.counts.on_heartbeat(now_ms)


@dataclass(slots=True)
class _Observation:
    counter: int
    checked_ms: float
    silent_ms: float = 0.0


class _Check(NamedTuple):
    """A counter, and the monotonic times before and after it was read."""

    counter: int
    began_ms: float
    ended_ms: float


class HeartbeatMonitor:
    """Measures, for one observer, how long the counters of other members have not changed.

    Attributes:
        silent: the ids of members whose counter, at the last check, had not changed for at least a
            quarter of their timeout.
    """

    def __init__(self, heartbeats: Heartbeats, clock: Clock) -> None:
        """Return a monitor.

        Args:
            heartbeats: the heartbeats of the group.
            clock: the clock whose monotonic time measures the silence.
        """
        self._heartbeats = heartbeats
        self._clock = clock
        self._observations: dict[str, _Observation] = {}
        self.silent: frozenset[str] = frozenset()

    def expired_members(self, timeouts_ms: Mapping[str, int]) -> set[str]:
        """Read the counters, and return the members whose counter did not change for their timeout.

        Time in which a counter cannot be read does not count.

        Args:
            timeouts_ms: id of each member to check → its ``session.timeout.ms``.
        """
        for member_id in self._observations.keys() - timeouts_ms.keys():
            del self._observations[member_id]
        dead, silent = set(), set()
        checks = map_requests(self._heartbeats.store, self._check, timeouts_ms.keys())
        for (member_id, timeout_ms), check in zip(timeouts_ms.items(), checks, strict=True):
            if check is None:
                self._observations.pop(member_id, None)
                continue
            observed = self._observations.get(member_id)
            if observed is None or check.counter > observed.counter:
                self._observations[member_id] = _Observation(check.counter, check.ended_ms)
                continue
            # The counter was the same from the end of one check to the start of the next.
            max_ms = timeout_ms / _CHECKS_PER_TIMEOUT
            observed.silent_ms += min(max(0.0, check.began_ms - observed.checked_ms), max_ms)
            observed.checked_ms = check.ended_ms
            if observed.silent_ms >= max_ms:
                silent.add(member_id)
            if observed.silent_ms >= timeout_ms:
                dead.add(member_id)
        if silent != self.silent:
            _log.debug(
                "%s: silent for a quarter of session.timeout.ms: %s",
                self._heartbeats.directory,
                shown(sorted(silent)) or "no member",
            )
        self.silent = frozenset(silent)
        return dead

    def _check(self, member_id: str) -> _Check | None:
        """Read a member's counter; None if it cannot be read."""
        began_ms = self._clock.monotonic_ms()
        try:
            counter = self._heartbeats.counter(member_id)
        except StorageError as error:
            beats = self._heartbeats
            beats.suppressed.add("heartbeat reading", beats.directory, error)
            return None
        return _Check(counter, began_ms, self._clock.monotonic_ms())
