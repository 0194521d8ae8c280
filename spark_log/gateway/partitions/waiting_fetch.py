"""`WaitingFetch`: a fetch that waits for one of its partitions to change."""

from __future__ import annotations

import asyncio


class WaitingFetch:
    """A flag that partitions set, and one fetch waits for; for one event loop.

    A wait takes one future and one timer. ``asyncio.wait_for`` on an ``asyncio.Event`` takes a task
    besides, and most fetches of idle consumers wait.
    """

    __slots__ = ("_future", "_is_set")

    def __init__(self) -> None:
        """Return a flag that is not set."""
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the fetch: a partition has changed."""
        self._is_set = True
        self._end()

    def clear(self) -> None:
        """Reset the flag, before the partitions are read."""
        self._is_set = False

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the flag; return whether it was set.

        Args:
            timeout_s: the longest time to wait.
        """
        if self._is_set:
            return True
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(timeout_s, self._end)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None
        return self._is_set

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
