"""Let records that a log holds pass through a function again, into a Delta table or a topic.

    spark-submit jobs/reprocess.py flights --root /data/log --transform delays:by_carrier \\
        --to delta --path /data/delays --name delays-2013

The function takes a DataFrame of records and gives one: columns key, value, topic, partition,
offset, timestamp, timestampType in, any out (for a topic key and value). Ranges are of offsets or
of event time; they include their start and not their end. Killed at any point and run again with
the same name, it goes on where it was: each step is in the result exactly once, with the offsets
that it was made of.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_log.cli.errors import run
from spark_log.cli.format.output import Output
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.datasource.options.options import parse_read_options
from spark_log.datasource.read.offsets import format_offsets
from spark_log.datasource.stream.read_limits import count_offsets
from spark_log.errors import InvalidOptionError
from spark_log.jobs.job_options import SinkOption, connection_options, parse_instant
from spark_log.jobs.progress_bar import spark_progress
from spark_log.jobs.report import Counts, Report
from spark_log.jobs.reprocessing import (
    DeltaTarget,
    Offsets,
    Reprocessing,
    Target,
    TopicTarget,
)
from spark_log.jobs.session import job_session

Transform = Callable[[DataFrame], DataFrame]


class To(StrEnum):
    """Where results go."""

    DELTA = "delta"
    TOPIC = "topic"


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="The topics to read.")],
    root: Root,
    output: Output,
    name: Annotated[str, typer.Option(help="Of this run: by it a run is gone on with.")],
    transform: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="What takes and gives a DataFrame. The module is looked for in the current "
            "directory, too.",
        ),
    ],
    to: Annotated[To, typer.Option(help="Where results go.")] = To.DELTA,
    path: Annotated[str | None, typer.Option(help="The Delta table, appended to.")] = None,
    to_topic: Annotated[str | None, typer.Option(help="The topic that results go to.")] = None,
    starting_offsets: Annotated[
        str, typer.Option(help='earliest, or JSON: {"flights": {"0": 17, "1": -2}}.')
    ] = "earliest",
    ending_offsets: Annotated[
        str, typer.Option(help="latest (as it is when the run begins), or JSON.")
    ] = "latest",
    from_time: Annotated[
        str | None, typer.Option(help="First timestamp: ISO 8601, UTC unless it names a zone.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(help="Records from this timestamp on are left out.")
    ] = None,
    headers: Annotated[bool, typer.Option(help="Give the function the headers, too.")] = False,
    step_records: Annotated[
        int,
        typer.Option(min=1, help="About how many records a step has: what a kill costs at most."),
    ] = 10_000_000,
    sink_option: SinkOption = None,
) -> None:
    """Let records that a log holds pass through a function, exactly once."""
    report = Report("reprocessed")
    function = _transform(transform)
    begin, end = parse_instant(from_time, "--from-time"), parse_instant(to_time, "--to-time")
    connection = connection_options(root.url, root.storage_options)
    reads = connection | {"subscribe": ",".join(topics), "includeHeaders": str(headers)}
    whole_range = {"endingOffsets": ending_offsets} | (
        {"startingOffsets": starting_offsets}
        if begin is None
        else {
            "startingTimestamp": str(int(begin.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",  # partitions that end before it
        }
    )
    cluster = root.cluster()
    target: Target
    if to is To.DELTA:
        if path is None:
            raise InvalidOptionError("--to delta needs --path", key="path")
        given = parse_pairs("--sink-option", sink_option or [], secret=True)
        target = DeltaTarget(path, given or root.storage_options)
    else:
        if to_topic is None:
            raise InvalidOptionError("--to topic needs --to-topic", key="to_topic")
        target = TopicTarget(cluster, to_topic, connection)
    settings = {
        "TOPICS": ",".join(sorted(topics)),
        "--transform": transform,
        "--from-time": from_time,
        "--to-time": to_time,
        "--starting-offsets": starting_offsets,
        "--ending-offsets": ending_offsets,
    }
    work = Reprocessing(
        target,
        name,
        settings,
        parse_read_options(reads | whole_range, is_stream=False),
    )
    spark = job_session("reprocess")
    read = written = 0

    def results_of(starts: Offsets, ends: Offsets) -> DataFrame:
        ranges = {
            "startingOffsets": format_offsets(starts),
            "endingOffsets": format_offsets(ends),
        }
        nonlocal read
        reader = spark.read.format("spark_log").options(**(reads | ranges))
        # A query of its own, of one column: an observation within the function's query would count
        # what that takes, which may be less, or be taken by another query of the function.
        read += _in_time(reader.schema("timestamp timestamp").load(), begin, end).count()
        reader = spark.read.format("spark_log").options(**(reads | ranges))
        results = function(_in_time(reader.load(), begin, end))
        if not isinstance(results, DataFrame):
            raise InvalidOptionError(
                f"--transform {transform} gave {type(results).__name__}, expected a DataFrame",
                key="transform",
            )
        return results

    first = work.progress
    total = count_offsets(first.starts, first.ends)
    started = time.perf_counter()
    while not work.progress.is_done:
        done = count_offsets(first.starts, work.progress.reached)
        title = f"Step {work.progress.step + 2}, {done / total:.0%} done"
        with spark_progress(spark, title):
            written += work.run_step(results_of, step_records)
    report.add(name=name, to=path or to_topic, resumed=work.is_resumed)
    report.add(steps=work.progress.step - first.step)
    report.add_counts(Counts(read, written), time.perf_counter() - started)
    report.add(starts=format_offsets(first.starts), ends=format_offsets(first.ends))
    if warning := _warning(work, first.is_done, transform, Counts(read, written)):
        report.warn(warning)
    report.print(as_json=output.is_json)


def _in_time(records: DataFrame, begin: datetime | None, end: datetime | None) -> DataFrame:
    """Return the records of a range of event time; its start belongs to it, its end does not."""
    if begin is not None:
        records = records.where(F.col("timestamp") >= F.lit(begin))
    if end is not None:
        # Timestamps may go backwards, so that the end of the range is no offset.
        records = records.where(F.col("timestamp") < F.lit(end))
    return records


def _warning(work: Reprocessing, was_done: bool, transform: str, counts: Counts) -> str | None:
    """Return what is to be said about a run that wrote nothing."""
    if counts.written:
        return None
    if work.is_resumed and was_done:
        return "nothing was left to do: the run had reached its end before"
    if not counts.read:
        return "no record was read: the range of offsets or of time holds none"
    return (
        f"{counts.read:,} records were read, and no row was written: {transform} returned none. "
        f"Where it filters by a field, look whether the field is null: from_json gives null for a "
        f"value that is not of the type that it is told, such as a quoted number for a double"
    )


def _transform(text: str) -> Transform:
    """Return the function that ``module:function`` names.

    Raises:
        InvalidOptionError: there is none.
    """
    module_name, _, function_name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidOptionError(
            f"--transform is {text!r}, expected MODULE:FUNCTION, a module in the current directory "
            f"or among --py-files and a function in it: {error}",
            key="transform",
        ) from None
    if not callable(function):
        raise InvalidOptionError(f"--transform {text} is no function", key="transform")
    found: Transform = function
    return found


if __name__ == "__main__":
    run(main)
