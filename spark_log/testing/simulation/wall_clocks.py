"""Wall clocks of simulated machines: days apart, and jumping, while the storage has one of its own.

Drawn from a source of chance of their own, so that a seed's other choices stay what they are.
"""

from __future__ import annotations

from random import Random

from spark_log.testing.simulation.scheduler import Scheduler, SimulatedClock

_DAY_US = 86_400_000_000
_SHIFTS_US = tuple(
    int(days * _DAY_US) for days in (0, 0, 1 / 86_400, -1 / 86_400, 1.05, -1.05, 2, -2, 8, -8, 400)
)
"""How far a clock may be off: not at all, a second, little more than a day, a week, a year."""

_JUMP_CHANCE = 0.02
"""How often a clock is set, each time that somebody reads it."""

UNLIMITED_MS = 2**62
"""``max.clock.skew.ms`` where the difference is meant."""


class WallClocks(SimulatedClock):
    """The clock of whichever actor reads it, as `SimulatedClock`; their dates differ.

    Attributes:
        max_skew_ms: ``max.clock.skew.ms`` of the simulation.
        are_right: whether all clocks of this seed show the storage's time.
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        """Draw how wrong clocks are.

        Args:
            scheduler: tells who reads.
            seed: of the simulation.
        """
        super().__init__(scheduler)
        self._random = Random(f"wall clocks of {seed}")
        self._shifts_us: dict[str, int] = {}
        self._set: dict[str, int] = {}
        self.are_right = self._random.random() < 0.3
        # Where nobody refuses, the storage's time alone keeps what is to be kept.
        self.max_skew_ms = self._random.choice((UNLIMITED_MS, UNLIMITED_MS, 600_000))

    def time_us(self) -> int:
        """See `Clock.time_us`: that of the machine that the actor is on."""
        return super().time_us() + self._shift_us()

    def times_set(self) -> int:
        """Return how often the clock of the actor that runs has been set."""
        return self._set.get(self._name(), 0)

    def is_far_off(self) -> bool:
        """Return whether the clock of the actor that runs is further off than is allowed."""
        return abs(self._shift_us()) > self.max_skew_ms * 1000

    def _name(self) -> str:
        actor = self._scheduler.current
        return "" if actor is None else actor.name

    def _shift_us(self) -> int:
        name = self._name()
        if self.are_right or not name:
            return 0
        is_set = self._random.random() < _JUMP_CHANCE
        if is_set or name not in self._shifts_us:
            self._shifts_us[name] = self._random.choice(_SHIFTS_US)
            self._set[name] = self._set.get(name, 0) + 1
            if self._shifts_us[name]:
                days = self._shifts_us[name] / _DAY_US
                self._scheduler.note(f"its clock is set {days:.4g} days off")
        return self._shifts_us[name]
