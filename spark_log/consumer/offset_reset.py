"""Where a consumer begins in a partition when nothing else says so (``auto.offset.reset``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from spark_log.log import PartitionLog

ResetPolicy = timedelta | Literal["earliest", "latest", "none"]
"""What ``config.offset_reset`` makes of ``auto.offset.reset``."""


def reset_offset(
    log: PartitionLog, policy: timedelta | Literal["earliest", "latest"], now_us: int
) -> int:
    """Return the offset that a policy means in a partition now.

    Args:
        log: the partition's.
        policy: a duration is the first record that is no older, else the log's end (KIP-1106).
        now_us: the wall clock, microseconds since the epoch.
    """
    view = log.observe()
    if policy == "earliest":
        return view.log_start_offset
    if isinstance(policy, timedelta):
        found = log.offset_for_time(now_us - policy // timedelta(microseconds=1), view)
        if found is not None:
            return found[0]
    return view.log_end_offset
