"""What a person sees while a command works: on stderr, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spark_log.cli.format import output
from spark_log.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress

_REFRESH_S: Final = 0.1


@contextmanager
def byte_progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs.

    Answers that are printed meanwhile stand above the bar, also where both are one terminal.

    Yields:
        What to call with the number of bytes done so far; does nothing where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda done_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,  # a thread could draw into the middle of an answer
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with _above(bar), bar:
        task = bar.add_task(printable(title), total=total_bytes)
        drawn_s = -_REFRESH_S

        def show(done_bytes: int) -> None:
            nonlocal drawn_s
            bar.update(task, completed=done_bytes)
            if time.monotonic() - drawn_s >= _REFRESH_S:
                bar.refresh()
                drawn_s = time.monotonic()

        yield show


@contextmanager
def count_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of things done while the block runs; see `byte_progress`."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(title), total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """Show that something is going on while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(title))):
        yield


@contextmanager
def _above(bar: Progress) -> Iterator[None]:
    """Let what is printed take the line of the bar, which is drawn again below it.

    A bar is one line, and the cursor stays at its end: clearing that line is enough. Where stdout
    is no terminal, nothing that is printed touches the bar.
    """
    if not sys.stdout.isatty():
        yield
        return

    def clear() -> None:
        if bar.live.is_started:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    output.before_printing = clear
    try:
        yield
    finally:
        output.before_printing = None
