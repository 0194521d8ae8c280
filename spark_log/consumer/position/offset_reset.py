"""The offset at which a consumer starts without a committed offset (``auto.offset.reset``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from spark_log.errors import (
    LogTruncatedError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from spark_log.log import IsolationLevel, LogView, PartitionLog
from spark_log.types import TopicPartition

ResetPolicy = timedelta | Literal["earliest", "latest", "none"]
"""The value of ``auto.offset.reset``, as ``config.offset_reset`` parses it."""


def start_offset(
    tp: TopicPartition,
    log: PartitionLog,
    committed: int | None,
    policy: ResetPolicy,
    now_us: int,
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    view: LogView | None = None,
) -> int:
    """Return the committed offset if the log has it, or else the current offset of a policy.

    Args:
        tp: the partition.
        log: the partition's log.
        committed: the offset that the group committed; None if it committed none.
        policy: the reset policy. A duration gives the first record that is not older, or the log's
            end (KIP-1106).
        now_us: the wall clock time, in microseconds since the epoch.
        isolation_level: the isolation level. With ``read_committed`` the log's end is its last
            stable offset.
        view: the log's view, listed just now; None to list it here.

    Raises:
        NoOffsetForPartitionError: no offset is committed, and the policy is ``none``.
        OffsetOutOfRangeError: the records at the committed offset were deleted, and the policy is
            ``none``.
        LogTruncatedError: the committed offset lies after the log's end, with any policy.
    """
    if committed is None and policy == "none":
        raise NoOffsetForPartitionError(
            f"there is no committed offset for {tp}, and auto.offset.reset is none; seek, reset "
            f"the group's offsets, or set auto.offset.reset to earliest or latest",
            topic=tp.topic,
            partition=tp.partition,
        )
    view = view or log.observe()
    if committed is not None:
        if view.log_start_offset <= committed <= view.log_end_offset:
            return committed
        if committed > view.log_end_offset:
            raise log_truncated(tp, committed, view)
        if policy == "none":
            raise OffsetOutOfRangeError(
                f"the committed offset {committed} of {tp} is out of range: the log has offsets "
                f"from {view.log_start_offset} to before {view.log_end_offset}; reset the group's "
                f"offsets, or set auto.offset.reset to earliest or latest",
                offset=committed,
                log_start_offset=view.log_start_offset,
                log_end_offset=view.log_end_offset,
            )
    if policy == "earliest":
        return view.log_start_offset
    if isinstance(policy, timedelta):
        time_us = now_us - policy // timedelta(microseconds=1)
        found = log.offset_for_time(time_us, view, isolation_level=isolation_level)
        if found is not None:
            return found[0]
    return log.end_offset(view, isolation_level=isolation_level)


def log_truncated(tp: TopicPartition, offset: int, view: LogView) -> LogTruncatedError:
    """Return the error for an offset that was read or committed and lies after the log end."""
    return LogTruncatedError(
        f"{tp}: the log ends at offset {view.log_end_offset}, but records before offset {offset} "
        f"were read, or offset {offset} was committed: files were removed. Restore them from a "
        f"copy. To continue without them, seek, or reset the group's offsets",
        path=str(tp),
        log_end_offset=view.log_end_offset,
        witnessed_offset=offset,
    )
