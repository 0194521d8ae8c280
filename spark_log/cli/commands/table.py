"""``spark-log table``: convert, describe, verify and rebuild the Delta table of a topic."""

from __future__ import annotations

import math
import os
from typing import Annotated, Any

import typer

from spark_log.cli.format import (
    Output,
    byte_progress,
    count_progress,
    counted,
    polled_progress,
    print_json,
    print_json_stream,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.options import PartitionsOption, Root, Topic, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.cluster import ConversionProgress, TopicConversion, offsets_converted
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata import MetadataImage, check_is_table
from spark_log.table import (
    TableVersion,
    TopicTable,
    rebuild_table,
    verify_partition,
    verify_table,
)
from spark_log.util import Throttle, printable

_PROBLEMS = 1
"""Exit status: the table and the log differ, or a partition could not be converted."""

app = typer.Typer(rich_markup_mode=None)


@app.command("convert")
@with_examples("spark-log table convert flights", "spark-log table convert flights --threads 8")
@with_option_groups
def convert_table(
    topic: Topic,
    root: Root,
    output: Output,
    partition: PartitionsOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            help="Partitions that are converted at the same time; Kafka's log.cleaner.threads. "
            "[default: one for each core]",
        ),
    ] = None,
    max_bytes_per_second: Annotated[
        float | None,
        typer.Option(
            "--max-bytes-per-second",
            metavar="N",
            min=1,
            help="Maximum rate of reads and writes together; Kafka's "
            "cleaner.io.max.bytes.per.second. [default: no limit]",
        ),
    ] = None,
) -> None:
    """Convert the partitions of a topic to files of its table.

    Several are converted at a time. This is a cleaning: it does not wait for
    table.commit.interval.ms, also applies retention, and deletes files that are no longer needed.
    Each partition is committed when it is converted. Records behind an open transaction stay in the
    log. It may be stopped at any time; the next run continues. Exit status: 0 done, 1 a partition
    could not be converted.
    """
    cluster = root.cluster()
    image = cluster.image()
    known = image.topic(topic.name)
    threads = threads or os.cpu_count() or 1
    conversion = TopicConversion(cluster, known, partition, threads=threads)
    progress = ConversionProgress(cluster, [known])
    throttle = Throttle(max_bytes_per_second or math.inf)

    def done_offsets() -> int:
        return progress.read(set(conversion.running))[0]

    failures = []
    with polled_progress("Converting", progress.read()[1], done_offsets) as poll:

        def on_progress(done_bytes: int) -> None:
            poll()
            throttle(done_bytes)

        for each in conversion.convert(on_progress):
            failures += [f"{each.partition}: {each.error}"] if each.error else []
    for failure in failures:
        print_note(f"error: {printable(failure)}")
    table = TopicTable(cluster.store, known, cluster.clock)
    version = conversion.commit()
    converted, offsets = progress.read()
    if output.is_json:
        print_json(
            _document(table, version)
            | {"table_offsets": offsets, "parquet_offsets": converted}
            | ({"failed": failures} if failures else {})
        )
    else:
        print_text(f"Location: {printable(table.url)}")
        files = counted(len(version.data_files), "file")
        print_text(f"Version: {version.number}    Table: {_state(version)}, {files}")
        print_text(f"{offsets_converted(converted, offsets)} are in Parquet files")
    if failures:
        raise typer.Exit(_PROBLEMS)


@app.command("describe")
@with_examples("spark-log table describe flights", "spark-log table describe flights --output json")
@with_option_groups
def describe_table(topic: Topic, root: Root, output: Output) -> None:
    """Show location, newest version, starts and ends of a table.

    The table has the records of each partition from Start to before End. The log has those from End
    on.
    """
    table, _ = _open(root, topic)
    version = _existing(table.refresh(), table)
    if output.is_json:
        print_json(_document(table, version))
        return
    print_text(f"Location: {printable(table.url)}")
    print_text(f"Version: {version.number}    Table: {_state(version)}")
    rows = []
    for number, partition in sorted(version.partitions.items()):
        files = [version.file_of(number, name) for name in partition.files]
        size_bytes, rows_in = sum(each.size_bytes for each in files), _rows(files)
        figures = [partition.start, partition.end, len(files), size_bytes, rows_in]
        rows.append([table.topic.name, number, *figures])
    print_table(["Topic", "Partition", "Start", "End", "Files", "Bytes", "Rows"], rows)


@app.command("verify")
@with_examples("spark-log table verify flights")
@with_option_groups
def verify_topic_table(
    topic: Topic,
    root: Root,
    output: Output,
    partition: PartitionsOption = None,
) -> None:
    """Compare a table with the log, row for row.

    Finds what the table lacks, has twice, has otherwise, or has too early; of a compacted topic
    also keys that one of the two lost; and files that are missing or damaged. At most 100
    findings are shown for each partition. Exit status: 0 they are equal, 1 they differ.
    """
    table, image = _open(root, topic)
    version = _existing(table.refresh(), table)
    known = image.topic(table.topic.name)
    numbers = sorted(version.partitions) if partition is None else sorted(set(partition))
    logs = {number: root.cluster().partition_log(known, number) for number in numbers}
    files = version.data_files.values()
    count = done_bytes = 0
    with byte_progress("Verifying", sum(each.size_bytes for each in files)) as show:

        def progress(more_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += more_bytes
            show(done_bytes)

        def findings() -> Any:
            nonlocal count
            parts = (verify_partition(table, version, n, logs[n], progress) for n in numbers)
            for part in (verify_table(version), *parts):
                for finding in part:
                    count += 1
                    yield finding

        if output.is_json:
            head = {"topic": table.topic.name, "version": version.number}
            documents = (each._asdict() for each in findings())
            print_json_stream(head, "findings", documents, lambda: {"count": count})
        else:
            for each in findings():
                where = "" if each.partition < 0 else f"-{each.partition}"
                text = f"{each.kind}: {table.topic.name}{where}: {each.message}"
                print_text(printable(text))
    if not output.is_json:
        what = counted(count, "difference")
        print_text(f"Version {version.number}, {counted(len(numbers), 'partition')}: {what}")
    if count:
        print_note(
            f"If the Delta log is wrong, spark-log table rebuild {table.topic.name} makes it anew. "
            "A Parquet file is part of the log: restore it from a replica or a backup."
        )
        raise typer.Exit(_PROBLEMS)


@app.command("rebuild")
@with_examples("spark-log table rebuild flights")
@with_option_groups
def rebuild_topic_table(topic: Topic, root: Root, output: Output) -> None:
    """Make the Delta log of a table anew, from the log's files.

    The log itself is not changed. Programs may read earlier versions for a while.
    """
    table, image = _open(root, topic)
    with count_progress("Rebuilding", table.topic.num_partitions) as show:
        version = rebuild_table(table, image.offset, show)
    table = TopicTable(table.store, table.topic, table.clock)
    if output.is_json:
        print_json(_document(table, version))
        return
    files = counted(len(version.data_files), "file")
    print_text(f"{printable(table.url)}: version {version.number}, {files}")


def _open(root: Root, topic: Topic) -> tuple[TopicTable, MetadataImage]:
    cluster = root.cluster()
    image = cluster.image()
    return TopicTable(cluster.store, image.topic(topic.name), cluster.clock), image


def _existing(version: TableVersion, table: TopicTable) -> TableVersion:
    if version.number >= 0:
        return version
    check_is_table(table.topic)
    name = table.topic.name
    raise InvalidConfigurationError(
        f"topic {name!r} has no table yet: spark-log table convert {name} makes it"
    )


def _state(version: TableVersion) -> str:
    return f"follows cleanup.policy={version.setting.policy}" if version.is_on else "ended"


def _rows(files: list[Any]) -> int:
    return sum(max(0, each.num_rows) for each in files)


def _document(table: TopicTable, version: TableVersion) -> dict[str, object]:
    partitions = []
    for number, partition in sorted(version.partitions.items()):
        files = [version.file_of(number, name) for name in partition.files]
        partitions.append(
            {
                "partition": number,
                "start": partition.start,
                "end": partition.end,
                "compaction": partition.compaction,
                "files": len(files),
                "size_bytes": sum(each.size_bytes for each in files),
                "rows": _rows(files),
            }
        )
    return {
        "topic": table.topic.name,
        "location": table.url,
        "version": version.number,
        "policy": str(version.setting.policy),
        "ends": {str(number): end for number, end in sorted(version.ends().items())},
        "partitions": partitions,
    }
