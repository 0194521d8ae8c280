"""Times in the form of Java's ``SimpleDateFormat``, which options of Kafka's tools use."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import typer

_LETTERS: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


class JavaDateFormat:
    """Formats times as Java's SimpleDateFormat; it knows the letters of dates and times."""

    def __init__(self, pattern: str) -> None:
        """Take a pattern of Java's letters; refuse unknown letters."""
        parts = re.findall(r"([A-Za-z])(\1*)|([^A-Za-z]+)", pattern)
        self._parts = [other or first + more for first, more, other in parts]
        wrong = [each for each in self._parts if each[0].isalpha() and not self._knows(each)]
        if wrong:
            raise typer.BadParameter(
                f"{wrong[0]!r} is unknown; use {', '.join(_LETTERS)}, SSS",
                param_hint="'--date-format'",
            )

    def text(self, time_us: int) -> str:
        """Return a time, given in microseconds since the epoch, as text in the local time zone."""
        moment = datetime.fromtimestamp(time_us / 1e6)
        milliseconds = f"{time_us // 1000 % 1000:03d}"
        return "".join(
            milliseconds if part == "SSS" else moment.strftime(_LETTERS.get(part, part))
            for part in self._parts
        )

    @staticmethod
    def _knows(part: str) -> bool:
        return part == "SSS" or part in _LETTERS
