"""Lag in time: the timestamp of the first record that a reader has not read yet."""

from __future__ import annotations

from spark_log.errors import SparkLogError
from spark_log.log.partition_log import PartitionLog


def first_unread_us(log: PartitionLog, offset: int) -> int | None:
    """Return the timestamp of the first record at or after an offset, microseconds since the epoch.

    None if there is no such record, or if it cannot be read: a metric of lag must not fail. The
    error is counted in `PartitionLog.suppressed`.
    """
    try:
        batches = log.fetch(offset, 1, columns=["timestamp"], check_crcs=False)
    except SparkLogError as error:
        log.suppressed.add("lag in time", log.directory, error)
        return None
    if not batches:
        return None
    return int(batches[0].records.column("timestamp")[0].value)
