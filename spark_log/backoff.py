"""Pauses between retries."""

from __future__ import annotations

from random import Random
from typing import Final

_JITTER: Final = 0.2


def retry_pause_ms(failures: int, *, initial_ms: float, max_ms: float, random: Random) -> float:
    """Return how long to wait after a number of failures (KIP-580).

    The pause doubles with every failure, and varies by a fifth, so that clients that failed
    together do not retry together.

    Args:
        failures: number of failures in a row, at least 1.
        initial_ms: pause after the first failure, ``retry.backoff.ms``.
        max_ms: longest pause before it is varied, ``retry.backoff.max.ms``.
        random: varies the pause.
    """
    doubled_ms = initial_ms * 2.0 ** min(failures - 1, 40)
    return min(doubled_ms, max_ms) * random.uniform(1 - _JITTER, 1 + _JITTER)
