"""The ``transaction.timeout.ms`` of a transaction that lasts as long as a batch of Spark."""

from __future__ import annotations

from typing import Final

from spark_log.config import ClusterConfig

_BATCH_TIMEOUT_MS: Final = 900_000


def batch_timeout_ms(config: ClusterConfig, given_ms: int | None) -> int:
    """Return the timeout of a write or a job: by default 15 minutes, or less if the cluster says.

    Args:
        config: its ``transaction.max.timeout.ms`` limits the default.
        given_ms: the user's ``transaction.timeout.ms``, which is not checked here; None for the
            default.
    """
    return given_ms or min(_BATCH_TIMEOUT_MS, config.transaction_max_timeout_ms)
