"""A progress bar for the tasks of Spark's running stages."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TextIO

from pyspark import Accumulator
from pyspark.sql import SparkSession
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spark_log.util import printable

_POLL_S = 0.2


@contextmanager
def spark_progress(
    spark: SparkSession,
    title: str,
    done_bytes: Accumulator[int] | None = None,
    details: Callable[[], str] | None = None,
) -> Iterator[None]:
    """Show on the terminal, if there is one, the number of completed tasks of the running stages.

    Args:
        spark: the session.
        title: the title of the bar: the work of the tasks.
        done_bytes: the accumulator of the bytes of completed tasks; None to show no bytes.
        details: returns the text behind the number of tasks; None shows the bytes, if any.
    """
    if details is None and done_bytes is not None:
        details = partial(_bytes_text, done_bytes)
    with _terminal() as terminal:
        if terminal is None:
            yield
        else:
            with _task_progress(spark, title, details, Console(file=terminal)):
                yield


@contextmanager
def _task_progress(
    spark: SparkSession, title: str, details: Callable[[], str] | None, console: Console
) -> Iterator[None]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        shown = progress.add_task(printable(title), total=None, done="")
        done = threading.Event()

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_POLL_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                completed = sum(stage.numCompletedTasks for stage in stages if stage)
                if details is not None and (text := details()):
                    progress.update(shown, done=f", {text}")
                if total:
                    progress.update(shown, total=total, completed=completed)

        watcher = threading.Thread(target=watch, daemon=True, name="spark-progress")
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _bytes_text(done_bytes: Accumulator[int]) -> str:
    return decimal(done_bytes.value)


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Yield the user's terminal; None if there is none.

    ``spark-submit`` connects stdout and stderr of its Python to a pipe. The terminal, if there is
    one, is the stderr of ``spark-submit``.
    """
    opened = None
    if "PYSPARK_GATEWAY_PORT" in os.environ and not sys.stderr.isatty():
        opened = _open_terminal(f"/proc/{os.getppid()}/fd/2")
    if opened is None:
        yield sys.stderr if sys.stderr.isatty() else None
        return
    with opened:
        yield opened


def _open_terminal(path: str) -> TextIO | None:
    """Open a terminal for writing; None if the path is anything else.

    If the user redirects stderr to a file, the file is not opened at all. In mode "w", `open` would
    truncate it.
    """
    with suppress(OSError):
        if not stat.S_ISCHR(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        if os.isatty(descriptor):
            return os.fdopen(descriptor, "w", encoding="utf-8")
        os.close(descriptor)
    return None
