"""`Looks`: what was seen of many things, of which one page looks at a bounded number again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_log.clock import Clock

Key = TypeVar("Key")
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Look(Generic[Seen]):
    """What was seen of one thing.

    Attributes:
        looked_ms: monotonic time before it was looked at.
        seen: what was seen.
    """

    looked_ms: float
    seen: Seen


class Looks(Generic[Key, Seen]):
    """Remembers what was seen of each thing, until it does not exist any more. For any thread."""

    def __init__(self, clock: Clock) -> None:
        """Remember nothing yet."""
        self._clock = clock
        self._looks: dict[Key, Look[Seen]] = {}
        self._lock = threading.Lock()

    def refresh(
        self,
        keys: Collection[Key],
        see: Callable[[Sequence[Key]], Sequence[Seen]],
        limit: int,
    ) -> dict[Key, Look[Seen]]:
        """Look at some things again, and return what was seen of all that were ever looked at.

        Those that no call has looked at come first, in the given order, then those that were looked
        at longest ago. So several calls look at all, and each costs the same.

        Args:
            keys: the things that exist.
            see: looks at things, and returns what it saw, in the same order.
            limit: most things to look at now.
        """
        with self._lock:
            looks = self._looks
            due = sorted(keys, key=lambda key: looks[key].looked_ms if key in looks else -1.0)
        now_ms = self._clock.monotonic_ms()
        seen = {key: Look(now_ms, each) for key, each in _zip(due[:limit], see)}
        with self._lock:
            known = self._looks | seen
            self._looks = {key: known[key] for key in keys if key in known}
            return self._looks


def _zip(
    keys: Sequence[Key], see: Callable[[Sequence[Key]], Sequence[Seen]]
) -> Sequence[tuple[Key, Seen]]:
    return list(zip(keys, see(keys), strict=True)) if keys else []
