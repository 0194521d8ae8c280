"""The names and the tombstones that the table still needs (protocol B9, B10, B13)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spark_log.log.files import SegmentName
from spark_log.table.next_version import could_add
from spark_log.table.topic_table import CleanupPolicy, PartitionTable


def is_needed(name: SegmentName, history: Sequence[PartitionTable]) -> bool:
    """Return whether the table needs the name of a Parquet segment, which may then not be freed.

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

    A reader that began at a time reads the newest version that existed then.

    Args:
        times_us: version → time at which its file appeared, by the storage's clock.
        before_us: the time of the earliest reader: the storage's current time, or an earlier one,
            less ``table.deleted.file.retention.ms``.

    Returns:
        The version; 0 if all are newer; -1 if it was deleted, so that nothing may be freed.
    """
    newer = [version for version, time_us in times_us.items() if time_us > before_us]
    first = max(min(newer) - 1, 0) if newer else max(times_us, default=-1)
    return first if first in times_us else -1


def tombstone_limit(history: Sequence[PartitionTable]) -> float:
    """Return the offset from which on a compaction of the log removes no tombstone (protocol B13).

    A reader of table and log reads the table up to its end, and the log from that offset on. If the
    table has the record that a tombstone deletes, only the tombstone shows the deletion.

    Args:
        history: the partition in each version from the one that was the newest
            ``delete.retention.ms`` ago to the newest, read after the log was listed.
    """
    ends = [each.end for each in history if each.setting.policy != CleanupPolicy.NONE]
    return min(ends, default=math.inf)
