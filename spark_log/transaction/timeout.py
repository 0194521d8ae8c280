"""The default ``transaction.timeout.ms`` of a transaction that covers a Spark batch."""

from __future__ import annotations

from typing import Final

from spark_log.config import ClusterConfig

_BATCH_TIMEOUT_MS: Final = 900_000


def batch_timeout_ms(config: ClusterConfig, given_ms: int | None) -> int:
    """Return the transaction timeout of a write or a job.

    Args:
        config: the cluster's configuration; ``transaction.max.timeout.ms`` limits the default.
        given_ms: the user's ``transaction.timeout.ms``, which is not checked here; None for the
            default, 15 minutes.
    """
    return given_ms or min(_BATCH_TIMEOUT_MS, config.transaction_max_timeout_ms)
