"""`CommitTimer`: decides when a mirror commits its transaction."""

from __future__ import annotations

import time
from typing import Final

from spark_log.mirror.mirror_settings import MirrorSettings

CATCH_UP: Final = 5
"""Factor by which a transaction may take longer while the mirror lags."""


class CommitTimer:
    """Counts the records of one transaction, and computes how long it may collect more of them.

    A commit costs round trips in which nothing is copied. While records wait in the source, which
    are late anyway, a transaction is longer, up to ``max_transaction_bytes``.

    Attributes:
        count: the number of records.
        size_bytes: the size of the records' columns.
    """

    def __init__(self, settings: MirrorSettings) -> None:
        """Begin the time of the transaction."""
        self.count = 0
        self.size_bytes = 0
        self._settings = settings
        self._began_s = time.monotonic()
        self._is_behind = False

    def add(self, count: int, size_bytes: int, *, is_behind: bool) -> None:
        """Count records.

        Args:
            count: the number of records.
            size_bytes: the size of the records' columns.
            is_behind: whether more records were waiting than were taken.
        """
        self.count += count
        self.size_bytes += size_bytes
        self._is_behind = is_behind

    def left_s(self) -> float:
        """Return the time for which the transaction may continue; at 0 or less, commit it."""
        if self.size_bytes >= self._settings.max_transaction_bytes:
            return 0.0
        times = CATCH_UP if self._is_behind else 1
        due_s = self._began_s + times * self._settings.commit_interval_ms / 1000
        return due_s - time.monotonic()
