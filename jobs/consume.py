"""Read what is new in topics for a consumer group, write it somewhere, and commit the offsets.

    spark-submit jobs/consume.py flights --root /data/log --group dashboard --to parquet --path out

The job is a member of the group: several of one group share the partitions, and each lets Spark
work on its share by tasks that own whole partitions. Run again, it continues where the group
stands. Into a Delta table each record goes exactly once; elsewhere offsets are committed after the
records are written, at least once.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from spark_log.cli.errors import run
from spark_log.cli.format.output import Output
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.config import ConsumerConfig
from spark_log.datasource.options.options import parse_read_options
from spark_log.datasource.read.offsets import format_offsets
from spark_log.errors import InvalidConfigurationError, nearest
from spark_log.jobs.delta_sink import DeltaSink
from spark_log.jobs.group_job import GroupJob, Work
from spark_log.jobs.group_share import GroupShare
from spark_log.jobs.group_work import DeltaWork, DestinationWork
from spark_log.jobs.job import (
    Counts,
    Destination,
    Report,
    Sink,
    SinkOption,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.jobs.stop_signals import StopSignals
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
"""What a job takes of a consumer's configuration: the rest is about how a consumer fetches."""


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="The topics to read.")],
    root: Root,
    output: Output,
    destination: Destination,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    latest: Annotated[
        bool,
        typer.Option(
            help="Where the group has no offset, or one that is no longer retained: "
            "begin at the end instead of at the start."
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C or SIGTERM.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            min=0, help="With --follow: a batch begins so many seconds after the last, or later."
        ),
    ] = 10.0,
    members: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tasks that share the job's partitions. [default: as many as run at once]"
        ),
    ] = None,
    assignment_strategy: Annotated[
        str | None,
        typer.Option(
            help="range, roundrobin, sticky or cooperative-sticky; several by commas, the best "
            "first. [default: range,cooperative-sticky]"
        ),
    ] = None,
    batch_records: Annotated[
        int | None,
        typer.Option(min=1, help="About how many records a batch has at most. [default: all]"),
    ] = None,
    sink_option: SinkOption = None,
    consumer_props: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A consumer config of the member, such as session.timeout.ms=10000. Repeatable.",
        ),
    ] = None,
) -> None:
    """Read what is new in topics for a consumer group, write it, and commit the offsets.

    Into a Delta table each record goes exactly once, elsewhere at least once. Several jobs of one
    group share the partitions.
    """
    report = Report("consumed")
    config = _config(consumer_props or [], assignment_strategy, latest=latest)
    cluster = root.cluster()
    connection = connection_options(root.url, root.storage_options)
    read = {"subscribe": ",".join(topics), "group.id": group}
    share = GroupShare(
        cluster, parse_read_options({**connection, **read}), config, follows=follow,
        most=batch_records,
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
        work: Work = DeltaWork(sink, *arguments)
    else:
        work = DestinationWork(destination, *arguments)
    report.add(group=group, topics=", ".join(topics), to=str(destination))
    started = time.perf_counter()
    with StopSignals() as stop:
        tally = GroupJob(
            share, work, cluster.clock, stop=stop,
            max_poll_interval_ms=config.max_poll_interval_ms, interval_s=interval if follow else 0,
        ).run()  # fmt: skip
    report.add_counts(Counts(tally.records, tally.written), time.perf_counter() - started)
    if tally.skipped:
        report.add(in_the_table_before=tally.skipped)
    if tally.lost:
        report.add(went_to_other_members=", ".join(map(str, sorted(tally.lost))))
    report.add(committed=format_offsets(tally.committed))
    report.print(as_json=output.is_json)
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)


def _config(props: list[str], strategy: str | None, *, latest: bool) -> ConsumerConfig:
    """Return the member's configuration.

    Raises:
        InvalidConfigurationError: a property is unknown, is not a member's, or has a bad value.
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
                f"--consumer-props {key} means nothing to this job; {hint}it takes "
                f"{', '.join(_MEMBER_PROPS)}",
                key=key,
            )
    return config


if __name__ == "__main__":
    run(main)
