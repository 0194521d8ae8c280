"""The destination of a job's records: console, files or a Delta table."""

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
from spark_log.jobs.program import Counts, json_value


class Sink(StrEnum):
    """Kind of destination."""

    CONSOLE = "console"
    PARQUET = "parquet"
    DELTA = "delta"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a job's records. Its fields are command line options.

    Attributes:
        sink: the kind of destination.
        path: the table or directory to append to; None for the console.
        show: the number of records that the console shows.
        binary: whether keys and values stay bytes instead of becoming text.
    """

    sink: Sink
    path: str | None
    show: int
    binary: bool

    @classmethod
    def from_options(
        cls,
        to: Annotated[Sink, typer.Option(help="Where to write the records.")] = Sink.CONSOLE,
        path: Annotated[
            str | None, typer.Option(help="Directory or Delta table to append to.")
        ] = None,
        show: Annotated[
            int, typer.Option(min=0, help="Maximum number of records printed to the console.")
        ] = 20,
        binary: Annotated[
            bool, typer.Option(help="Keep keys and values as bytes instead of text.")
        ] = False,
    ) -> Destination:
        """Check the options.

        Raises:
            InvalidOptionError: the sink needs a path, and none is given.
        """
        if to is not Sink.CONSOLE and not path:
            raise InvalidOptionError(f"--to {to} needs --path", key="path")
        return cls(to, path, show, binary)

    def __str__(self) -> str:
        return self.path or self.sink.value

    def write(self, records: DataFrame) -> Counts:
        """Write records, and return the numbers of records read and written."""
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
        """Print the first records of each topic and partition; all records are read."""
        if not self.show:
            records.write.format("noop").mode("overwrite").save()
            return 0
        # The sort makes Spark read all records. Otherwise it stops at the limit, the other records
        # are not counted, and Python workers that still write print BrokenPipeError.
        rows = records.orderBy("topic", "partition", "offset").limit(self.show).collect()
        for row in rows:
            print(json.dumps(row.asDict(recursive=True), default=json_value))
        return len(rows)


def _append_files(records: DataFrame, spark_format: str, path: str) -> None:
    """Add files to a directory to which other jobs may add files at the same time.

    Hadoop's committer stages files in ``_temporary/<attempt>``. By default every job has attempt 0;
    the job that commits first then takes the files that the others have staged, and removes the
    rest, and a task whose file is missing commits nothing without an error. Therefore each job has
    its own attempt number, and removes nothing else.
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
    with suppress(Exception):  # py4j's: other jobs have files there, or it does not exist
        files.delete(staging, False)
