"""A lower bound of the committed prefix on a replica that is not in sync."""

from __future__ import annotations

from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.local_log import LocalLog


def committed_end_of(replica: LocalLog, last: LocalLog) -> int:
    """Return an offset up to which a replica has only records that all in-sync replicas have.

    A replica that is not in sync may have records that were never acknowledged, if it once led the
    partition.

    Args:
        replica: a replica that is not in sync.
        last: the last in-sync replica.

    Returns:
        The offset; 0 if it is not known.

    Raises:
        StorageError, CorruptRecordError: one of the two replicas cannot be read.
    """
    committed = last.files.observe()
    view = replica.files.observe()
    end_offset = min(view.log_end_offset, committed.log_end_offset)
    if end_offset <= max(view.log_start_offset, committed.log_start_offset):
        return 0
    try:
        here = replica.leader_epoch_at(end_offset - 1, view)
        there = last.leader_epoch_at(end_offset - 1, committed)
    except OffsetOutOfRangeError:  # deleted since
        return 0
    return end_offset if here == there else 0
