"""The offset at which a consumer starts without a committed offset (``auto.offset.reset``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from spark_log.log import PartitionLog

ResetPolicy = timedelta | Literal["earliest", "latest", "none"]
"""The value of ``auto.offset.reset``, as ``config.offset_reset`` parses it."""


def reset_offset(
    log: PartitionLog, policy: timedelta | Literal["earliest", "latest"], now_us: int
) -> int:
    """Return the current offset of a policy in a partition.

    Args:
        log: the log of the partition.
        policy: a duration gives the first record that is not older, or the log's end (KIP-1106).
        now_us: wall clock time, microseconds since the epoch.
    """
    view = log.observe()
    if policy == "earliest":
        return view.log_start_offset
    if isinstance(policy, timedelta):
        found = log.offset_for_time(now_us - policy // timedelta(microseconds=1), view)
        if found is not None:
            return found[0]
    return view.log_end_offset
