"""The heartbeats of one member, written when they are due."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from spark_log.coordinator.group.heartbeats import HeartbeatCounts, Heartbeats
from spark_log.errors import StorageError
from spark_log.util import Clock

_RETRIES_PER_INTERVAL = 12

_log = logging.getLogger(__name__)


class MemberHeartbeat:
    """Writes a member's counter every ``heartbeat.interval.ms``; after a failure, much sooner.

    Attributes:
        interval_ms: the time between two heartbeats.
        due_ms: the monotonic time of the next one.
        counts: the counts of the heartbeats that were written.
    """

    def __init__(
        self, heartbeats: Heartbeats, group_id: str, clock: Clock, interval_ms: float
    ) -> None:
        """Return the heartbeat of a member that has not begun.

        Args:
            heartbeats: the heartbeats of the group.
            group_id: the group's id, for log lines.
            clock: the clock whose monotonic time decides when a heartbeat is due.
            interval_ms: ``heartbeat.interval.ms``.
        """
        self.interval_ms = interval_ms
        self.due_ms = -math.inf
        self.counts = HeartbeatCounts()
        self._heartbeats = heartbeats
        self._group_id = group_id
        self._clock = clock
        self._count = 0

    def begin(self, member_id: str, join: Mapping[str, Any]) -> None:
        """Write the first heartbeat of a new member, before others check its heartbeats.

        Args:
            member_id: the member's id.
            join: its request to join.

        Raises:
            StorageError: it may not have been written.
        """
        self._heartbeats.beat(member_id, 1, join)
        self._count = 1
        self.due_ms = self._clock.monotonic_ms() + self.interval_ms
        self.counts.on_heartbeat(self._clock.monotonic_ms())

    def beat_if_due(self, member_id: str, now_ms: float) -> None:
        """Write the next heartbeat if it is due; a failure is logged, and retried when due.

        Args:
            member_id: the member's id.
            now_ms: the present monotonic time.
        """
        if now_ms < self.due_ms:
            return
        self._count += 1
        try:
            self._heartbeats.beat(member_id, self._count)
        except StorageError as error:
            _log.warning("group %s: a heartbeat failed, retrying: %s", self._group_id, error)
            self.due_ms = now_ms + self.interval_ms / _RETRIES_PER_INTERVAL
        else:
            self.due_ms = now_ms + self.interval_ms
            self.counts.on_heartbeat(now_ms)
