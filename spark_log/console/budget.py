"""`Budget`: the time limit of one request, and its cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_log.errors import KafkaTimeoutError
from spark_log.util import Clock


class RequestCancelledError(Exception):
    """The client has disconnected, or has its answer, so the work for it stops."""


class Budget:
    """Time limit and cancellation of one request. The work calls `check` regularly."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        """Begin the time limit now.

        Args:
            clock: the clock whose monotonic time is used.
            timeout_ms: the time limit.
        """
        self.timeout_ms = timeout_ms
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + timeout_ms
        self._is_cancelled = threading.Event()
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], object]] = []

    def check(self) -> None:
        """Raise if the work has to stop.

        Raises:
            KafkaTimeoutError: the time limit has passed.
            RequestCancelledError: no client waits for the answer any more.
        """
        if self._is_cancelled.is_set():
            raise RequestCancelledError
        if self._clock.monotonic_ms() >= self._end_ms:
            raise self.timeout_error()

    def timeout_error(self) -> KafkaTimeoutError:
        """Return the error for a request whose time limit has passed."""
        return KafkaTimeoutError(
            f"the answer took longer than {self.timeout_ms / 1000:g} s, the time limit; ask for "
            f"fewer records or partitions"
        )

    def cancel(self) -> None:
        """Stop the work. Thread-safe."""
        with self._lock:
            self._is_cancelled.set()
            for interrupt in self._interrupts:
                interrupt()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Call ``interrupt`` when the budget is cancelled within the context."""
        with self._lock:
            self._interrupts.append(interrupt)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)
