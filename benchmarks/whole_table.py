"""Prints tables without cutting figures, for any width of the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_ROOMY = 100_000


def print_whole(table: Table, console: Console | None = None) -> None:
    """Print a table without cutting a cell.

    Rich would shorten numbers to ``0.…`` if a table is wider than the terminal. Here the table's
    lines become longer than the terminal's, which wraps them.
    """
    console = console or Console()
    needed = console.measure(table, options=console.options.update(max_width=_ROOMY)).maximum
    console.width = max(console.width, needed)
    console.print(table)
