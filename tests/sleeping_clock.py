"""A clock on which a sleep takes no time."""

from spark_log.util.clock import ManualClock


class SleepingClock(ManualClock):
    """A clock that a sleep moves on.

    Attributes:
        slept_ms: the sum of all sleeps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms = 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        """Move the clock."""
        self.slept_ms += duration_ms
        self.advance_ms(duration_ms)
