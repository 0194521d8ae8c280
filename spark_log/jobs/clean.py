"""Clean a root: retention, merging, compaction, deletion and transactions.

Each partition is cleaned by one Spark task.

The records of striped topics are taken home first, by one task for each stripe.

Topics with ``table.format=delta`` are converted to Parquet by the same tasks, and each task commits
its partition to the table. Partitions with the most work come first. The job may run while others
write and read, several times at once, and may be killed at any time: the next run does the rest.
Run it as often as every few minutes, and at least once a day.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from spark_log.cli import Output, Root, run, with_option_groups
from spark_log.cluster import (
    Cluster,
    ConversionProgress,
    TopicTables,
    check_clock,
    complete_changes,
    ended_stripes,
    finish_deletions,
    remove_stray_replicas,
)
from spark_log.coordinator import OffsetsTable, transaction_cleaner
from spark_log.errors import ClockSkewError, SparkLogError
from spark_log.jobs.program import JobReport, job_session, spark_progress
from spark_log.jobs.task import CleaningTask, run_per_partition
from spark_log.log.clean import DEDUPE_BUFFER_BYTES, MIN_DEDUPE_BUFFER_BYTES
from spark_log.metadata import TopicImage
from spark_log.storage import StorageClock
from spark_log.transaction import CleanedTransactionalId
from spark_log.types import TopicPartition

_FAILED = 1
"""Exit status if a partition or transactional id was not cleaned, or this machine's clock is wrong.
"""

_SUMS = (
    "expired_segments",
    "expired_bytes",
    "merged_segments",
    "merged_into",
    "merged_bytes",
    "compacted_records",
    "compacted_bytes",
    "kept_records",
    "tombstones_removed",
    "deleted_files",
    "deleted_bytes",
)


@with_option_groups
def main(
    root: Root,
    output: Output,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topics to clean. [default: all topics, files of deleted topics, and transactions]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    max_bytes_per_second: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Maximum bytes per second read and written by all tasks together "
            "(cleaner.io.max.bytes.per.second). [default: no limit]",
        ),
    ] = None,
    dedupe_buffer_size: Annotated[
        int,
        typer.Option(
            min=MIN_DEDUPE_BUFFER_BYTES,
            help="Memory in bytes for the keys of each compaction "
            "(log.cleaner.dedupe.buffer.size).",
        ),
    ] = DEDUPE_BUFFER_BYTES,
) -> None:
    """Apply retention, merge and compact segments, and delete unused files, with Spark.

    Without topics, transactions without a change for their timeout are aborted, decided ones are
    finished, and old transactional ids are forgotten.
    """
    report = JobReport("cleaned")
    cluster = root.cluster()
    image = cluster.image()
    chosen = complete_changes(
        cluster,
        [image.topic(name) for name in topics] if topics else list(image.topics()),
        dry_run=dry_run,
    )
    partitions = [
        TopicPartition(topic.name, number)
        for topic in chosen
        for number in sorted(topic.partitions)
    ]
    try:
        check_clock(cluster)
    except ClockSkewError as error:
        if output.is_json:
            report.add(dry_run=dry_run, partitions=len(partitions), error=str(error))
            report.print(as_json=True)
        raise
    spark = job_session("clean")
    started = time.perf_counter()
    # Transactions end first, because compaction stops at the first open one.
    ended = [] if topics else list(transaction_cleaner(cluster, dry_run=dry_run).clean())
    at_once = max(1, min(len(partitions), spark.sparkContext.defaultParallelism))
    work = CleaningTask(
        root.url,
        root.storage_options,
        root.broker_options,
        dedupe_buffer_size,
        (max_bytes_per_second or math.inf) / at_once,
    )
    # Partitions are cleaned by what they have at home.
    stripes = _take_home(spark, work, cluster, chosen, dry_run=dry_run)
    with spark_progress(spark, "Planning"):
        plans = run_per_partition(spark, work.plan, partitions)
    dirt = {
        tp: plan.get("dirt_bytes", math.inf)  # without a plan, cleaning reports the error
        for tp, plan in zip(partitions, plans, strict=True)
    }
    results = dict(zip(partitions, plans, strict=True))
    progress = ConversionProgress(cluster, chosen)
    if not dry_run:
        dirty = [tp for tp in partitions if dirt[tp]]
        dirty.sort(key=lambda tp: dirt[tp], reverse=True)
        with spark_progress(spark, "Cleaning", details=progress.text):
            results |= zip(dirty, run_per_partition(spark, work.clean, dirty), strict=True)
    deleted = [] if topics else list(finish_deletions(cluster, dry_run=dry_run))
    strays = [] if topics else list(remove_stray_replicas(cluster, dry_run=dry_run))
    if not dry_run:
        cluster.keep_reserve()
    if not (topics or dry_run):
        OffsetsTable(cluster).maintain()
    failed = {} if dry_run else _commit_tables(cluster, chosen, results)
    failed |= _failures(results, stripes, ended)
    report.add(dry_run=dry_run, partitions=len(partitions), dirty=sum(map(bool, dirt.values())))
    for name in _SUMS:
        report.add(**{name: sum(each.get(name, 0) for each in results.values())})
    report.add(**progress.document())
    report.add(
        stripes=len(stripes),
        taken_home_objects=sum(each.get("objects", 0) for each in stripes),
        deleted_topics=len(deleted),
        stray_replicas=len(strays),
        transactional_ids=len(ended),
    )
    report.add(seconds=round(time.perf_counter() - started, 3))
    if failed:
        report.add(failed=failed)
    if output.is_json:
        report.add(
            by_partition=[{"partition": str(tp)} | each for tp, each in results.items()],
            by_stripe=stripes,
            by_transactional_id=[
                {"transactional_id": each.transactional_id, "action": each.action} for each in ended
            ],
        )
    report.print(as_json=output.is_json)
    if failed:
        raise typer.Exit(_FAILED)


def _take_home(
    spark: SparkSession,
    work: CleaningTask,
    cluster: Cluster,
    topics: Sequence[TopicImage],
    *,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Take the stripes of topics home, each in a Spark task; return what each has done."""
    numbered = [
        TopicPartition(topic.name, number)
        for topic in topics
        for number in (*ended_stripes(cluster, topic), *topic.stripes[: topic.num_partitions])
    ]
    with spark_progress(spark, "Taking stripes home"):
        done = run_per_partition(spark, work.plan_stripe if dry_run else work.take_home, numbered)
    return [
        {"topic": tp.topic, "stripe": tp.partition} | each
        for tp, each in zip(numbered, done, strict=True)
    ]


def _failures(
    partitions: Mapping[TopicPartition, Mapping[str, Any]],
    stripes: Sequence[Mapping[str, Any]],
    ended: Sequence[CleanedTransactionalId],
) -> dict[str, str]:
    """Return what was not cleaned, with the errors."""
    failed = {str(tp): each["error"] for tp, each in partitions.items() if "error" in each}
    failed |= {
        f"stripe {each['stripe']} of {each['topic']}": each["error"]
        for each in stripes
        if "error" in each
    }
    return failed | {
        f"transactional id {each.transactional_id}": str(each.error) for each in ended if each.error
    }


def _commit_tables(
    cluster: Cluster, topics: Sequence[TopicImage], results: Mapping[TopicPartition, dict[str, Any]]
) -> dict[str, str]:
    """Bring the tables of topics up to date, also if no partition had to be cleaned.

    Tasks commit what they convert. This commits what a killed job has left, and ends the table of a
    topic whose ``table.format`` is ``none`` again.

    Returns:
        The topics whose tables could not be brought up to date, with the errors.
    """
    tables, storage_clock = TopicTables(cluster), StorageClock(cluster.clock)
    failed: dict[str, str] = {}
    used = {tp.topic for tp, each in results.items() if each.get("has_table")}
    for topic in topics:
        if topic.name in used:
            try:
                tables.commit(topic.topic_id, None, storage_clock)
            except SparkLogError as error:
                failed[f"table of {topic.name}"] = str(error)
    return failed


if __name__ == "__main__":
    run(main)
