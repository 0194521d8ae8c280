"""``spark-log replicate``: brings replicas that are not in sync back, without Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.format import (
    Output,
    print_json,
    print_note,
    print_table,
    replica_progress,
)
from spark_log.cli.options import Root, Topics, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.replication import (
    ClusterRecovery,
    RecoveredReplica,
    RecoveryReport,
    out_of_sync_replicas,
    replication_throttle,
)

_FAILED = 1
"""Exit status: a replica did not come back."""


@with_examples("spark-log replicate --dry-run", "spark-log replicate flights --throttle 50000000")
@with_option_groups
def replicate(
    topics: Topics,
    root: Root,
    output: Output,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            "--broker",
            metavar="ID",
            help="Only replicas on this broker. Repeatable. [default: all]",
        ),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="N",
            min=1,
            help="Maximum bytes per second to copy. [default: the cluster's "
            "replication.throttled.rate]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which replicas are not in sync, and do nothing.")
    ] = False,
) -> None:
    """Bring replicas that are not in sync back.

    The replicas are copied, and join the in-sync replicas. Without topics, the replicas of all
    topics are brought back. Other processes may write, read and replicate at the same time, and the
    command may be stopped at any time: the next run continues. A replica with records that were
    never acknowledged comes back in a new directory. Exit status: 0 all are in sync, 1 a replica is
    still not in sync.
    """
    cluster = root.cluster()
    image = cluster.image()
    replicas = out_of_sync_replicas(image, topics.names if topics.given else None, broker)
    done = [RecoveredReplica(each, None) for each in replicas if dry_run]
    limit = replication_throttle(image, throttle)
    with replica_progress("Replicating", len(replicas)) as progress:

        def on_copied(done_bytes: int) -> None:
            progress.copied(done_bytes)
            limit(done_bytes)

        recovery = ClusterRecovery(
            cluster, on_copied, progress.listed, lambda replica: progress.begin(str(replica))
        )
        for result in recovery.run([] if dry_run else replicas):
            done.append(result)
            progress.end()
    if output.is_json:
        print_json({"dry_run": dry_run, "replicas": [each.document() for each in done]})
    else:
        print_table(
            ["Topic", "Partition", "Broker", "State", "Directory", "Segments", "Bytes"],
            [_row(each) for each in done],
        )
    failures = [each for each in done if each.error is not None]
    for failed in failures:
        print_note(f"error: {failed.replica}: {failed.error}")
    if failures:
        raise typer.Exit(_FAILED)


def _row(done: RecoveredReplica) -> list[object]:
    is_in_sync = done.report is not None and done.report.is_in_sync
    report = done.report or RecoveryReport(done.replica.broker_id, is_in_sync=False)
    state = "in sync" if is_in_sync else "not in sync"
    figures = [report.directory, report.copied_segments, report.copied_bytes]
    return [*done.replica, state, *figures]
