"""Signs of life: a small file per member with a counter, and who is dead by not raising it.

On storage: ``__consumer_groups/<group>/members/<member>`` is JSON, overwritten with every
heartbeat: ``{"memberId": …, "beat": n}``. No clocks are compared: who watches measures on its own
monotonic clock for how long a counter stands still. A file that a late put brings back has a lower
counter, which is no sign of life.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_log.clock import Clock
from spark_log.coordinator.group.group_log import group_directory
from spark_log.coordinator.group.names import file_name
from spark_log.errors import NotFoundError, StorageError
from spark_log.storage import Store
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

_LOOKS_PER_TIMEOUT = 4
"""Between two looks no more than a quarter of the timeout counts: who was stopped for longer, or
slept with the whole machine, did not see the others stand still."""


class Heartbeats:
    """The files with the members' counters."""

    def __init__(
        self, store: Store, group_id: str, suppressed: SuppressedErrors = IN_PROCESS
    ) -> None:
        """Touches nothing yet.

        Args:
            store: of the cluster root.
            group_id: the group's.
            suppressed: counts what fails and is done without.
        """
        self._store = store
        self.suppressed = suppressed
        self.directory = f"{group_directory(group_id)}/members"

    def beat(self, member_id: str, count: int) -> None:
        """Write a member's counter.

        Raises:
            StorageError: it may not have been written.
        """
        document = {"memberId": member_id, "beat": count}
        self._store.put(self._path(member_id), json.dumps(document).encode(), sync=False)

    def counter(self, member_id: str) -> int:
        """Return a member's counter: 0 where there is none, or it cannot be understood.

        Raises:
            StorageError: it cannot be read.
        """
        try:
            data = self._store.open_buffer(self._path(member_id)).to_pybytes()
        except NotFoundError:
            return 0
        try:
            return int(json.loads(data)["beat"])
        except (ValueError, KeyError, TypeError):
            return 0

    def forget(self, member_ids: Iterable[str]) -> None:
        """Delete what members that are gone have left; what fails is left lying."""
        for member_id in member_ids:
            with self.suppressed.suppress("heartbeat deletion", self.directory, StorageError):
                self._store.delete(self._path(member_id))

    def _path(self, member_id: str) -> str:
        return f"{self.directory}/{file_name(member_id)}"


@dataclass(slots=True)
class HeartbeatCounts:
    """What a member tells of its own heartbeats.

    Attributes:
        total: how many were written.
        last_ms: when the last one was, on its monotonic clock.
    """

    total: int = 0
    last_ms: float = 0.0

    def note(self, now_ms: float) -> None:
        """One was written."""
        self.total, self.last_ms = self.total + 1, now_ms


@dataclass(slots=True)
class _Seen:
    counter: int
    looked_ms: float
    stood_ms: float = 0.0


class HeartbeatMonitor:
    """For how long the counters of others have stood still, as one observer saw it.

    Attributes:
        silent: members whose counter stood still for a quarter of their timeout or longer, at the
            last look.
    """

    def __init__(self, heartbeats: Heartbeats, clock: Clock) -> None:
        """Args: heartbeats: of the group; clock: whose monotonic side measures."""
        self._heartbeats = heartbeats
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.silent: frozenset[str] = frozenset()

    def expired_members(self, timeouts_ms: Mapping[str, int]) -> set[str]:
        """Look at the counters, and return whose has stood still for its timeout.

        A counter that cannot be read tells nothing, nor does the time until it can.

        Args:
            timeouts_ms: whom to watch, with ``session.timeout.ms`` of each.
        """
        for member_id in self._seen.keys() - timeouts_ms.keys():
            del self._seen[member_id]
        dead, silent = set(), set()
        for member_id, timeout_ms in timeouts_ms.items():
            # From the end of one look to the beginning of the next: what it saw held in between.
            began_ms = self._clock.monotonic_ms()
            try:
                counter = self._heartbeats.counter(member_id)
            except StorageError as error:
                beats = self._heartbeats
                beats.suppressed.add("heartbeat reading", beats.directory, error)
                self._seen.pop(member_id, None)
                continue
            ended_ms = self._clock.monotonic_ms()
            seen = self._seen.get(member_id)
            if seen is None or counter > seen.counter:
                self._seen[member_id] = _Seen(counter, ended_ms)
                continue
            most_ms = timeout_ms / _LOOKS_PER_TIMEOUT
            seen.stood_ms += min(max(0.0, began_ms - seen.looked_ms), most_ms)
            seen.looked_ms = ended_ms
            if seen.stood_ms >= most_ms:
                silent.add(member_id)
            if seen.stood_ms >= timeout_ms:
                dead.add(member_id)
        self.silent = frozenset(silent)
        return dead
