"""`ObservationCache`: observations of many things; a page refreshes a bounded number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_log.util import Clock

Key = TypeVar("Key")
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Observation(Generic[Seen]):
    """The observation of one thing.

    Attributes:
        observed_ms: the monotonic time before the observation.
        seen: the observed value.
    """

    observed_ms: float
    seen: Seen


class ObservationCache(Generic[Key, Seen]):
    """A cache of the last observation of each thing, while the thing exists. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._observations: dict[Key, Observation[Seen]] = {}
        self._lock = threading.Lock()

    def refresh(
        self,
        keys: Collection[Key],
        see: Callable[[Sequence[Key]], Sequence[Seen]],
        limit: int,
    ) -> dict[Key, Observation[Seen]]:
        """Observe some things again, and return the last observation of every known thing.

        Things without an observation come first, in the given order, then those with the oldest
        observations. Several calls observe all things, and each call costs the same.

        Args:
            keys: the keys of the things that exist.
            see: observes things, and returns their values in the same order.
            limit: the maximum number of things to observe now.
        """
        with self._lock:
            known = self._observations
            due = sorted(keys, key=lambda key: known[key].observed_ms if key in known else -1.0)
        now_ms = self._clock.monotonic_ms()
        seen = {key: Observation(now_ms, each) for key, each in _zip(due[:limit], see)}
        with self._lock:
            known = self._observations | seen
            self._observations = {key: known[key] for key in keys if key in known}
            return self._observations


def _zip(
    keys: Sequence[Key], see: Callable[[Sequence[Key]], Sequence[Seen]]
) -> Sequence[tuple[Key, Seen]]:
    return list(zip(keys, see(keys), strict=True)) if keys else []
