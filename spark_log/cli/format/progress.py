"""Progress of a running command: on stderr, and only if stderr is a terminal."""

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
    """Show a progress bar while the block runs.

    Answers printed in the meantime appear above the bar, even if both go to the same terminal.

    Yields:
        A function to call with the number of bytes done so far. It does nothing if stderr is not a
        terminal.
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
    """Show a bar of items done while the block runs.

    Yields:
        A function to call with the number of items done so far. It does nothing if stderr is not a
        terminal.
    """
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
    """Show a spinner while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(title))):
        yield


@contextmanager
def _above(bar: Progress) -> Iterator[None]:
    """Clear the bar's line before answers are printed; the bar is drawn again below them.

    A bar is one line, and the cursor stays at its end, so clearing that line is enough. If stdout
    is not a terminal, answers cannot touch the bar.
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
