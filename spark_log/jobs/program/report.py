"""The report that a job prints when it ends."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_log.util import printable


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of records that a job processed.

    Attributes:
        read: records read.
        written: records written, or shown on the console.
    """

    read: int
    written: int


class JobReport:
    """The report of a job, as a table or as JSON."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._entries: dict[str, Any] = {}

    def add(self, **entries: Any) -> None:
        """Add entries, shown in order."""
        self._entries.update(entries)

    def add_counts(self, counts: Counts, seconds: float) -> None:
        """Add the number of records read and written, the duration and the rate."""
        self.add(
            records_read=counts.read,
            records_written=counts.written,
            seconds=round(seconds, 3),
            records_per_second=round(counts.read / seconds) if seconds else 0,
        )

    def warn(self, text: str) -> None:
        """Add a warning."""
        self.add(warning=text)

    def print(self, *, as_json: bool) -> None:
        """Print the report to stdout: a table, or one JSON document on one line."""
        if as_json:
            print(json.dumps(self._entries, default=json_value))
            sys.stdout.flush()
            return
        # Nothing is cut off: long values are folded.
        table = Table(title=self._title, show_header=False, title_justify="left")
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in self._entries.items():
            text = f"{value:,}" if type(value) is int else printable(str(value))  # not of a bool
            table.add_row(Text(name.replace("_", " ")), Text(text))
        console = Console()
        with console.capture() as printed:
            console.print(table)
        print(printed.get(), end="", flush=True)


def json_value(value: object) -> object:
    """Return a value that JSON cannot represent as text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat else str(value)
