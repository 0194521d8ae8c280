"""`RequestMemory`: bounds the memory of all requests that a gateway has at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

_TryAdmit = Callable[[], bool]
"""Takes memory for a waiter if there is room for it, and tells it; returns whether it did."""


class RequestMemory:
    """Counts bytes of requests until their answer is sent; for one event loop.

    A request takes memory as it arrives, so a client that announces a large request and sends it
    slowly does not hold up others. Requests that are not complete take at most half of the limit,
    because nothing but their clients can end them. One of them at a time may exceed this half, so
    that they cannot wait for each other for ever. The total exceeds the limit by at most one
    request, and by one batch of each fetch.

    Attributes:
        limit_bytes: the maximum of all requests together.
        used_bytes: the bytes that are taken.
        arriving_bytes: the part of them that requests have which are not complete.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Return a counter at 0.

        Args:
            limit_bytes: the maximum of all requests together.
        """
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.arriving_bytes = 0
        self._exceeding: ReservedMemory | None = None
        self._answers: set[asyncio.Future[bool]] = set()
        self._is_draining = False
        self._waiting: deque[_TryAdmit] = deque()
        self._is_admitting = False

    @property
    def has_waiting(self) -> bool:
        """Whether something waits for memory."""
        return bool(self._waiting)

    @property
    def max_answer_bytes(self) -> int:
        """The most bytes that one answer may reserve."""
        return max(1, self.limit_bytes // 4)

    def drain(self) -> None:
        """Let answers wait for no more memory: those that wait do without."""
        self._is_draining = True
        for taken in self._answers:
            if not taken.done():
                taken.set_result(False)

    # --- for `ReservedMemory` --------------------------------------------------------------------

    def try_arriving(self, reserved: ReservedMemory, size_bytes: int, rest_bytes: int) -> int:
        """Take memory for a request that arrives; return the bytes that were taken.

        Args:
            reserved: the request's memory.
            size_bytes: the bytes that have arrived since.
            rest_bytes: the bytes that the whole request still needs. They are taken at once if the
                request is the one that exceeds the half.
        """
        half_bytes = self.limit_bytes // 2
        has_room = self.arriving_bytes + size_bytes <= half_bytes
        if not has_room or self.used_bytes + size_bytes > self.limit_bytes:
            if self._exceeding is not None or self.used_bytes - self.arriving_bytes > half_bytes:
                return 0
            self._exceeding = reserved
            size_bytes = rest_bytes
        self.arriving_bytes += size_bytes
        self.used_bytes += size_bytes
        return size_bytes

    def try_answer(self, size_bytes: int) -> bool:
        """Take memory for an answer; return whether there was room."""
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    async def wait_for_answer(self, taken: asyncio.Future[bool], timeout_s: float) -> bool:
        """Wait until an answer has its memory; return false after a timeout, or while draining.

        Args:
            taken: has the result true when the memory is taken.
            timeout_s: the longest time to wait.
        """
        if self._is_draining:
            return taken.done()
        self._answers.add(taken)
        try:
            await asyncio.wait([taken], timeout=timeout_s)
        finally:
            self._answers.discard(taken)
        return taken.done() and taken.result()

    def on_arrived(self, reserved: ReservedMemory) -> None:
        """Record that a request is complete, or is given up."""
        self.arriving_bytes -= reserved.size_bytes
        if self._exceeding is reserved:
            self._exceeding = None
        self.admit()

    def wait(self, try_admit: _TryAdmit) -> None:
        """Call a function when there may be room, in turn, until it returns true."""
        self._waiting.append(try_admit)

    def withdraw(self, try_admit: _TryAdmit) -> None:
        """Stop calling a function."""
        self._waiting = deque(each for each in self._waiting if each != try_admit)
        self.admit()

    def change(self, size_bytes: int) -> None:
        """Take memory whether or not there is room; a negative size gives memory back."""
        self.used_bytes += size_bytes
        if size_bytes < 0:
            self.admit()

    def admit(self) -> None:
        """Let those that wait have what there is, in turn."""
        if self._is_admitting:
            return  # the caller was admitted by the loop below, which goes on
        self._is_admitting = True
        try:
            while self._waiting:
                waiting = self._waiting
                first = waiting.popleft()
                if not first():
                    self._waiting.appendleft(first)
                    break
        finally:
            self._is_admitting = False


class ReservedMemory:
    """The memory of one request and of its answer.

    Attributes:
        size_bytes: the bytes that it has taken.
        is_waiting: whether the rest of the request waits for memory.
    """

    __slots__ = (
        "_frame_bytes",
        "_is_arriving",
        "_is_released",
        "_kept",
        "_memory",
        "_on_memory",
        "is_waiting",
        "size_bytes",
    )

    def __init__(
        self, memory: RequestMemory, frame_bytes: int, on_memory: Callable[[], None]
    ) -> None:
        """Return the memory of a request that begins to arrive; nothing is taken yet.

        Args:
            memory: the memory of all requests.
            frame_bytes: the size of the request; 0 if it is not counted.
            on_memory: called when the rest of the request has its memory, after it has waited.
        """
        self._memory = memory
        self._frame_bytes = frame_bytes
        self._on_memory = on_memory
        self._is_arriving = True
        self._is_released = False
        self._kept = 0
        self.size_bytes = 0
        self.is_waiting = False

    # --- the request -----------------------------------------------------------------------------

    def grow(self, received_bytes: int) -> bool:
        """Take memory for what has arrived; return whether it was taken.

        If it was not, the request waits for all that it still needs.

        Args:
            received_bytes: the bytes of the request that have arrived.
        """
        if self.is_waiting:
            return False
        more_bytes = min(received_bytes, self._frame_bytes) - self.size_bytes
        if more_bytes <= 0:
            return True
        if not self._memory.has_waiting and self._take(more_bytes):
            return True
        self.is_waiting = True
        self._memory.wait(self._try_rest)
        return False

    def arrived(self) -> None:
        """Record that the request is complete."""
        self._is_arriving = False
        self._memory.on_arrived(self)

    def _take(self, size_bytes: int) -> bool:
        taken_bytes = self._memory.try_arriving(
            self, size_bytes, self._frame_bytes - self.size_bytes
        )
        self.size_bytes += taken_bytes
        return bool(taken_bytes)

    def _try_rest(self) -> bool:
        if not self._take(self._frame_bytes - self.size_bytes):
            return False
        self.is_waiting = False
        self._on_memory()
        return True

    # --- the answer ------------------------------------------------------------------------------

    @property
    def max_answer_bytes(self) -> int:
        """The most bytes that the answer may reserve."""
        return self._memory.max_answer_bytes

    async def reserve(self, size_bytes: int, timeout_s: float) -> bool:
        """Take memory for the answer, or wait in turn; return whether it was taken.

        Args:
            size_bytes: the bytes.
            timeout_s: the longest time to wait.
        """
        memory = self._memory
        if not memory.has_waiting and memory.try_answer(size_bytes):
            self.size_bytes += size_bytes
            return True
        if timeout_s <= 0:
            return False
        taken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def try_admit() -> bool:
            if taken.done() or not memory.try_answer(size_bytes):
                return False
            self.size_bytes += size_bytes
            taken.set_result(True)
            return True

        memory.wait(try_admit)
        is_taken = False
        try:
            is_taken = await memory.wait_for_answer(taken, timeout_s)
        finally:
            if not (taken.done() and taken.result()):
                memory.withdraw(try_admit)
        return is_taken

    def change(self, size_bytes: int) -> None:
        """Take memory for the answer whether or not there is room; a negative size gives it back.

        Args:
            size_bytes: the bytes.
        """
        self.size_bytes += size_bytes
        self._memory.change(size_bytes)

    # --- the end ---------------------------------------------------------------------------------

    def keep_until(self, future: asyncio.Future[Any]) -> None:
        """Keep the memory also after the answer, until a future is done: it uses the request."""
        self._kept += 1
        future.add_done_callback(self._on_kept)

    def _on_kept(self, future: asyncio.Future[Any]) -> None:
        self._kept -= 1
        if self._is_released and not self._kept:
            self._give_back()

    def release(self) -> None:
        """Give back everything: the request has ended, or has lost its client."""
        self._is_released = True
        if self.is_waiting:
            self.is_waiting = False
            self._memory.withdraw(self._try_rest)
        if self._is_arriving:
            self.arrived()
        if not self._kept:
            self._give_back()

    def _give_back(self) -> None:
        size_bytes, self.size_bytes = self.size_bytes, 0
        self._memory.change(-size_bytes)
