"""The memory that waiting records share: ``buffer.memory`` (Kafka's ``BufferPool``)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spark_log.errors import BufferExhaustedError
from spark_log.util import Clock

_log = logging.getLogger(__name__)


class BufferPool:
    """Counts the bytes of records that are not acknowledged, and makes senders wait for room.

    Callers hold ``lock`` for every method; `allocate` releases it while it waits.

    Attributes:
        total_bytes: ``buffer.memory``.
        used_bytes: the bytes in use.
        waiting_threads: number of threads that wait for room.
        blocked_ms: time that all threads have waited for room, in total.
    """

    def __init__(
        self,
        lock: threading.Lock,
        clock: Clock,
        *,
        total_bytes: int,
        max_block_ms: float,
        on_full: Callable[[], None],
        cause: Callable[[], str],
    ) -> None:
        """Begin with an empty pool.

        Args:
            lock: the producer's lock.
            clock: the clock by which ``max.block.ms`` is measured.
            total_bytes: ``buffer.memory``.
            max_block_ms: ``max.block.ms``.
            on_full: called when a thread begins to wait, to have waiting records appended.
            cause: returns the reason why the pool is full, for the error message.
        """
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.waiting_threads = 0
        self.blocked_ms = 0.0
        self._clock = clock
        self._max_block_ms = max_block_ms
        self._on_full = on_full
        self._cause = cause
        self._has_room = threading.Condition(lock)
        self._is_closed = False

    def allocate(self, size_bytes: int) -> bool:
        """Allocate memory; wait for it up to ``max.block.ms``.

        A request for more than the whole pool waits until the pool is empty.

        Returns:
            Whether it waited; the lock was released meanwhile.

        Raises:
            BufferExhaustedError: the pool had no room in time; nothing was allocated.
        """
        must_wait = self._is_too_full_for(size_bytes)
        if must_wait:
            began_ms = self._clock.monotonic_ms()
            self.waiting_threads += 1
            _log.debug(
                "buffer.memory is full: a thread waits for %d bytes; %d of %d bytes are in use",
                size_bytes,
                self.used_bytes,
                self.total_bytes,
            )
            try:
                self._on_full()
                while self._is_too_full_for(size_bytes) and not self._is_closed:
                    waited_ms = self._clock.monotonic_ms() - began_ms
                    if waited_ms >= self._max_block_ms:
                        raise BufferExhaustedError(
                            f"no room for {size_bytes} bytes within max.block.ms "
                            f"({self._max_block_ms}): {self.used_bytes} of {self.total_bytes} "
                            f"bytes (buffer.memory) wait to be acknowledged. {self._cause()}: "
                            f"send less at once, or raise buffer.memory",
                            size_bytes=size_bytes,
                            buffer_bytes=self.total_bytes,
                        )
                    self._has_room.wait((self._max_block_ms - waited_ms) / 1000)
            finally:
                self.waiting_threads -= 1
                self.blocked_ms += self._clock.monotonic_ms() - began_ms
        self.used_bytes += size_bytes
        return must_wait

    def deallocate(self, size_bytes: int) -> None:
        """Return memory to the pool, and wake the threads that wait for it."""
        self.used_bytes -= size_bytes
        if self.waiting_threads:
            self._has_room.notify_all()

    def close(self) -> None:
        """Let the waiting threads continue; the producer then refuses their records."""
        self._is_closed = True
        self._has_room.notify_all()

    def _is_too_full_for(self, size_bytes: int) -> bool:
        return bool(self.used_bytes and self.used_bytes + size_bytes > self.total_bytes)
