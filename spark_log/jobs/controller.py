"""Watch the brokers and replicas of a root, and bring replicas back by Spark tasks.

Unlike `spark-log controller run`, it copies each partition in a Spark task.

It works until it is stopped, or until a newer controller starts. Several at once are safe, and each
may be killed at any time.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Collection, Iterator

from spark_log.cli import ControllerOptions, Output, Root, run, with_option_groups
from spark_log.jobs.program import job_session
from spark_log.jobs.task import ReplicationTask, run_per_partition
from spark_log.replication import (
    Controller,
    ControllerDecision,
    RecoveredReplica,
    TopicPartitionReplica,
)
from spark_log.types import TopicPartition
from spark_log.util import StopSignals, printable


@with_option_groups
def main(
    root: Root,
    output: Output,
    options: ControllerOptions,
) -> None:
    """Watch the brokers and the replicas of all partitions; replicas are copied by Spark tasks."""
    cluster = root.cluster()
    spark = job_session("controller")
    at_once = max(1, spark.sparkContext.defaultParallelism)

    def copy(
        partition: TopicPartition, replicas: Collection[TopicPartitionReplica]
    ) -> Iterator[RecoveredReplica]:
        rate = cluster.image().cluster_config().replication_throttled_rate
        task = ReplicationTask(
            root.url,
            root.storage_options,
            root.broker_options,
            tuple(replica.broker_id for replica in replicas),
            rate / at_once,
        )
        (result,) = run_per_partition(spark, task.catch_up, [partition])
        return map(RecoveredReplica.from_document, result["replicas"])

    def show(decision: ControllerDecision) -> None:
        line = json.dumps(decision.document()) if output.is_json else printable(str(decision))
        print(line)
        sys.stdout.flush()

    controller = Controller(cluster, copy=copy, threads=at_once, on_decision=show)
    pause = threading.Event()
    with StopSignals() as stop:

        def wait(seconds: float) -> bool:
            pause.wait(seconds)
            return stop.is_set()

        options.run(controller, wait)


if __name__ == "__main__":
    run(main)
