"""``spark-log clean``: retention, merging, compaction and deletion of files, without Spark."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from spark_log.cli.examples import with_examples
from spark_log.cli.format import (
    Output,
    count_progress,
    counted,
    print_json,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.root import Root
from spark_log.cli.topic_options import Topics
from spark_log.errors import ClockSkewError, InvalidConfigurationError, InvalidPartitionsError
from spark_log.log import DEDUPE_BUFFER_BYTES, MIN_DEDUPE_BUFFER_BYTES, CleanReport, Throttle
from spark_log.metadata import CleanedPartition, ClusterCleaner, DeletedTopic

_FAILED = 1
"""Exit status: a partition could not be cleaned."""

_COLUMNS = {
    "expired_segments": "Expired",
    "merged_segments": "Merged",
    "merged_into": "Into",
    "compacted_bytes": "Compacted bytes",
    "compacted_records": "Compacted records",
    "kept_records": "Kept",
    "deleted_files": "Deleted files",
    "deleted_bytes": "Freed bytes",
    "segments": "Segments",
    "size_bytes": "Bytes",
    "log_start_offset": "Start",
    "log_end_offset": "End",
}


@with_examples("spark-log clean flights --dry-run", "spark-log clean --all-topics")
@with_option_groups
def clean(
    topics: Topics,
    root: Root,
    output: Output,
    all_topics: Annotated[
        bool,
        typer.Option("--all-topics", help="All topics of the root, and files of deleted topics."),
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", metavar="N", help="Number of a partition. Repeatable. [default: all]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    max_bytes_per_second: Annotated[
        float | None,
        typer.Option(
            "--max-bytes-per-second",
            metavar="N",
            help="Maximum rate of reads and writes together; Kafka's "
            "cleaner.io.max.bytes.per.second. [default: no limit]",
        ),
    ] = None,
    dedupe_buffer_size: Annotated[
        int,
        typer.Option(
            "--dedupe-buffer-size",
            metavar="BYTES",
            help="Memory that a compaction uses for keys; Kafka's log.cleaner.dedupe.buffer.size.",
        ),
    ] = DEDUPE_BUFFER_BYTES,
) -> None:
    """Apply retention, merge segments and compact topics.

    Files that are no longer needed are deleted. Other processes may write, read and clean at the
    same time, and cleaning may be stopped at any time. If this machine's clock differs from the
    storage's clock by more than max.clock.skew.ms, nothing is done. Exit status: 0 done, 1 a
    partition could not be cleaned.
    """
    if bool(topics.given) == all_topics:
        raise InvalidConfigurationError("which topics? Give TOPIC, --topic or --all-topics")
    if partition and min(partition) < 0:
        raise InvalidPartitionsError("partitions are numbered from 0")
    if max_bytes_per_second is not None and max_bytes_per_second <= 0:
        raise InvalidConfigurationError(
            f"--max-bytes-per-second is {max_bytes_per_second}, expected more than 0"
        )
    if dedupe_buffer_size < MIN_DEDUPE_BUFFER_BYTES:
        raise InvalidConfigurationError(
            f"--dedupe-buffer-size is {dedupe_buffer_size}, expected at least "
            f"{MIN_DEDUPE_BUFFER_BYTES} (1 MiB)"
        )
    cleaner = ClusterCleaner(
        root.cluster(),
        None if all_topics else topics.names,
        sorted(set(partition)) if partition else None,
        dry_run=dry_run,
        on_progress=Throttle(max_bytes_per_second or math.inf),
        dedupe_buffer_bytes=dedupe_buffer_size,
    )
    cleaned, deleted, skew = _clean(cleaner)
    failed = [each for each in cleaned if each.error is not None]
    if output.is_json:
        print_json(
            {
                "dry_run": dry_run,
                "partitions": [_document(each) for each in cleaned],
                "deleted_topics": [
                    {"path": left.directory, "files": left.files, "size_bytes": left.size_bytes}
                    for left in deleted
                ],
                **({"error": str(skew)} if skew else {}),
            }
        )
    elif cleaned or skew is None:
        rows = [_row(each) for each in cleaned if each.report is not None]
        print_table(["Topic", "Partition", *_COLUMNS.values()], rows)
        for left in deleted:
            size = f"{counted(left.files, 'file')}, {counted(left.size_bytes, 'byte')}"
            print_text(f"Deleted topic {left.directory}: {size}")
    for each in cleaned:
        if each.report is not None and each.report.future_us is not None:
            print_note(f"{each.partition}: {_future(each.report)}")
    for each in failed:
        print_note(f"error: {each.partition}: {each.error}")
    if skew is not None:
        raise skew
    if failed:
        raise typer.Exit(_FAILED)


def _clean(
    cleaner: ClusterCleaner,
) -> tuple[list[CleanedPartition], list[DeletedTopic], ClockSkewError | None]:
    """Clean until all is done, or until the clock of this machine is found to be wrong."""
    cleaned: list[CleanedPartition] = []
    with count_progress("Cleaning", len(cleaner)) as show:
        try:
            for each in cleaner.clean():
                cleaned.append(each)
                show(len(cleaned))
            return cleaned, list(cleaner.deleted_topics()), None
        except ClockSkewError as error:
            return cleaned, [], error


def _document(cleaned: CleanedPartition) -> dict[str, object]:
    key = {"topic": cleaned.partition.topic, "partition": cleaned.partition.partition}
    if cleaned.report is None:
        return {**key, "error": str(cleaned.error)}
    report = cleaned.report
    return {
        **key,
        "expired_bytes": report.expired_bytes,
        "merged_bytes": report.merged_bytes,
        "tombstones_removed": report.tombstones_removed,
        "waiting_segments": report.waiting_segments,
        "future_timestamp_us": report.future_us,
        **{name: getattr(report, name) for name in _COLUMNS},
    }


def _row(cleaned: CleanedPartition) -> list[object]:
    figures = [getattr(cleaned.report, name) for name in _COLUMNS]
    return [cleaned.partition.topic, cleaned.partition.partition, *figures]


def _future(report: CleanReport) -> str:
    from datetime import UTC, datetime

    assert report.future_us is not None
    time = datetime.fromtimestamp(report.future_us / 1e6, UTC)
    return (
        f"its oldest segment has a timestamp in the future, {time:%Y-%m-%d %H:%M:%S} UTC; "
        f"retention.ms deletes nothing before that time"
    )
