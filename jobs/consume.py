"""Read new records of topics as a consumer group, write them, and commit the offsets.

    spark-submit jobs/consume.py flights --root /data/log --group dashboard --to parquet --path out

The job is a member of the group: several jobs of one group share the partitions, and Spark reads
the partitions of each job in tasks that own whole partitions. The next run continues at the
committed offsets. Into a Delta table each record is written exactly once. Other sinks get records
at least once: offsets are committed after the records are written.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from spark_log.cli import Output, Root, parse_pairs, run, with_option_groups
from spark_log.config import ConsumerConfig
from spark_log.datasource import format_offsets, parse_read_options
from spark_log.errors import InvalidConfigurationError, nearest
from spark_log.jobs import (
    BatchProcessor,
    Counts,
    DeltaProcessor,
    DeltaSink,
    Destination,
    DestinationProcessor,
    GroupJob,
    JobMember,
    Report,
    Sink,
    SinkOption,
    StopSignals,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.storage import open_store

_MEMBER_PROPS: Final = (
    "auto.offset.reset",
    "client.id",
    "client.rack",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "retry.backoff.ms",
    "session.timeout.ms",
)
"""Consumer configs that apply to a job; the others configure fetches of a `Consumer`."""


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="Topics to read.")],
    root: Root,
    output: Output,
    destination: Destination,
    group: Annotated[str, typer.Option(help="Consumer group.")],
    latest: Annotated[
        bool,
        typer.Option(
            help="Start at the end of a partition, instead of its start, if the group has no "
            "offset or the offset is no longer retained."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep reading new records until Ctrl-C or SIGTERM.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            min=0, help="With --follow: minimum number of seconds between the starts of batches."
        ),
    ] = 10.0,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of tasks that share the job's partitions. [default: as many as can run "
            "at once]",
        ),
    ] = None,
    assignment_strategy: Annotated[
        str | None,
        typer.Option(
            help="range, roundrobin, sticky or cooperative-sticky; several in order of preference, "
            "separated by commas. [default: range,cooperative-sticky]"
        ),
    ] = None,
    batch_records: Annotated[
        int | None,
        typer.Option(
            min=1, help="Approximate maximum number of records in a batch. [default: all]"
        ),
    ] = None,
    sink_option: SinkOption = None,
    consumer_props: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Consumer config, such as session.timeout.ms=10000. Repeatable.",
        ),
    ] = None,
) -> None:
    """Read new records of topics as a consumer group, write them, and commit the offsets.

    Into a Delta table each record is written exactly once, to other sinks at least once. Several
    jobs of one group share the partitions.
    """
    report = Report("consumed")
    config = _config(consumer_props or [], assignment_strategy, latest=latest)
    cluster = root.cluster()
    connection = connection_options(root.url, root.storage_options)
    read = {"subscribe": ",".join(topics), "group.id": group}
    member = JobMember(
        cluster, parse_read_options({**connection, **read}), config, follow=follow,
        max_records=batch_records,
    )  # fmt: skip
    arguments = (lambda: job_session("consume"), connection, group, members, spark_progress)
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
    started = time.perf_counter()
    with StopSignals() as stop:
        stats = GroupJob(
            member, processor, cluster.clock, stop=stop,
            max_poll_interval_ms=config.max_poll_interval_ms, interval_s=interval if follow else 0,
        ).run()  # fmt: skip
    report.add_counts(Counts(stats.records, stats.written), time.perf_counter() - started)
    if stats.skipped:
        report.add(in_the_table_before=stats.skipped)
    if stats.lost:
        report.add(went_to_other_members=", ".join(map(str, sorted(stats.lost))))
    report.add(committed=format_offsets(stats.committed))
    report.print(as_json=output.is_json)
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)


def _config(props: list[str], strategy: str | None, *, latest: bool) -> ConsumerConfig:
    """Return the member's configuration.

    Raises:
        InvalidConfigurationError: a property is unknown, does not apply to a job, or has an invalid
            value.
    """
    given: dict[str, object] = {"auto.offset.reset": "latest" if latest else "earliest"}
    given |= parse_pairs("--consumer-props", props)
    if strategy is not None:
        given["partition.assignment.strategy"] = strategy
    config = ConsumerConfig.parse(given)
    for key in given:
        if key not in _MEMBER_PROPS:
            close = nearest(key, _MEMBER_PROPS)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidConfigurationError(
                f"--consumer-props {key} does not apply to this job; {hint}the job takes "
                f"{', '.join(_MEMBER_PROPS)}",
                key=key,
            )
    return config


if __name__ == "__main__":
    run(main)
