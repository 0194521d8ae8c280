"""The names and the tombstones that the table still needs (protocol B9, B10, B13)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spark_log.log.files import SegmentName
from spark_log.table.next_version import could_add
from spark_log.table.partition_table import CleanupPolicy, PartitionTable


def is_needed(name: SegmentName, history: Sequence[PartitionTable]) -> bool:
    """Return whether the name of a Parquet segment may not be freed, whatever the log allows.

    Args:
        name: the segment's name, which is spent in a listing of the log.
        history: the partition in each version that a reader may still read
            (`first_version_needed`), oldest first. The last is the newest version, read after the
            name was spent (protocol B9). Empty if no version exists.
    """
    if any(name in table.files for table in history):
        return True
    return bool(history) and could_add(history[-1], name)


def first_version_needed(times_us: Mapping[int, int], before_us: int) -> int:
    """Return the oldest version that a reader may still read (protocol B10).

    That is the newest one that is not newer than a time, since it was the table then.

    Args:
        times_us: by version, when its file appeared, by the storage's clock.
        before_us: the storage's present time, or earlier, less
            ``table.deleted.file.retention.ms``.

    Returns:
        The version; 0 if all are newer; -1 if it was deleted, so that nothing may be freed.
    """
    newer = [version for version, time_us in times_us.items() if time_us > before_us]
    first = max(min(newer) - 1, 0) if newer else max(times_us, default=-1)
    return first if first in times_us else -1


def tombstone_limit(history: Sequence[PartitionTable]) -> float:
    """Return the offset from which on a compaction of the log removes no tombstone (protocol B13).

    A reader of both reads the table up to its end and the log from there on. The record that a
    tombstone deletes may be in the table, and then only the tombstone tells that it is gone.

    Args:
        history: the partition in each version from the one that was the newest
            ``delete.retention.ms`` ago to the newest, read after the log was listed.
    """
    ends = [each.end for each in history if each.setting.policy != CleanupPolicy.NONE]
    return min(ends, default=math.inf)
