"""Progress of a running command: on stderr, and only if stderr is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from spark_log.cli.format import output
from spark_log.util import printable

if TYPE_CHECKING:
    from rich.progress import Progress

_REFRESH_S: Final = 0.1
_POLL_S: Final = 2.0


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
def polled_progress(
    title: str, total: int, read: Callable[[], int]
) -> Iterator[Callable[[], None]]:
    """Show a bar of items done while the block runs, whose number has to be asked for.

    Args:
        title: the title of the bar.
        total: the number of all items.
        read: returns the number of items done.

    Yields:
        A function to call often, from any thread. It asks for the number every few seconds. It
        does nothing if stderr is not a terminal.
    """
    lock, read_s = threading.Lock(), -_POLL_S

    def poll() -> None:
        nonlocal read_s
        if lock.acquire(blocking=False):
            try:
                if time.monotonic() - read_s >= _POLL_S:
                    show(read())
                    read_s = time.monotonic()
            finally:
                lock.release()

    with count_progress(title, total) as show:
        yield poll if sys.stderr.isatty() else lambda: None


class ReplicaProgress:
    """Two bars: the number of completed replicas, and the bytes of the replica being copied."""

    def __init__(self, bars: Progress, title: str, total: int) -> None:
        """Draw the first bar.

        Args:
            bars: the progress display, with a column for the field ``figures``.
            title: the title of the bar.
            total: the number of replicas.
        """
        self._bars = bars
        self._total = total
        self._done = self._copied_bytes = self._remaining_bytes = 0
        self._all = bars.add_task(printable(title), total=total, figures=f"0/{total}")
        self._replica = bars.add_task("", total=None, figures="", visible=False)

    def begin(self, replica: str) -> None:
        """Begin with another replica."""
        self._copied_bytes = self._remaining_bytes = 0
        self._bars.reset(self._replica, total=None, description=printable(replica), figures="")

    def listed(self, remaining_bytes: int) -> None:
        """Set the number of bytes that are still to be copied to the replica."""
        self._remaining_bytes = remaining_bytes
        self._show()

    def copied(self, done_bytes: int) -> None:
        """Count a segment that was copied."""
        self._copied_bytes += done_bytes
        self._remaining_bytes = max(0, self._remaining_bytes - done_bytes)
        self._show()

    def end(self) -> None:
        """Count the replica."""
        self._done += 1
        figures = f"{self._done}/{self._total}"
        self._bars.update(self._all, completed=self._done, figures=figures, refresh=True)

    def _show(self) -> None:
        from rich.filesize import decimal

        total = self._copied_bytes + self._remaining_bytes
        self._bars.update(
            self._replica,
            completed=self._copied_bytes,
            total=total,
            figures=f"{decimal(self._copied_bytes)}/{decimal(total)}",
            visible=True,
        )


@contextmanager
def replica_progress(title: str, total: int) -> Iterator[ReplicaProgress]:
    """Show bars of replicas and bytes while the block copies replicas one after the other.

    They are shown only if stderr is a terminal.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
    )
    console = Console(stderr=True)
    is_hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as bars:
        yield ReplicaProgress(bars, title, total)


@contextmanager
def spinner(title: str) -> Iterator[None]:
    """Show a spinner while the block runs."""
    with status_line(title):
        yield


@contextmanager
def status_line(title: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner with a line of text while the block runs.

    Yields:
        A function to call with the text that replaces the title. It does nothing if stderr is not a
        terminal.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(title))) as status:
        yield lambda text: status.update(Text(printable(text)))


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
