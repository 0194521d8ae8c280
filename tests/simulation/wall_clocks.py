"""Wall clocks of simulated machines, which are wrong by up to days and jump.

The storage has its own clock. The errors are drawn from a separate random source, so that they do
not change the other choices of a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from spark_log.storage import StorageClock, Store
from spark_log.storage.storage_time import StorageTime
from spark_log.util.clock import Clock
from tests.simulation.scheduler import Scheduler, SimulatedClock

_DAY_US = 86_400_000_000
_SHIFTS_US = tuple(
    int(days * _DAY_US) for days in (0, 0, 1 / 86_400, -1 / 86_400, 1.05, -1.05, 2, -2, 8, -8, 400)
)
"""Possible errors of a clock: none, a second, little more than a day, days, more than a year."""

_JUMP_CHANCE = 0.02
"""Probability that a clock jumps when an actor reads it."""

UNLIMITED_MS = 2**62
"""``max.clock.skew.ms`` of a simulation in which wrong clocks are allowed."""


class WallClocks(SimulatedClock):
    """The clock of the actor that reads it; the actors' wall clocks differ.

    Attributes:
        max_skew_ms: ``max.clock.skew.ms`` of the simulation.
        are_correct: whether all wall clocks of this seed show the storage's time.
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        """Draw the errors of the clocks.

        Args:
            scheduler: knows the actor that reads.
            seed: the simulation's seed.
        """
        super().__init__(scheduler)
        self._random = Random(f"wall clocks of {seed}")
        self._shifts_us: dict[str, int] = {}
        self._set: dict[str, int] = {}
        self.are_correct = self._random.random() < 0.3
        # Without a limit, only the use of the storage's time protects records and files.
        self.max_skew_ms = self._random.choice((UNLIMITED_MS, UNLIMITED_MS, 600_000))

    def time_us(self) -> int:
        """Return the wall-clock time of the running actor's machine."""
        return super().time_us() + self._shift_us()

    def jump_count(self) -> int:
        """Return how often the running actor's clock has jumped."""
        return self._set.get(self._name(), 0)

    def is_far_off(self) -> bool:
        """Return whether the running actor's clock exceeds the allowed skew."""
        return abs(self._shift_us()) > self.max_skew_ms * 1000

    def _name(self) -> str:
        actor = self._scheduler.current
        return "" if actor is None else actor.name

    def _shift_us(self) -> int:
        name = self._name()
        if self.are_correct or not name:
            return 0
        is_set = self._random.random() < _JUMP_CHANCE
        if is_set or name not in self._shifts_us:
            self._shifts_us[name] = self._random.choice(_SHIFTS_US)
            self._set[name] = self._set.get(name, 0) + 1
            if self._shifts_us[name]:
                days = self._shifts_us[name] / _DAY_US
                self._scheduler.note(f"its clock is set {days:.4g} days off")
        return self._shifts_us[name]


class OwnTime(StorageClock):
    """Gives the process's own time for the storage's, which it only compares with its clock."""

    def __init__(self, clock: Clock) -> None:
        """Ask nothing yet; ``clock`` is the process's clock."""
        super().__init__(clock)
        self.clock = clock

    def read(self, store: Store, directory: str) -> StorageTime:
        """Return the process's own time."""
        shown = super().read(store, directory)
        return _ComparedTime(self.clock.time_us(), shown.asked_ms, shown)


@dataclass(frozen=True, slots=True)
class _ComparedTime(StorageTime):
    shown: StorageTime

    def present_us(self, clock: Clock) -> int:
        return self.shown.present_us(clock)
