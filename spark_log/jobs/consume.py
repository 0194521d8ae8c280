"""Read new records of topics as a consumer group, write them, and commit the offsets.

The job is a member of the group: several jobs of one group share the partitions, and Spark reads
the partitions of each job in tasks that own whole partitions. The next run continues at the
committed offsets. Into a Delta table each record is written exactly once. Other sinks get records
at least once: offsets are committed after the records are written.
"""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli import JobMemberOptions, Output, Root, parse_pairs, run, with_option_groups
from spark_log.datasource import parse_read_options
from spark_log.jobs.group import (
    BatchProcessor,
    DeltaProcessor,
    DestinationProcessor,
    JobMember,
    run_group_job,
)
from spark_log.jobs.program import (
    JobReport,
    SinkOption,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.jobs.sink import DeltaSink, Destination, Sink
from spark_log.storage import open_store


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="Topics to read.")],
    root: Root,
    output: Output,
    membership: JobMemberOptions,
    destination: Destination,
    sink_option: SinkOption = None,
) -> None:
    """Read new records of topics as a consumer group, write them, and commit the offsets.

    Into a Delta table each record is written exactly once, to other sinks at least once. Several
    jobs of one group share the partitions.
    """
    report = JobReport("consumed")
    group = membership.group
    cluster = root.cluster()
    connection = connection_options(root)
    read = {"subscribe": ",".join(topics), "group.id": group}
    member = JobMember(
        cluster,
        parse_read_options({**connection, **read}),
        membership.config,
        follow=membership.follow,
        max_records=membership.batch_records,
    )
    arguments = (
        lambda: job_session("consume"),
        connection,
        group,
        membership.members,
        spark_progress,
    )
    if destination.sink is Sink.DELTA:
        assert destination.path is not None
        given = parse_pairs("--sink-option", sink_option or [], secret=True)
        options = given or root.storage_options
        sink = DeltaSink(
            open_store(destination.path, options).url, options, group, destination.binary
        )
        sink.prepare()
        processor: BatchProcessor = DeltaProcessor(sink, *arguments)
    else:
        processor = DestinationProcessor(destination, *arguments)
    report.add(group=group, topics=", ".join(topics), to=str(destination))
    run_group_job(
        member,
        processor,
        cluster.clock,
        report,
        as_json=output.is_json,
        max_poll_interval_ms=membership.config.max_poll_interval_ms,
        interval_s=membership.interval_s,
    )


if __name__ == "__main__":
    run(main)
