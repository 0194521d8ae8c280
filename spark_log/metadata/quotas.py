"""A client that keeps its own quota: how long it has to pause."""

from __future__ import annotations

import math
from typing import Final

UNLIMITED: Final = 2**63 - 1
"""The quota of who has none."""

BURST_S: Final = 11
"""Who was idle may have the share of so many seconds at once: Kafka's ``quota.window.num`` (11) of
``quota.window.size.seconds`` (1)."""


class ClientQuota:
    """One client, held to bytes a second by pauses after what it did (KIP-13, KIP-219).

    Within any time no more is begun than its seconds' share and that of `BURST_S` more. This is
    Kafka's ``TokenBucket`` (KIP-599). The ``Rate`` by which a broker holds clients to bytes a
    second forgets what went by eleven seconds ago, and with it what of that was too much: who does
    at once what is worth 21 seconds goes 1.9 times as fast as it may. A broker's requests are
    small; here one batch may be megabytes.

    A quota that was changed begins anew: what went by before does not count, so that a lower one
    keeps nobody waiting for what was allowed, and a higher one counts at once.
    """

    __slots__ = ("_bytes_per_second", "_counted_ms", "_left_bytes")

    def __init__(self) -> None:
        """Begin without a quota."""
        self._bytes_per_second = UNLIMITED
        self._left_bytes = math.inf
        self._counted_ms = 0.0

    @property
    def bytes_per_second(self) -> int:
        """The quota; `UNLIMITED` without one."""
        return self._bytes_per_second

    @property
    def most_bytes(self) -> int:
        """What is to be done at once at most, so that no pause is much longer than a second."""
        return self._bytes_per_second

    @property
    def throttled_until_ms(self) -> float:
        """Before this nothing is to be done, on the monotonic clock; -inf without a quota."""
        if self._left_bytes >= 0:
            return -math.inf
        return self._counted_ms - self._left_bytes * 1000 / self._bytes_per_second

    def is_throttled(self, now_ms: float) -> bool:
        """Whether the client has to wait."""
        return now_ms < self.throttled_until_ms

    def change(self, bytes_per_second: int) -> None:
        """Keep another quota from now on; nothing happens where it is the same."""
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second = bytes_per_second
            self._left_bytes = self._burst_bytes

    def record(self, size_bytes: int, now_ms: float) -> float:
        """Count what was just done; return how many milliseconds the client has to wait."""
        if self._bytes_per_second == UNLIMITED:
            return 0.0
        earned_bytes = (now_ms - self._counted_ms) * self._bytes_per_second / 1000
        self._left_bytes = min(self._burst_bytes, self._left_bytes + earned_bytes) - size_bytes
        self._counted_ms = now_ms
        return max(0.0, self.throttled_until_ms - now_ms)

    @property
    def _burst_bytes(self) -> float:
        return math.inf if self._bytes_per_second == UNLIMITED else self._bytes_per_second * BURST_S
