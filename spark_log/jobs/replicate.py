"""Bring replicas that are not in sync back: after the loss and return of a root, or to move them.

The replicas of each partition are copied by one Spark task.

The job may run while others write, read and replicate, several times at once, and may be killed at
any time: the next run continues. `jobs/controller.py` does the same all the time.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from spark_log.cli import Output, Root, run, with_option_groups
from spark_log.jobs.program import JobReport, job_session, spark_progress
from spark_log.jobs.task import ReplicationTask, run_per_partition
from spark_log.replication import out_of_sync_replicas
from spark_log.types import TopicPartition

_FAILED = 1
"""Exit status if a replica did not come back."""


@with_option_groups
def main(
    root: Root,
    output: Output,
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Topics whose replicas to bring back. [default: all topics]"),
    ] = None,
    broker: Annotated[
        list[int] | None,
        typer.Option(help="Only replicas on this broker. Repeatable. [default: all]"),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum bytes per second copied by all tasks together. [default: the cluster's "
            "replication.throttled.rate]",
        ),
    ] = None,
) -> None:
    """Bring replicas that are not in sync up to date, and into the in-sync replicas, with Spark."""
    report = JobReport("replicated")
    image = root.cluster().image()
    replicas = out_of_sync_replicas(image, topics or None, broker)
    partitions = list(
        dict.fromkeys(TopicPartition(each.topic, each.partition) for each in replicas)
    )
    spark = job_session("replicate")
    started = time.perf_counter()
    at_once = max(1, min(len(partitions), spark.sparkContext.defaultParallelism))
    rate = throttle or image.cluster_config().replication_throttled_rate
    copied_bytes = spark.sparkContext.accumulator(0)
    work = ReplicationTask(
        root.url,
        root.storage_options,
        root.broker_options,
        tuple(broker) if broker else None,
        rate / at_once,
        copied_bytes,
    )
    with spark_progress(spark, "Replicating", copied_bytes):
        results = run_per_partition(spark, work.catch_up, partitions)
    done = [each for result in results for each in result["replicas"]]
    failed = {
        f"{each['topic']}-{each['partition']}-{each['broker']}": each["error"]
        for each in done
        if "error" in each
    }
    report.add(
        partitions=len(partitions),
        replicas=len(done),
        in_sync=sum(each.get("in_sync", False) for each in done),
    )
    for name in ("copied_segments", "copied_bytes"):
        report.add(**{name: sum(each.get(name, 0) for each in done)})
    report.add(seconds=round(time.perf_counter() - started, 3))
    if failed:
        report.add(failed=failed)
    if output.is_json:
        report.add(by_replica=done)
    report.print(as_json=output.is_json)
    if failed:
        raise typer.Exit(_FAILED)


if __name__ == "__main__":
    run(main)
