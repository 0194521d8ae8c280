"""The reads that a gateway keeps open between two fetches, of all partitions together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from spark_log.gateway.partitions.log_cursor import LogCursor
from spark_log.log import IsolationLevel

MAX_CURSORS: Final = 1_024
"""Maximum number of reads that are kept. One takes about 11 kB at its log's end."""

MAX_HELD_BYTES: Final = 134_217_728
"""Maximum size of the records that they hold, of which clients have not asked for the rest yet."""

_Key = tuple[object, int, IsolationLevel]


class LogCursors:
    """Keeps the reads that were used last. Safe to use from several threads.

    The fetch that continues where an earlier one ended finds its read; a read that had to make room
    is begun again, by a listing of its log.
    """

    def __init__(
        self, max_cursors: int = MAX_CURSORS, max_held_bytes: int = MAX_HELD_BYTES
    ) -> None:
        """Keep nothing yet.

        Args:
            max_cursors: the maximum number of reads.
            max_held_bytes: the maximum size of the records that they hold.
        """
        self._max_cursors = max_cursors
        self._max_held_bytes = max_held_bytes
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._kept: OrderedDict[_Key, tuple[LogCursor, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of reads."""
        return len(self._kept)

    def take(self, log: object, offset: int, isolation_level: IsolationLevel) -> LogCursor | None:
        """Return the read of a log that continues at an offset; nobody else gets it.

        Args:
            log: the object that stands for the log.
            offset: the next offset.
            isolation_level: the isolation level of the read.
        """
        with self._lock:
            return self._pop((log, offset, isolation_level))

    def keep(self, log: object, cursor: LogCursor) -> None:
        """Keep a read; drop those that were not used for the longest time, if there are too many.

        Args:
            log: the object that stands for the log, until `drop`.
            cursor: the read.
        """
        key = log, cursor.next_offset, cursor.isolation_level
        with self._lock:
            self._pop(key)
            self._kept[key] = cursor, cursor.held_bytes
            self._held_bytes += cursor.held_bytes
            while len(self._kept) > self._max_cursors or self._held_bytes > self._max_held_bytes:
                self._pop(next(iter(self._kept)))

    def drop(self, log: object) -> None:
        """Drop all reads of a log."""
        with self._lock:
            for key in [each for each in self._kept if each[0] is log]:
                self._pop(key)

    def _pop(self, key: _Key) -> LogCursor | None:
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._held_bytes -= found[1]
        return found[0]
