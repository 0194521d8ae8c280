"""``spark-log log-dirs``: what lies where, and how much."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.output import Output, print_json, print_table, print_text
from spark_log.cli.root import Root
from spark_log.metadata import TopicImage


@with_option_groups
def log_dirs(
    root: Root,
    output: Output,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="Only this one. Repeatable. [default: all]"),
    ] = None,
) -> None:
    """Show where partitions lie, and how large they are."""
    location = root.cluster().root
    partitions: list[dict[str, object]] = []
    segments = size_bytes = 0
    for described in root.admin().describe_topics(list(dict.fromkeys(topic)) if topic else None):
        image = TopicImage(described.name, described.topic_id)
        for partition in described.partitions:
            partitions.append(
                {
                    "topic": described.name,
                    "partition": partition.partition,
                    "size_bytes": partition.size_bytes,
                    "segments": partition.segments,
                    "log_start_offset": partition.log_start_offset,
                    "log_end_offset": partition.log_end_offset,
                    "path": f"{location}/{image.partition_directory(partition.partition)}",
                }
            )
            segments += partition.segments
            size_bytes += partition.size_bytes
    if output.is_json:
        totals = {"partitions": len(partitions), "segments": segments, "size_bytes": size_bytes}
        log_dir = {"broker": 0, "log_dir": location, "partitions": partitions, "totals": totals}
        print_json({"log_dirs": [log_dir]})
        return
    columns = ["Topic", "Partition", "Bytes", "Segments", "Start", "End", "Path"]
    print_text(f"Broker 0: {location}")
    print_table(columns, [list(partition.values()) for partition in partitions])
    print_text(f"Total: partitions {len(partitions)}, segments {segments}, bytes {size_bytes}")
