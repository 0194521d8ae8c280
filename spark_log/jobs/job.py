"""What the jobs in ``jobs/`` share: a session, a progress bar, sinks for records, a report."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TextIO

import typer
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spark_log.datasource.options.options import STORAGE_PREFIX
from spark_log.datasource.worker_process import REDACTION, REDACTION_SETTING
from spark_log.errors import InvalidOptionError
from spark_log.printable import printable
from spark_log.storage import StorageOptions

_POLL_S = 0.2

SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="For the file system of a Delta table. Repeatable. [default: those of the root]",
    ),
]
"""Storage options of a Delta table that a job writes to; None for those of the root."""


class Sink(StrEnum):
    """Where records read from the log go."""

    CONSOLE = "console"
    PARQUET = "parquet"
    DELTA = "delta"
    JSONL = "jsonl"


def job_session(name: str) -> SparkSession:
    """Return the session that ``spark-submit`` prepared, or a new one.

    Unless ``PYSPARK_PYTHON`` says otherwise, tasks run the Python of this process: Spark would take
    the ``python3`` on the ``PATH``, another one where an environment is not activated. Unless
    ``spark.redaction.regex`` is set, the session shows no options for the file system.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(f"spark-log {name}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    if spark.conf.get(REDACTION_SETTING, None) is None:
        # `spark.conf.set` refuses settings of Spark's core; the builder sets them for the session.
        SparkSession.builder.config(REDACTION_SETTING, REDACTION).getOrCreate()
    return spark


def connection_options(root: str, storage_options: StorageOptions) -> dict[str, str]:
    """Return what every read and write of ``format("spark_log")`` needs to find the root."""
    storage = {f"{STORAGE_PREFIX}{key}": str(value) for key, value in storage_options.items()}
    return {"path": root, **storage}


def instant(text: str | None, flag: str) -> datetime | None:
    """Return the time that an option names; None for none.

    Args:
        text: ISO 8601, in UTC unless it names a zone.
        flag: of the option.

    Raises:
        InvalidOptionError: it is no time.
    """
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOptionError(
            f"{flag} is {text!r}, expected ISO 8601, such as 2013-07-04 or 2013-07-04T12:00:00Z",
            key=flag,
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@contextmanager
def spark_progress(spark: SparkSession, title: str) -> Iterator[None]:
    """Show on the terminal, if any, how many tasks of the running stages are done."""
    with _terminal() as terminal:
        if terminal is None:
            yield
        else:
            with _task_progress(spark, title, Console(file=terminal)):
                yield


@contextmanager
def _task_progress(spark: SparkSession, title: str, console: Console) -> Iterator[None]:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("tasks"), TimeElapsedColumn(), console=console) as progress:
        shown = progress.add_task(printable(title), total=None)
        done = threading.Event()

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_POLL_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                total = sum(stage.numTasks for stage in stages if stage)
                completed = sum(stage.numCompletedTasks for stage in stages if stage)
                if total:
                    progress.update(shown, total=total, completed=completed)

        watcher = threading.Thread(target=watch, daemon=True, name="spark-progress")
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@dataclass(frozen=True, slots=True)
class Counts:
    """What a job did with records.

    Attributes:
        read: how many it read.
        written: how many it wrote, or showed on the console.
    """

    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a job's records go: a group of options (see `cli.option_groups`).

    Attributes:
        sink: what kind of thing it is.
        path: the table or directory, appended to; None for the console.
        show: how many records the console shows.
        binary: keys and values stay bytes instead of becoming text.
    """

    sink: Sink
    path: str | None
    show: int
    binary: bool

    @classmethod
    def from_options(
        cls,
        to: Annotated[Sink, typer.Option(help="Where the records go.")] = Sink.CONSOLE,
        path: Annotated[str | None, typer.Option(help="Directory or table, appended to.")] = None,
        show: Annotated[int, typer.Option(min=0, help="Records that the console shows.")] = 20,
        binary: Annotated[bool, typer.Option(help="Keep keys and values as bytes.")] = False,
    ) -> Destination:
        """Check the options.

        Raises:
            InvalidOptionError: the sink needs a path and got none.
        """
        if to is not Sink.CONSOLE and not path:
            raise InvalidOptionError(f"--to {to} needs --path", key="path")
        return cls(to, path, show, binary)

    def __str__(self) -> str:
        return self.path or self.sink.value

    def write(self, records: DataFrame) -> Counts:
        """Write records, and return how many were read and how many of them were written."""
        if not self.binary:
            records = records.withColumns(
                {name: F.col(name).cast("string") for name in ("key", "value")}
            )
        counted = Observation("records")
        observed = records.observe(counted, F.count(F.lit(1)).alias("records"))
        if self.sink is Sink.CONSOLE:
            shown = self._print(observed)
            return Counts(int(counted.get["records"]), shown)
        if self.sink is Sink.DELTA:
            observed.write.format("delta").mode("append").save(self.path)
        else:
            assert self.path is not None
            _append_files(observed, "json" if self.sink is Sink.JSONL else "parquet", self.path)
        written = int(counted.get["records"])
        return Counts(written, written)

    def _print(self, records: DataFrame) -> int:
        """Print the first records of each topic and partition; all of them are read."""
        if not self.show:
            records.write.format("noop").mode("overwrite").save()
            return 0
        # Without an order Spark stops reading at the limit, and Python workers that still write
        # print BrokenPipeError; and the rest would have to be counted by another query.
        rows = records.orderBy("topic", "partition", "offset").limit(self.show).collect()
        for row in rows:
            print(json.dumps(row.asDict(recursive=True), default=_as_json))  # noqa: T201
        return len(rows)


def _append_files(records: DataFrame, spark_format: str, path: str) -> None:
    """Add files to a directory that others may be adding to at the same time.

    Hadoop's committer stages in ``_temporary/<attempt>``. All have attempt 0 if nothing is said,
    and who commits first takes what the others have staged so far, and removes the rest: a task
    whose file is gone then may commit nothing, without a word. So each has an attempt of its own,
    and removes nothing else.
    """
    attempt = random.randrange(1, 2**31)
    writer = records.write.format(spark_format).mode("append")
    writer = writer.option("mapreduce.job.application.attempt.id", attempt)
    try:
        writer.option("mapreduce.fileoutputcommitter.cleanup.skipped", "true").save(path)
    finally:
        _remove_staged(records.sparkSession, path, attempt)


def _remove_staged(spark: SparkSession, path: str, attempt: int) -> None:
    jvm: Any = spark._jvm
    staging = jvm.org.apache.hadoop.fs.Path(path, "_temporary")
    files = staging.getFileSystem(spark._jsc.hadoopConfiguration())
    files.delete(jvm.org.apache.hadoop.fs.Path(staging, str(attempt)), True)
    with suppress(Exception):  # py4j's: others stage there, or nobody did
        files.delete(staging, False)


class Report:
    """What a job did, for a person or for a machine."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._entries: dict[str, Any] = {}

    def add(self, **entries: Any) -> None:
        """Add entries, shown in order."""
        self._entries.update(entries)

    def add_counts(self, counts: Counts, seconds: float) -> None:
        """Add how many records were read and written, in how long, and so at what rate."""
        self.add(
            records_read=counts.read,
            records_written=counts.written,
            seconds=round(seconds, 3),
            records_per_second=round(counts.read / seconds) if seconds else 0,
        )

    def warn(self, text: str) -> None:
        """Add a sentence about something that is probably not as it was meant."""
        self.add(warning=text)

    def print(self, *, as_json: bool) -> None:
        """Print it to stdout: a table, or one JSON document on one line."""
        if as_json:
            print(json.dumps(self._entries, default=_as_json))  # noqa: T201
            sys.stdout.flush()
            return
        # Nothing is cut: long values go on in the next line.
        table = Table(title=self._title, show_header=False, title_justify="left")
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in self._entries.items():
            text = f"{value:,}" if type(value) is int else printable(str(value))  # not of a bool
            table.add_row(Text(name.replace("_", " ")), Text(text))
        console = Console()
        with console.capture() as printed:
            console.print(table)
        print(printed.get(), end="", flush=True)  # noqa: T201


@contextmanager
def _terminal() -> Iterator[TextIO | None]:
    """Yield the terminal that the user watches; None where there is none.

    ``spark-submit`` joins its Python's stdout and stderr in a pipe: what a terminal may be is its
    own stderr.
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
    """Open a terminal for writing; None for anything else.

    A file that the user redirects stderr to is not opened at all. Nothing is ever truncated: mode
    "w" of `open` would empty such a file.
    """
    with suppress(OSError):
        if not stat.S_ISCHR(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        if os.isatty(descriptor):
            return os.fdopen(descriptor, "w", encoding="utf-8")
        os.close(descriptor)
    return None


def _as_json(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat else str(value)
