"""`RequestMemory`: bounds the memory of all requests that a gateway has at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Counts bytes of requests from their first byte to their answer; for one event loop.

    A request larger than the whole limit is admitted when there is no other.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Return a counter at 0.

        Args:
            limit_bytes: the maximum of all requests together.
        """
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.used_bytes = 0

    def reserve(self, size_bytes: int, on_free: Callable[[], None]) -> bool:
        """Take memory for a request, or wait in turn; return whether it was taken.

        Args:
            size_bytes: the size of the request.
            on_free: called when the memory has been taken after waiting.
        """
        if not self._waiting and self._has_room(size_bytes):
            self.used_bytes += size_bytes
            return True
        self._waiting.append((size_bytes, on_free))
        return False

    def withdraw(self, on_free: Callable[[], None]) -> None:
        """Stop waiting for memory."""
        self._waiting = deque(each for each in self._waiting if each[1] != on_free)
        self._admit()

    def release(self, size_bytes: int) -> None:
        """Give back the memory of a request."""
        self.used_bytes -= size_bytes
        self._admit()

    def _has_room(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self._limit_bytes

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, on_free = self._waiting.popleft()
            self.used_bytes += size_bytes
            on_free()
