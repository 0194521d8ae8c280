"""``spark-log clean``: retention, merging, compaction and deletion of files, without Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

import typer

from spark_log.cli.format import (
    Output,
    count_progress,
    counted,
    print_json,
    print_note,
    print_table,
    print_text,
)
from spark_log.cli.options import PartitionsOption, Root, Topics, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.cluster import (
    CleanedPartition,
    CleanedStripe,
    ClusterCleaner,
    DeletedTopic,
    StrayReplica,
    offsets_converted,
)
from spark_log.coordinator import transaction_cleaner
from spark_log.errors import ClockSkewError, InvalidConfigurationError, InvalidPartitionsError
from spark_log.log.clean import DEDUPE_BUFFER_BYTES, MIN_DEDUPE_BUFFER_BYTES, CleanReport
from spark_log.transaction import CleanedTransactionalId, TransactionCleaner
from spark_log.util import Throttle, printable

_FAILED = 1
"""Exit status: a partition could not be cleaned."""

_ENDED = {
    "abort": "Aborted the transaction of",
    "finish": "Finished the transaction of",
    "expire": "Forgot the producers of",
}

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
        typer.Option(
            "--all-topics",
            help="All topics of the root, files of deleted topics and of replicas that were "
            "moved away, and transactions.",
        ),
    ] = False,
    partition: PartitionsOption = None,
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

    Each replica is cleaned by itself, up to the high watermark. The records of a striped topic are
    taken home first, from its stripes into the directories of its partitions.
    Files that are no longer needed are deleted. With --all-topics, transactions without a change
    for their timeout are aborted, decided ones are finished, and old transactional ids are
    forgotten. Other processes may write, read and clean at the same time, and cleaning may be
    stopped at any time. If this machine's clock differs from the storage's clock by more than
    max.clock.skew.ms, nothing is done. Exit status: 0 done, 1 a partition or a transactional id
    could not be cleaned.
    """
    if bool(topics.given) == all_topics:
        raise InvalidConfigurationError("which topics? Give TOPIC, --topic or --all-topics")
    if partition and min(partition) < 0:
        raise InvalidPartitionsError("partitions are numbered from 0")
    if max_bytes_per_second is not None and not max_bytes_per_second > 0:
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
        table_at_once=True,
    )
    transactions = transaction_cleaner(root.cluster(), dry_run=dry_run) if all_topics else None
    cleaned = _clean(cleaner, transactions)
    if output.is_json:
        print_json({"dry_run": dry_run, **_documents(cleaned)})
    elif cleaned.partitions or cleaned.skew is None:
        _print_done(cleaned)
    for each in cleaned.partitions:
        if each.report is not None and each.report.future_us is not None:
            print_note(f"{_where(each)}: {_future(each.report)}")
    failures = [f"{_where(each)}: {each.error}" for each in cleaned.partitions if each.error]
    failures += [
        f"transactional id {printable(each.transactional_id)}: {each.error}"
        for each in cleaned.transactional_ids
        if each.error
    ]
    for failure in failures:
        print_note(f"error: {failure}")
    if cleaned.skew is not None:
        raise cleaned.skew
    if failures:
        raise typer.Exit(_FAILED)


@dataclass(slots=True)
class _Cleaned:
    """The parts that were cleaned, or would be, before this machine's clock was found wrong."""

    partitions: list[CleanedPartition] = field(default_factory=list)
    stripes: list[CleanedStripe] = field(default_factory=list)
    topics: list[DeletedTopic] = field(default_factory=list)
    stray_replicas: list[StrayReplica] = field(default_factory=list)
    transactional_ids: list[CleanedTransactionalId] = field(default_factory=list)
    skew: ClockSkewError | None = None


def _clean(cleaner: ClusterCleaner, transactions: TransactionCleaner | None) -> _Cleaned:
    cleaned = _Cleaned()
    with count_progress("Cleaning", len(cleaner)) as show:
        try:
            # Transactions end first, because compaction stops at the first open one.
            for ended in transactions.clean() if transactions is not None else ():
                cleaned.transactional_ids.append(ended)
            cleaned.stripes = cleaner.stripes
            for each in cleaner.clean():
                cleaned.partitions.append(each)
                show(len({each.partition for each in cleaned.partitions}))
            cleaned.topics += cleaner.deleted_topics()
            cleaned.stray_replicas += cleaner.stray_replicas()
        except ClockSkewError as error:
            cleaned.skew = error
    return cleaned


def _print_done(cleaned: _Cleaned) -> None:
    has_brokers = any(each.broker_id for each in cleaned.partitions)
    rows = [_row(each, has_brokers) for each in cleaned.partitions if each.report is not None]
    brokers = ["Broker"] if has_brokers else []
    print_table(["Topic", "Partition", *brokers, *_COLUMNS.values()], rows)
    for each in cleaned.partitions:
        if each.report is not None and each.report.parquet_offsets:
            print_text(f"{_where(each)}: {_converted(each.report)}")
    for stripe in cleaned.stripes:
        if stripe.objects or stripe.freed_files:
            print_text(
                f"Stripe {stripe.stripe} of {stripe.topic.name}: "
                f"{counted(stripe.objects, 'object')} taken home; "
                f"{counted(stripe.freed_files, 'file')} deleted, "
                f"{counted(stripe.freed_bytes, 'byte')}"
            )
    for left in cleaned.topics:
        size = f"{counted(left.files, 'file')}, {counted(left.size_bytes, 'byte')}"
        where = f" on broker {left.broker_id}" if left.broker_id else ""
        print_text(f"Deleted topic {left.directory}{where}: {size}")
    for stray in cleaned.stray_replicas:
        size = f"{counted(stray.files, 'file')}, {counted(stray.size_bytes, 'byte')}"
        print_text(f"Stray replica {stray.directory} on broker {stray.broker_id}: {size}")
    for ended in cleaned.transactional_ids:
        if ended.error is None:
            print_text(f"{_ENDED[ended.action]} {printable(ended.transactional_id)}")


def _documents(cleaned: _Cleaned) -> dict[str, object]:
    return {
        "partitions": [_document(each) for each in cleaned.partitions],
        "stripes": [
            {
                "topic": each.topic.name,
                "stripe": each.stripe,
                "rounds": each.rounds,
                "objects": each.objects,
                "deleted_files": each.freed_files,
                "deleted_bytes": each.freed_bytes,
                **({"error": str(each.error)} if each.error else {}),
            }
            for each in cleaned.stripes
        ],
        "deleted_topics": [
            {
                "broker": left.broker_id,
                "path": left.directory,
                "files": left.files,
                "size_bytes": left.size_bytes,
            }
            for left in cleaned.topics
        ],
        "stray_replicas": [
            {
                "broker": stray.broker_id,
                "path": stray.directory,
                "files": stray.files,
                "size_bytes": stray.size_bytes,
            }
            for stray in cleaned.stray_replicas
        ],
        "transactional_ids": [
            {
                "transactional_id": each.transactional_id,
                "action": each.action,
                **({"error": str(each.error)} if each.error else {}),
            }
            for each in cleaned.transactional_ids
        ],
        **({"error": str(cleaned.skew)} if cleaned.skew else {}),
    }


def _document(cleaned: CleanedPartition) -> dict[str, object]:
    key = {
        "topic": cleaned.partition.topic,
        "partition": cleaned.partition.partition,
        "broker": cleaned.broker_id,
    }
    if cleaned.report is None:
        return {**key, "error": str(cleaned.error)}
    report = cleaned.report
    return {
        **key,
        "expired_bytes": report.expired_bytes,
        "merged_bytes": report.merged_bytes,
        "tombstones_removed": report.tombstones_removed,
        "parquet_offsets": report.parquet_offsets,
        "waiting_segments": report.waiting_segments,
        "future_timestamp_us": report.future_us,
        **{name: getattr(report, name) for name in _COLUMNS},
    }


def _row(cleaned: CleanedPartition, has_brokers: bool) -> list[object]:
    figures = [getattr(cleaned.report, name) for name in _COLUMNS]
    brokers = [cleaned.broker_id] if has_brokers else []
    return [cleaned.partition.topic, cleaned.partition.partition, *brokers, *figures]


def _where(cleaned: CleanedPartition) -> str:
    is_told = not cleaned.broker_id
    return str(cleaned.partition) + ("" if is_told else f" on broker {cleaned.broker_id}")


def _converted(report: CleanReport) -> str:
    offsets = report.log_end_offset - report.log_start_offset
    return f"{offsets_converted(report.parquet_offsets, offsets)} are in Parquet files"


def _future(report: CleanReport) -> str:
    from datetime import UTC, datetime

    assert report.future_us is not None
    time = datetime.fromtimestamp(report.future_us / 1e6, UTC)
    return (
        f"its oldest segment has a timestamp in the future, {time:%Y-%m-%d %H:%M:%S} UTC; "
        f"retention.ms deletes nothing before that time"
    )
