"""Where a job writes records: console, files or a Delta table."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from spark_log.errors import InvalidOptionError
from spark_log.jobs.report import Counts, json_value


class Sink(StrEnum):
    """Where records read from the log go."""

    CONSOLE = "console"
    PARQUET = "parquet"
    DELTA = "delta"
    JSONL = "jsonl"


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
            print(json.dumps(row.asDict(recursive=True), default=json_value))  # noqa: T201
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
