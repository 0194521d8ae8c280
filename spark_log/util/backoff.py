"""Pauses between retries."""

from __future__ import annotations

from random import Random
from typing import Final

_JITTER: Final = 0.2


def retry_pause_ms(failures: int, *, initial_ms: float, max_ms: float, random: Random) -> float:
    """Return the pause after a number of failures, in milliseconds (KIP-580).

    The pause doubles with every failure, and varies by a fifth, so that clients that failed
    together do not retry together.

    Args:
        failures: the number of failures in a row, at least 1.
        initial_ms: the pause after the first failure, ``retry.backoff.ms``.
        max_ms: the longest pause before it is varied, ``retry.backoff.max.ms``.
        random: the random numbers that vary the pause.
    """
    doubled_ms = initial_ms * 2.0 ** min(failures - 1, 40)
    return min(doubled_ms, max_ms) * random.uniform(1 - _JITTER, 1 + _JITTER)
