"""A span of event time, as the user names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import typer

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_US, _MAX_US = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Timestamps from ``from_us`` to before ``to_us``, microseconds since the epoch; None: open."""

    from_us: int | None = None
    to_us: int | None = None

    @classmethod
    def parse(cls, from_time: str | None, to_time: str | None) -> TimeWindow:
        """Read both ends, see `parse_time_us`.

        Raises:
            typer.BadParameter: an end is not a time, or nothing can lie between them.
        """
        from_us = None if from_time is None else parse_time_us("--from-time", from_time)
        to_us = None if to_time is None else parse_time_us("--to-time", to_time)
        if from_us is not None and to_us is not None and from_us >= to_us:
            raise typer.BadParameter(f"--from-time {from_time} is not before --to-time {to_time}")
        return cls(from_us, to_us)

    @property
    def is_open(self) -> bool:
        """Whether it has neither start nor end."""
        return self.from_us is None and self.to_us is None

    def contains(self, times_us: np.ndarray) -> np.ndarray:
        """Return for each time whether it is inside."""
        inside: np.ndarray = times_us >= (_MIN_US if self.from_us is None else self.from_us)
        if self.to_us is not None:
            inside &= times_us < self.to_us
        return inside


def parse_time_us(option: str, text: str) -> int:
    """Return a time in microseconds since the epoch.

    Args:
        option: where it was given, for errors.
        text: digits are milliseconds since the epoch; all else is ISO 8601, UTC where it has no
            offset. Eight digits are refused: they could be either.

    Raises:
        typer.BadParameter: it is neither, or too far away.
    """
    if re.fullmatch(r"[0-9]{8}", text):
        raise typer.BadParameter(
            f"{text} could be a date or milliseconds since the epoch; "
            f"write the date as {text[:4]}-{text[4:6]}-{text[6:]}",
            param_hint=f"'{option}'",
        )
    if re.fullmatch(r"-?[0-9]+", text):
        time_us = int(text) * 1000
    else:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a time; give ISO 8601 like 2013-06-01T12:00:00 (UTC unless it "
                f"says otherwise), or milliseconds since the epoch",
                param_hint=f"'{option}'",
            ) from None
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        time_us = (aware - _EPOCH) // timedelta(microseconds=1)
    if not _MIN_US <= time_us <= _MAX_US:
        raise typer.BadParameter(f"{text} is too far away", param_hint=f"'{option}'")
    return time_us
