"""Mirror topics of Kafka into a log, or topics of a log into Kafka, each partition by a Spark task.

It copies what the source has, and ends; run it again for more. Each record arrives exactly once.
The job may be killed at any time: the next run continues. It shares offset syncs and aliases with
`spark-log mirror`, which follows a source with little delay: the one that is started last fences
the other.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from spark_log.cli import KafkaOptions, MirrorOptions, Output, Root, run, with_option_groups
from spark_log.errors import InvalidConfigurationError
from spark_log.jobs.program import JobReport, job_session, spark_progress
from spark_log.jobs.task import MirroringTask, run_per_partition, tasks_by_partition
from spark_log.mirror import GroupTranslation, Side, patterns, read_offset_syncs

_FAILED = 1
"""Exit status if a partition was not mirrored up to its end."""
_SOURCES = {"from-kafka": Side.KAFKA, "to-kafka": Side.LOG}


@with_option_groups
def main(
    direction: Annotated[
        str, typer.Argument(metavar="from-kafka|to-kafka", help="Where the records go.")
    ],
    kafka: KafkaOptions,
    options: MirrorOptions,
    root: Root,
    output: Output,
    sync_groups: Annotated[
        list[str] | None,
        typer.Option(
            "--sync-groups",
            metavar="REGEX",
            help="Translate committed offsets of these groups of the source at the end. "
            "Repeatable.",
        ),
    ] = None,
) -> None:
    """Mirror topics between Kafka and a log with Spark, exactly once, up to their present end."""
    if direction not in _SOURCES:
        raise InvalidConfigurationError(
            f"the direction is {direction!r}, expected from-kafka or to-kafka"
        )
    source = _SOURCES[direction]
    expressions = patterns(sync_groups or [], "sync-groups")
    log, settings, cluster = options.log(root), options.settings(), kafka.cluster()
    if source is Side.LOG:
        root.cluster()  # it must exist
    report = JobReport("mirrored")
    started = time.perf_counter()
    work = MirroringTask(kafka.settings, log, settings, source)
    with work.driver() as driver:
        tasks = tasks_by_partition(driver.begin_tasks(), source)
        spark = job_session("mirror")
        copied_bytes = spark.sparkContext.accumulator(0)
        work = replace(work, tasks=tasks, copied_bytes=copied_bytes)
        with spark_progress(spark, "Mirroring", copied_bytes):
            results = run_per_partition(spark, work.copy, list(tasks))
        driver.end_tasks()
    failed = {
        f"{each['topic']}-{each['partition']}": each["error"] for each in results if "error" in each
    }
    report.add(direction=direction, partitions=len(results))
    for name in ("record_count", "byte_count", "transaction_count", "records_lag"):
        report.add(**{name: int(sum(each.get(name, 0) for each in results))})
    report.add(seconds=round(time.perf_counter() - started, 3))
    if failed:
        report.add(failed=failed)
    if expressions:
        offset_syncs = read_offset_syncs(cluster, log, settings.offset_sync_topic)
        groups = GroupTranslation(cluster, log, expressions).translate(offset_syncs, source)
        report.add(groups=[each.document() for each in groups])
    if output.is_json:
        report.add(by_partition=results)
    report.print(as_json=output.is_json)
    if failed:
        raise typer.Exit(_FAILED)


if __name__ == "__main__":
    run(main)
