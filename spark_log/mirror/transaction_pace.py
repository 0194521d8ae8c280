"""`TransactionPace`: when a mirror commits its transaction."""

from __future__ import annotations

import time
from typing import Final

from spark_log.mirror.mirror_settings import MirrorSettings

CATCH_UP: Final = 5
"""How many times longer a transaction may take while the mirror is behind."""


class TransactionPace:
    """Counts the records of one transaction, and says how long it may still collect.

    A commit costs round trips in which nothing is copied. So a transaction is longer while records
    are waiting that nobody sees in time anyway, up to ``max_transaction_bytes``.

    Attributes:
        count: number of records.
        size_bytes: of their columns.
    """

    def __init__(self, settings: MirrorSettings) -> None:
        """Begin now."""
        self.count = 0
        self.size_bytes = 0
        self._settings = settings
        self._began_s = time.monotonic()
        self._is_behind = False

    def add(self, count: int, size_bytes: int, *, is_behind: bool) -> None:
        """Count records.

        Args:
            count: how many.
            size_bytes: of their columns.
            is_behind: whether more were waiting than were taken.
        """
        self.count += count
        self.size_bytes += size_bytes
        self._is_behind = is_behind

    def left_s(self) -> float:
        """Return how long the transaction may go on; 0 or less: commit it."""
        if self.size_bytes >= self._settings.max_transaction_bytes:
            return 0.0
        times = CATCH_UP if self._is_behind else 1
        due_s = self._began_s + times * self._settings.commit_interval_ms / 1000
        return due_s - time.monotonic()
