"""Limits work to a number of bytes per second (Kafka's ``Throttler``)."""

from __future__ import annotations

import math
import threading

from spark_log.util.clock import SYSTEM_CLOCK, Clock


class Throttle:
    """A limit in bytes per second, which several threads may share."""

    def __init__(self, bytes_per_second: float = math.inf, clock: Clock = SYSTEM_CLOCK) -> None:
        """Set the limit.

        Args:
            bytes_per_second: maximum bytes read and written, in total; infinite for no limit.
            clock: the clock to wait by.
        """
        if not bytes_per_second > 0:
            raise ValueError(f"bytes_per_second must be above 0, not {bytes_per_second}")
        self._bytes_per_ms = bytes_per_second / 1000
        self._clock = clock
        self._free_ms = -math.inf
        self._lock = threading.Lock()

    def __call__(self, done_bytes: int) -> None:
        """Wait until ``done_bytes`` more bytes are within the limit."""
        if math.isinf(self._bytes_per_ms):
            return
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._free_ms = max(self._free_ms, now_ms) + done_bytes / self._bytes_per_ms
            pause_ms = self._free_ms - now_ms
        self._clock.sleep_ms(pause_ms)
