"""Wall clocks of simulated processes that are days apart, and jump.

Only what processes read as the time of day is wrong. The storage dates files by its own clock, and
monotonic clocks go on. All of it is drawn from a source of its own, so that a simulation with right
clocks runs as it would without them.
"""

from __future__ import annotations

from random import Random

from spark_log.testing.simulation.log.profile import DELETE_DELAY_MS
from spark_log.testing.simulation.scheduler import Scheduler, SimulatedClock

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_OFFSETS_MS = (
    *(0, 0),
    *(5 * _MINUTE_MS, -5 * _MINUTE_MS, 9 * _MINUTE_MS),  # within max.clock.skew.ms
    *(25 * _HOUR_MS, -25 * _HOUR_MS, 8 * 24 * _HOUR_MS, -8 * 24 * _HOUR_MS),
)
_JUMP_EVERY_MS = 5 * DELETE_DELAY_MS


class WrongClock(SimulatedClock):
    """The clock of whichever actor reads it, with a time of day that may be anything."""

    def __init__(self, scheduler: Scheduler, seed: int, share: float) -> None:
        """Args: share: how many of the clocks are wrong at a time."""
        super().__init__(scheduler)
        self._random = Random(f"{seed} clocks")
        self._share = share
        self._offsets: dict[tuple[str, int], int] = {}

    def time_us(self) -> int:
        """See `Clock.time_us`: wrong by as much until it jumps."""
        actor = self._scheduler.current
        if actor is None or not self._share:
            return super().time_us()
        # Each actor's clock jumps from time to time: the first who reads it finds out to where.
        period = actor.name, int(self._scheduler.now_ms // _JUMP_EVERY_MS)
        if period not in self._offsets:
            is_wrong = self._random.random() < self._share
            self._offsets[period] = self._random.choice(_OFFSETS_MS) if is_wrong else 0
        return super().time_us() + self._offsets[period] * 1000
