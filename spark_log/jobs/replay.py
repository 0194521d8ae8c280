"""Read a range of a topic again, by offset or by event time.

A range includes its start and excludes its end. A range of event time returns exactly the records
whose timestamp is in the range, at any offset. The offsets of consumer groups do not change.
"""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from spark_log.cli import Output, Root, TimeWindow, run, with_option_groups
from spark_log.datasource import EARLIEST, LATEST, format_offsets, parse_read_options, plan_splits
from spark_log.errors import InvalidOptionError
from spark_log.jobs.program import (
    FromTime,
    JobReport,
    ToTime,
    connection_options,
    job_session,
    spark_progress,
    starting_options,
    where_timestamp_in,
)
from spark_log.jobs.sink import Destination
from spark_log.metadata import TopicImage
from spark_log.types import TopicPartition


@with_option_groups
def main(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    root: Root,
    output: Output,
    destination: Destination,
    from_time: FromTime = None,
    to_time: ToTime = None,
    partition: Annotated[int | None, typer.Option(help="Partition to read. [default: all]")] = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="First offset.")] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, help="End of the offsets (exclusive).")
    ] = None,
) -> None:
    """Read a range of a topic again, by offset or by event time."""
    report = JobReport("replayed")
    window = TimeWindow.parse(from_time, to_time)
    if not window.is_open and not (from_offset is None and to_offset is None):
        raise InvalidOptionError(
            "both a range of times and a range of offsets were given; give either --from-time and "
            "--to-time, or --from-offset and --to-offset"
        )
    partitions = _partitions(root.cluster().topic(topic), partition)
    options = connection_options(root) | {
        "assign": json.dumps({topic: partitions}),
        "startingOffsets": _offsets(topic, partitions, from_offset, EARLIEST),
        "endingOffsets": _offsets(topic, partitions, to_offset, LATEST),
    }
    if window.from_us is not None:
        options |= starting_options(window.from_us)
    # Fails if the range does not exist, before Spark starts.
    plan_splits(parse_read_options(options, is_stream=False))

    spark = job_session("replay")
    df = spark.read.format("spark_log").options(**options).load()
    df = where_timestamp_in(df, window.from_us, window.to_us)
    started = time.perf_counter()
    with spark_progress(spark, f"Replaying {topic}"):
        counts = destination.write(df)
    report.add(topic=topic, to=str(destination))
    report.add_counts(counts, time.perf_counter() - started)
    if not counts.read:
        report.warn(_nothing_read(topic, from_time, to_time))
    report.print(as_json=output.is_json)


def _nothing_read(topic: str, from_time: str | None, to_time: str | None) -> str:
    if from_time is None and to_time is None:
        return f"no record was read: {topic} has no records at these offsets"
    since = "" if from_time is None else f" at or after {from_time}"
    until = "" if to_time is None else f"{' and' if since else ''} before {to_time}"
    return (
        f"no record was read: {topic} has no records with a timestamp{since}{until}. Times are in "
        f"UTC unless they have an offset, and are compared with the records' timestamps, not with "
        f"the time of writing"
    )


def _partitions(topic: TopicImage, partition: int | None) -> list[int]:
    if partition is None:
        return sorted(topic.partitions)
    if partition not in topic.partitions:
        raise InvalidOptionError(
            f"topic {topic.name!r} has no partition {partition}; it has {topic.num_partitions}, "
            f"numbered from 0",
            key="--partition",
        )
    return [partition]


def _offsets(topic: str, partitions: list[int], offset: int | None, default: int) -> str:
    chosen = default if offset is None else offset
    return format_offsets({TopicPartition(topic, number): chosen for number in partitions})


if __name__ == "__main__":
    run(main)
