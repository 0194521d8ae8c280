"""Wall clocks of simulated processes that are wrong by up to days, and jump at intervals.

Only wall clocks are wrong: the storage dates files by its own clock, and monotonic clocks are
correct. The errors are drawn from a separate random source, so that they do not change the other
choices of a seed. Used by the simulations of groups and of the offsets table.
"""

from __future__ import annotations

from random import Random

from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.scheduler import Scheduler, SimulatedClock

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_OFFSETS_MS = (
    *(0, 0),
    *(5 * _MINUTE_MS, -5 * _MINUTE_MS, 9 * _MINUTE_MS),  # within max.clock.skew.ms
    *(25 * _HOUR_MS, -25 * _HOUR_MS, 8 * 24 * _HOUR_MS, -8 * 24 * _HOUR_MS),
)
_JUMP_EVERY_MS = 5 * DELETE_DELAY_MS


class WrongClock(SimulatedClock):
    """The clock of the actor that reads it, with a wall-clock time that may be wrong."""

    def __init__(self, scheduler: Scheduler, seed: int, share: float) -> None:
        """Return the clocks of a seed, of which a share between 0 and 1 is wrong at any time."""
        super().__init__(scheduler)
        self._random = Random(f"{seed} clocks")
        self._share = share
        self._offsets: dict[tuple[str, int], int] = {}

    def time_us(self) -> int:
        """Return the wall-clock time; its error changes at intervals."""
        actor = self._scheduler.current
        if actor is None or not self._share:
            return super().time_us()
        # The error of each actor and interval is drawn at the first read.
        period = actor.name, int(self._scheduler.now_ms // _JUMP_EVERY_MS)
        if period not in self._offsets:
            is_wrong = self._random.random() < self._share
            self._offsets[period] = self._random.choice(_OFFSETS_MS) if is_wrong else 0
        return super().time_us() + self._offsets[period] * 1000
