"""The watchers of a group: the members that check heartbeats, and the interval of their checks.

The first three members are the *watchers*: they check the heartbeats of all members. The other
members check the watchers. For each silent watcher two more members become watchers.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.heartbeats import HeartbeatMonitor, Heartbeats
from spark_log.util import Clock

WATCHERS = 3
"""Number of members that check the heartbeats of all others, so that a group of a thousand members
reads thousands of heartbeats, not a million. When all watchers are silent for a quarter of their
timeout, three times as many members watch, and so on. A live member that joined after a hundred
dead ones (of a process that restarts repeatedly) thus expires all of them after two timeouts or
so."""

_CHECKS_PER_HEARTBEAT = 12
_MAX_CHECK_INTERVAL_MS = 250.0
"""Maximum interval between two checks of heartbeats on a local root; a dead member may be expired
this much later than its timeout. On a remote root a check is a paid request, and the interval is
``heartbeat.interval.ms``."""


class HeartbeatWatch:
    """One member's checks of other members' heartbeats.

    Attributes:
        due_ms: the monotonic time of the next check.
    """

    def __init__(
        self, heartbeats: Heartbeats, clock: Clock, heartbeat_interval_ms: float, *, is_local: bool
    ) -> None:
        """Return the watch of a member; nothing is read yet.

        Args:
            heartbeats: the heartbeats of the group.
            clock: the clock whose monotonic time measures silence.
            heartbeat_interval_ms: ``heartbeat.interval.ms``.
            is_local: whether the root is local, so that a check costs no paid request.
        """
        self.due_ms = -math.inf
        self._monitor = HeartbeatMonitor(heartbeats, clock)
        self._interval_ms = (
            min(heartbeat_interval_ms / _CHECKS_PER_HEARTBEAT, _MAX_CHECK_INTERVAL_MS)
            if is_local
            else heartbeat_interval_ms
        )

    def begin(self, now_ms: float) -> None:
        """Make the first check due after one interval, because a join has just read the group."""
        self.due_ms = now_ms + self._interval_ms

    def begin_check(self, now_ms: float) -> bool:
        """Return whether a check is due at a monotonic time; if so, make the next one due."""
        if now_ms < self.due_ms:
            return False
        self.due_ms = now_ms + self._interval_ms
        return True

    def watchers(self, group: Group) -> list[str]:
        """Return the watchers: the first three members, and two more for each silent watcher."""
        members = list(group.members)
        count = WATCHERS
        while True:
            silent = sum(name in self._monitor.silent for name in members[:count])
            if WATCHERS + 2 * silent <= count:
                return members[:count]
            count = WATCHERS + 2 * silent

    def expired_members(self, group: Group, member_id: str, watchers: Collection[str]) -> list[str]:
        """Read the heartbeats that a member checks; return the members that are dead, sorted.

        Args:
            group: the group.
            member_id: the id of the member that checks.
            watchers: the group's watchers; a member that is none of them checks only these.
        """
        watched = group.members if member_id in watchers else watchers
        timeouts_ms = {
            name: group.members[name].session_timeout_ms for name in watched if name != member_id
        }
        return sorted(self._monitor.expired_members(timeouts_ms))
