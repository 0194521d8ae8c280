"""A window of event time, given as ``--from-time`` and ``--to-time``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import typer

from spark_log.config import parse_time_us

_MIN_US, _MAX_US = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Timestamps from ``from_us`` (included) to ``to_us`` (excluded), in µs since the epoch.

    None means that the window has no start, or no end.
    """

    from_us: int | None = None
    to_us: int | None = None

    @classmethod
    def parse(cls, from_time: str | None, to_time: str | None) -> TimeWindow:
        """Return the window between two times, each in a form that `parse_time_us` accepts.

        Raises:
            InvalidConfigurationError: an end is not a time.
            typer.BadParameter: the start is not before the end.
        """
        from_us = None if from_time is None else parse_time_us("--from-time", from_time)
        to_us = None if to_time is None else parse_time_us("--to-time", to_time)
        if from_us is not None and to_us is not None and from_us >= to_us:
            raise typer.BadParameter(f"--from-time {from_time} is not before --to-time {to_time}")
        return cls(from_us, to_us)

    @property
    def is_open(self) -> bool:
        """Whether the window has neither start nor end."""
        return self.from_us is None and self.to_us is None

    def contains(self, times_us: np.ndarray) -> np.ndarray:
        """Return for each time, in µs since the epoch, whether it is in the window."""
        inside: np.ndarray = times_us >= (_MIN_US if self.from_us is None else self.from_us)
        if self.to_us is not None:
            inside &= times_us < self.to_us
        return inside
