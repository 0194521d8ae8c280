"""The timers of one group: of members' sessions, of rebalances, of looks at its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

TimerKey = tuple[str, str]
"""The kind of a timer, and the id of the member that it is for; empty if it is for the group."""


class CancelTimer(Protocol):
    """A timer that was set."""

    def cancel(self) -> None:
        """End the timer."""


CallLater = Callable[[float, Callable[[], object]], CancelTimer]
"""Sets a timer: seconds, and the function that is called then; as ``loop.call_later``."""

Expire = Callable[[TimerKey, CancelTimer], Coroutine[Any, Any, None]]
"""Handles the end of a timer, after the events before it: if `GroupTimers.take` returns True."""


class GroupTimers:
    """Timers by key. A timer that is set anew takes the place of the one before."""

    def __init__(
        self, expire: Expire, call_later: CallLater | None, tasks: set[asyncio.Task[None]]
    ) -> None:
        """Return no timers.

        Args:
            expire: handles the end of a timer, as a task.
            call_later: sets a timer; by default the event loop's.
            tasks: holds the tasks that handle the ends of timers.
        """
        self._expire = expire
        self._call_later = call_later
        self._tasks = tasks
        self._timers: dict[TimerKey, CancelTimer] = {}

    def __contains__(self, key: TimerKey) -> bool:
        """Return whether a timer is set."""
        return key in self._timers

    def set(self, key: TimerKey, delay_ms: float) -> None:
        """Set a timer; an earlier one of the same key ends."""
        self.end(key)
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._timers[key] = call_later(delay_ms / 1000, partial(self._begin_expiry, key))

    def end(self, key: TimerKey) -> None:
        """End a timer, if it is set."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def end_all(self) -> None:
        """End all timers."""
        for key in list(self._timers):
            self.end(key)

    def take(self, key: TimerKey, timer: CancelTimer) -> bool:
        """Return whether a timer that has expired was not set anew or ended since; it ends."""
        if self._timers.get(key) is not timer:
            return False
        del self._timers[key]
        return True

    def _begin_expiry(self, key: TimerKey) -> None:
        timer = self._timers.get(key)
        if timer is not None:
            task = asyncio.get_running_loop().create_task(self._expire(key, timer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
