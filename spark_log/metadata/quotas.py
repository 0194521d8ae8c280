"""The quota of a client. The client itself enforces it by pauses."""

from __future__ import annotations

import math
from typing import Final

UNLIMITED: Final = 2**63 - 1
"""The value for a client without a quota."""

BURST_S: Final = 11
"""Number of seconds whose quota an idle client may use at once: Kafka's ``quota.window.num`` (11)
times ``quota.window.size.seconds`` (1)."""


class ClientQuota:
    """Limits a client to bytes per second, by a pause after each operation (KIP-13, KIP-219).

    In any period of *s* seconds the client starts at most the quota of *s* + `BURST_S` seconds.
    This is Kafka's ``TokenBucket`` (KIP-599). A broker limits bytes per second by its ``Rate``
    instead, which forgets everything older than eleven seconds, excess included: a client that
    sends the quota of 21 seconds at once then runs 1.9 times too fast. Spark-log cannot use it:
    one batch may be megabytes, while requests to a broker are small.

    A changed quota starts afresh, without the bytes that were recorded before. A lower quota does
    not delay a client for bytes that the old quota allowed, and a higher quota applies at once.
    """

    __slots__ = ("_bytes_per_second", "_counted_ms", "_left_bytes")

    def __init__(self) -> None:
        """Return a quota that is `UNLIMITED`."""
        self._bytes_per_second = UNLIMITED
        self._left_bytes = math.inf
        self._counted_ms = 0.0

    @property
    def bytes_per_second(self) -> int:
        """The quota; `UNLIMITED` if there is none."""
        return self._bytes_per_second

    @property
    def most_bytes(self) -> int:
        """Maximum bytes of one operation, so that a pause is not much longer than one second."""
        return self._bytes_per_second

    @property
    def throttled_until_ms(self) -> float:
        """Monotonic time until which the client has to pause; -inf without a quota."""
        if self._left_bytes >= 0:
            return -math.inf
        return self._counted_ms - self._left_bytes * 1000 / self._bytes_per_second

    def is_throttled(self, now_ms: float) -> bool:
        """Return whether the client has to pause."""
        return now_ms < self.throttled_until_ms

    def change(self, bytes_per_second: int) -> None:
        """Set the quota; an unchanged value has no effect."""
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second = bytes_per_second
            self._left_bytes = self._burst_bytes

    def record(self, size_bytes: int, now_ms: float) -> float:
        """Record bytes that were just sent or read; return the pause in milliseconds."""
        if self._bytes_per_second == UNLIMITED:
            return 0.0
        earned_bytes = (now_ms - self._counted_ms) * self._bytes_per_second / 1000
        self._left_bytes = min(self._burst_bytes, self._left_bytes + earned_bytes) - size_bytes
        self._counted_ms = now_ms
        return max(0.0, self.throttled_until_ms - now_ms)

    @property
    def _burst_bytes(self) -> float:
        return math.inf if self._bytes_per_second == UNLIMITED else self._bytes_per_second * BURST_S
