"""What a person sees while a command works: on stderr, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(title: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs.

    Yields:
        What to call with the number of bytes done so far. It does nothing where the bar would be
        in the way: stderr is no terminal, or the answer itself scrolls by on one.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda done_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(title, total=total_bytes)
        yield lambda done_bytes: progress.update(task, completed=done_bytes)


@contextmanager
def count_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of things done while the block runs; see `byte_progress`."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """Show that something is going on while the block runs."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(title):
        yield
