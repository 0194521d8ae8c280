"""What the jobs in ``jobs/`` share: a session, a progress bar, sinks for records, a report."""

from __future__ import annotations

import json
import os
import random
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

from spark_log.datasource.options import STORAGE_PREFIX
from spark_log.errors import InvalidOptionError
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
    """Return the session that ``spark-submit`` prepared, or a new one."""
    spark = SparkSession.builder.appName(f"spark-log {name}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
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
    terminal = _terminal()
    if terminal is None:
        yield
        return
    console = Console(file=terminal)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TextColumn("tasks"), TimeElapsedColumn(), console=console) as progress:
        shown = progress.add_task(title, total=None)
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

    def write(self, records: DataFrame) -> int:
        """Write records, and return how many there were."""
        if not self.binary:
            records = records.withColumns(
                {name: F.col(name).cast("string") for name in ("key", "value")}
            )
        counted = Observation("records")
        observed = records.observe(counted, F.count(F.lit(1)).alias("records"))
        if self.sink is Sink.CONSOLE:
            for row in records.limit(self.show).collect() if self.show else []:
                print(json.dumps(row.asDict(recursive=True), default=_as_json))  # noqa: T201
            observed.write.format("noop").mode("overwrite").save()
        elif self.sink is Sink.DELTA:
            observed.write.format("delta").mode("append").save(self.path)
        else:
            assert self.path is not None
            _append_files(observed, "json" if self.sink is Sink.JSONL else "parquet", self.path)
        return int(counted.get["records"])


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
    with suppress(Exception):  # py4j's: others stage there
        files.delete(staging, False)


class Report:
    """What a job did, for a person or for a machine."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._entries: dict[str, Any] = {}

    def add(self, **entries: Any) -> None:
        """Add entries, shown in order."""
        self._entries.update(entries)

    def add_rate(self, records: int, seconds: float) -> None:
        """Add how many records were handled, in how long, and so at what rate."""
        self.add(
            records=records,
            seconds=round(seconds, 3),
            records_per_second=round(records / seconds) if seconds else 0,
        )

    def print(self, *, as_json: bool) -> None:
        """Print it to stdout: a table, or one JSON document on one line."""
        if as_json:
            print(json.dumps(self._entries, default=_as_json))  # noqa: T201
            sys.stdout.flush()
            return
        table = Table(title=self._title, show_header=False, title_justify="left")
        for name, value in self._entries.items():
            text = f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), text)
        Console().print(table)


def _terminal() -> TextIO | None:
    """Return the terminal that the user watches.

    ``spark-submit`` joins its Python's stdout and stderr in a pipe: what a terminal may be is its
    own stderr.
    """
    if sys.stderr.isatty():
        return sys.stderr
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with suppress(OSError):
            parents = open(f"/proc/{os.getppid()}/fd/2", "w")  # noqa: SIM115 - the console's
            if parents.isatty():
                return parents
            parents.close()
    return None


def _as_json(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat else str(value)
