"""Time, injected: nothing in this package reads a clock except through these classes."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the package needs to know about time."""

    def time_us(self) -> int:
        """Wall-clock time in microseconds since the epoch; may jump."""

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never goes back, counts while suspended."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Return when ``duration_ms`` milliseconds have passed on this clock."""


class SystemClock:
    """The machine's clocks.

    The monotonic side is ``CLOCK_BOOTTIME`` where there is one: a laptop or a virtual machine
    that slept has aged, and the append protocol's rule on late success must see that.
    """

    _MONOTONIC_ID = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

    time_ns = staticmethod(time.time_ns)
    """The wall clock in nanoseconds, for where a call in C counts."""

    def time_us(self) -> int:
        """See `Clock.time_us`."""
        return time.time_ns() // 1000

    def monotonic_ms(self) -> float:
        """See `Clock.monotonic_ms`."""
        if self._MONOTONIC_ID is None:
            return time.monotonic_ns() / 1e6
        return time.clock_gettime_ns(self._MONOTONIC_ID) / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        """See `Clock.sleep_ms`."""
        time.sleep(max(0.0, duration_ms) / 1000)


class ManualClock:
    """A clock that moves only when told to: for tests and simulations."""

    def __init__(self, time_us: int = 1_700_000_000_000_000) -> None:
        self._time_us = time_us
        self._elapsed_us = 0
        self._moved = threading.Condition()

    def time_us(self) -> int:
        """See `Clock.time_us`."""
        return self._time_us

    def monotonic_ms(self) -> float:
        """See `Clock.monotonic_ms`."""
        return self._elapsed_us / 1000

    def sleep_ms(self, duration_ms: float) -> None:
        """Block until other threads have advanced the clock far enough."""
        until_us = self._elapsed_us + int(duration_ms * 1000)
        with self._moved:
            self._moved.wait_for(lambda: self._elapsed_us >= until_us)

    def advance_ms(self, duration_ms: float) -> None:
        """Move both the wall clock and the monotonic clock forward."""
        with self._moved:
            moved_us = math.ceil(duration_ms * 1000)  # rounded down, a wait for the rest never ends
            self._time_us += moved_us
            self._elapsed_us += moved_us
            self._moved.notify_all()


SYSTEM_CLOCK = SystemClock()
