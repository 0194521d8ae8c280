"""Apply a function to records of a log, and write the results to a Delta table or a topic.

The function takes a DataFrame of records with the columns key, value, topic, partition, offset,
timestamp, timestampType, and returns a DataFrame; for a topic it needs the columns key and value. A
range is of offsets or of event time; it includes its start and excludes its end. If the job is
killed at any point, run it again with the same name: it continues where it was, and each step is in
the result exactly once, together with its offsets.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer
from pyspark.sql import DataFrame

from spark_log.cli import Output, Root, TimeWindow, parse_pairs, run, with_option_groups
from spark_log.datasource import count_offsets, format_offsets, parse_read_options
from spark_log.errors import InvalidOptionError
from spark_log.jobs.program import (
    Counts,
    FromTime,
    JobReport,
    SinkOption,
    ToTime,
    Transform,
    TransformOption,
    connection_options,
    count_records,
    job_session,
    spark_progress,
    starting_options,
    where_timestamp_in,
)
from spark_log.jobs.reprocessing import DeltaTarget, Offsets, Reprocessing, Target, TopicTarget


class To(StrEnum):
    """Kind of target."""

    DELTA = "delta"
    TOPIC = "topic"


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="Topics to read.")],
    root: Root,
    output: Output,
    name: Annotated[
        str, typer.Option(help="Name of the run. A run is continued by giving its name again.")
    ],
    transform: TransformOption,
    to: Annotated[To, typer.Option(help="Where to write the results.")] = To.DELTA,
    path: Annotated[str | None, typer.Option(help="Delta table to append to.")] = None,
    to_topic: Annotated[str | None, typer.Option(help="Topic to append to.")] = None,
    starting_offsets: Annotated[
        str,
        typer.Option(
            help='First offsets: earliest, or JSON such as {"flights": {"0": 17, "1": -2}} (-2 is '
            "earliest)."
        ),
    ] = "earliest",
    ending_offsets: Annotated[
        str,
        typer.Option(
            help="End of the offsets (exclusive): latest, which is the end of the log when the run "
            "starts, or JSON."
        ),
    ] = "latest",
    from_time: FromTime = None,
    to_time: ToTime = None,
    headers: Annotated[bool, typer.Option(help="Add the column headers.")] = False,
    step_records: Annotated[
        int,
        typer.Option(
            min=1,
            help="Approximate number of records in a step. If the job is killed, at most one step "
            "is repeated.",
        ),
    ] = 10_000_000,
    sink_option: SinkOption = None,
) -> None:
    """Apply a function to records of a log, and write the results exactly once."""
    report = JobReport("reprocessed")
    function = Transform.load(transform)
    window = TimeWindow.parse(from_time, to_time)
    connection = connection_options(root)
    reads = connection | {"subscribe": ",".join(topics), "includeHeaders": str(headers)}
    whole_range = {"endingOffsets": ending_offsets} | (
        {"startingOffsets": starting_offsets}
        if window.from_us is None
        else starting_options(window.from_us)
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

    def in_window(records: DataFrame) -> DataFrame:
        return where_timestamp_in(records, window.from_us, window.to_us)

    def results_of(starts: Offsets, ends: Offsets) -> DataFrame:
        ranges = {
            "startingOffsets": format_offsets(starts),
            "endingOffsets": format_offsets(ends),
        }
        nonlocal read
        read += count_records(spark, reads | ranges, in_window)
        reader = spark.read.format("spark_log").options(**(reads | ranges))
        return function.results(in_window(reader.load()))

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


def _warning(work: Reprocessing, was_done: bool, transform: str, counts: Counts) -> str | None:
    """Return a warning for a run that has written nothing; else None."""
    if counts.written:
        return None
    if work.is_resumed and was_done:
        return "nothing was done: the run was already complete"
    if not counts.read:
        return "no record was read: the range of offsets or times is empty"
    return (
        f"{counts.read:,} records were read, and no row was written, because {transform} returned "
        f"none. If it filters by a field, check whether the field is null: from_json returns null "
        f"for a value of another type than its schema says, such as a quoted number for a double"
    )


if __name__ == "__main__":
    run(main)
