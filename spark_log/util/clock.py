"""Clocks. The package reads time only through these classes, so that tests can replace it."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def time_us(self) -> int:
        """Return the wall-clock time in microseconds since the epoch; it may jump."""

    def monotonic_ms(self) -> float:
        """Return milliseconds since a fixed moment; never goes back, includes suspended time."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait until ``duration_ms`` milliseconds have passed on this clock."""


class SystemClock:
    """The clocks of this machine.

    The monotonic clock is ``CLOCK_BOOTTIME`` where it exists: it includes the time in which a
    laptop or a virtual machine was suspended, which the append protocol's rule on late success
    needs.
    """

    _MONOTONIC_ID = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

    time_ns = staticmethod(time.time_ns)
    """The wall clock in nanoseconds, for code in which an extra Python call is too slow."""

    def __repr__(self) -> str:
        return "<SystemClock>"

    def time_us(self) -> int:
        """Return the wall-clock time in microseconds since the epoch; it may jump."""
        return time.time_ns() // 1000

    def monotonic_ms(self) -> float:
        """Return milliseconds since a fixed moment; never goes back, includes suspended time."""
        if self._MONOTONIC_ID is None:
            return time.monotonic_ns() / 1e6
        return time.clock_gettime_ns(self._MONOTONIC_ID) / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        """Sleep for ``duration_ms`` milliseconds."""
        time.sleep(max(0.0, duration_ms) / 1000)


class ManualClock:
    """A clock that only moves when `advance_ms` is called: for tests and simulations."""

    def __init__(self, time_us: int = 1_700_000_000_000_000) -> None:
        self._time_us = time_us
        self._elapsed_us = 0
        self._moved = threading.Condition()

    def time_us(self) -> int:
        """Return the wall-clock time in microseconds since the epoch."""
        return self._time_us

    def monotonic_ms(self) -> float:
        """Return the milliseconds by which the clock was advanced."""
        return self._elapsed_us / 1000

    def sleep_ms(self, duration_ms: float) -> None:
        """Block until other threads have advanced the clock by ``duration_ms``."""
        until_us = self._elapsed_us + int(duration_ms * 1000)
        with self._moved:
            self._moved.wait_for(lambda: self._elapsed_us >= until_us)

    def advance_ms(self, duration_ms: float) -> None:
        """Move both the wall clock and the monotonic clock forward."""
        with self._moved:
            moved_us = math.ceil(duration_ms * 1000)  # rounded down, a sleep might never end
            self._time_us += moved_us
            self._elapsed_us += moved_us
            self._moved.notify_all()


SYSTEM_CLOCK = SystemClock()
