"""When the first record was written that a reader at some offset has not read: lag in time."""

from __future__ import annotations

from spark_log.errors import SparkLogError
from spark_log.log.partition_log import PartitionLog


def first_unread_us(log: PartitionLog, offset: int) -> int | None:
    """Return the timestamp of the first record from an offset on, microseconds since the epoch.

    None where there is none, or it cannot be read: who asks for lag is not to fail for it.
    """
    try:
        batches = log.fetch(offset, 1, columns=["timestamp"], check_crcs=False)
    except SparkLogError as error:
        log.suppressed.add("lag in time", log.directory, error)
        return None
    if not batches:
        return None
    return int(batches[0].records.column("timestamp")[0].value)
