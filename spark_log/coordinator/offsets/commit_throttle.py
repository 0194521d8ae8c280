"""Lets the commits of other processes take their turn, so that no process wins most of the races.

The process that made the newest version knows the table's state. All others have to read that
version before they can make the next one. Without pauses the first process would win repeatedly,
while a commit of another process waits for hundreds of versions. A process whose versions alternate
with those of others therefore pauses after each of its own, for a quarter of the time that the
others need for theirs. Its own commits gather meanwhile and share the next version.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar


class CommitThrottle:
    """Decides how long a process waits before its next version. For one thread at a time.

    Attributes:
        max_pause_ms: the maximum pause; a longer one would be noticed by a caller of one commit.
    """

    max_pause_ms: ClassVar[float] = 50.0

    def __init__(self, random: Random | None = None) -> None:
        """Return the throttle of a process that has made no version.

        Args:
            random: the random numbers that spread the pauses, so that processes do not collide
                again.
        """
        self._random = random or Random()
        self._version: int | None = None
        self._next_ms = 0.0

    def pause_ms(self, now_ms: float) -> float:
        """Return the milliseconds to wait before the next version; 0 if no other process commits.

        Args:
            now_ms: the present monotonic time.
        """
        return max(0.0, self._next_ms - now_ms)

    def on_appended(self, version: int, took_ms: float, now_ms: float) -> None:
        """Plan the next version after one of this process.

        Args:
            version: the version's number.
            took_ms: the duration of the attempt that made it.
            now_ms: the present monotonic time.
        """
        others = 0 if self._version is None else version - self._version - 1
        self._version = version
        mean_ms = min(others * took_ms / 4, self.max_pause_ms)
        self._next_ms = now_ms + mean_ms * self._random.uniform(0.5, 1.5)
