"""Read what is new in topics for a consumer group, write it somewhere, and commit the offsets.

    spark-submit jobs/consume.py flights --root /data/log --group dashboard --to parquet --path out

Run again, it continues where the group stands. Offsets are committed after the records are
written: at least once.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from spark_log.cli.errors import run
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.output import Output
from spark_log.cli.root import Root
from spark_log.coordinator import OffsetsTable
from spark_log.datasource.job import (
    Destination,
    Report,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.datasource.offsets import format_offsets
from spark_log.metadata import Cluster
from spark_log.types import OffsetAndMetadata, TopicPartition


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="The topics to read.")],
    root: Root,
    output: Output,
    destination: Destination,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    latest: Annotated[
        bool,
        typer.Option(
            help="Where the group has no offset, or one that is no longer retained: "
            "begin at the end instead of at the start."
        ),
    ] = False,
) -> None:
    """Read what is new in topics for a consumer group, write it, and commit the offsets."""
    report = Report("consumed")
    cluster = root.cluster()
    offsets = OffsetsTable(cluster)
    starts, ends = _ranges(cluster, offsets, group, topics, latest)
    pending = sum(ends[partition] - starts[partition] for partition in ends)
    report.add(group=group, topics=", ".join(topics), to=str(destination))
    started = time.perf_counter()
    records = 0
    if pending:
        spark = job_session("consume")
        df = (
            spark.read.format("spark_log")
            .options(**connection_options(root.url, root.storage_options))
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", format_offsets(starts))
            .option("endingOffsets", format_offsets(ends))
            .load()
        )
        with spark_progress(spark, f"Reading {', '.join(topics)}"):
            records = destination.write(df)
    # Also without new records: a group that begins at the end must be known to have begun.
    positions = {named: OffsetAndMetadata(offset) for named, offset in ends.items()}
    offsets.commit(group, positions, generation=offsets.generation(group))
    report.add_rate(records, time.perf_counter() - started)
    report.add(committed=format_offsets(ends))
    report.print(as_json=output.is_json)


def _ranges(
    cluster: Cluster, table: OffsetsTable, group: str, topics: list[str], latest: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where the group continues, and the ends of the logs as they are now."""
    committed = table.fetch(group)
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    image = cluster.image()
    for topic in map(image.topic, topics):
        for partition in sorted(topic.partitions):
            view = cluster.partition_log(topic, partition).observe()
            named = TopicPartition(topic.name, partition)
            position = committed.get(named)
            in_range = (
                position is not None
                and view.log_start_offset <= position.offset <= view.log_end_offset
            )
            if position is not None and in_range:
                starts[named] = position.offset
            else:
                starts[named] = view.log_end_offset if latest else view.log_start_offset
            ends[named] = view.log_end_offset
    return starts, ends


if __name__ == "__main__":
    run(main)
