"""Pauses between retries."""

from __future__ import annotations

from random import Random
from typing import Final

from spark_log.config import ProducerConfig

_JITTER: Final = 0.2


def retry_pause_ms(config: ProducerConfig, failures: int, random: Random) -> float:
    """Return how long to wait after a number of failures, at least 1 (KIP-580).

    ``retry.backoff.ms`` doubles with every failure up to ``retry.backoff.max.ms``, and varies by a
    fifth, so that clients that failed together do not retry together.
    """
    doubled_ms = config.retry_backoff_ms * 2.0 ** min(failures - 1, 40)
    jitter = random.uniform(1 - _JITTER, 1 + _JITTER)
    return min(doubled_ms, config.retry_backoff_max_ms) * jitter
