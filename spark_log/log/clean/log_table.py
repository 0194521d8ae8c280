"""The table of a log, as those who clean the log see it (docs/protocol/table.md).

A topic may be a Delta table whose files are Parquet segments of its logs. What is deleted from a
log has to suit the table. `spark_log.table` knows tables; this package knows only the questions.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Protocol

from spark_log.log.files import SegmentName


class CompactionLimits(NamedTuple):
    """The demands of a table on a compaction that takes its generation next.

    Attributes:
        names_end: whether the compaction names its end in its generation's file (protocol B6).
        tombstones_from: the offset from which on no tombstone may be removed (protocol B13).
    """

    names_end: bool = False
    tombstones_from: float = math.inf


NO_LIMITS: Final = CompactionLimits()
"""The limits of a log without a table."""


class LogTable(Protocol):
    """The table of one partition's log."""

    def allows(self, name: SegmentName, now_us: int) -> bool:
        """Return whether the name of a Parquet segment may be freed (protocol B9, B10).

        Args:
            name: the segment's name, which a listing of the log showed as spent for
                ``file.delete.delay.ms`` at ``now_us``.
            now_us: the storage's time, or earlier, microseconds since the epoch.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """

    def move_start(self, offset: int) -> None:
        """Move the table's start up to an offset that the log's start has reached (protocol B11).

        Raises:
            StorageError: the table's start was not moved.
        """

    def compaction_limits(self, now_us: int) -> CompactionLimits:
        """Return what the table asks of a compaction that has listed the log.

        Args:
            now_us: the storage's time, or earlier, microseconds since the epoch.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
