"""A read of a partition from its table, and from its log after the table's end."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.log.files import SegmentName
from spark_log.table.topic_table import PartitionTable, end_offset


@dataclass(frozen=True, slots=True)
class ReadOfBoth:
    """The parts of one read of a partition.

    Attributes:
        start: the first offset of the read.
        files: the Parquet segments whose rows from ``start`` on are read.
        log_start: the first offset that is read from the log.
    """

    start: int
    files: tuple[SegmentName, ...]
    log_start: int


def read_of_both(table: PartitionTable, log_start_offset: int) -> ReadOfBoth:
    """Return the parts of a read of a partition (protocol B12).

    Args:
        table: the partition in a version.
        log_start_offset: the log start offset, seen after the version was read.
    """
    start = max(table.start, log_start_offset)
    files = tuple(name for name in table.files if end_offset(name) > start)
    return ReadOfBoth(start, files, max(table.end, start))
