"""``spark-log consumer-perf``: measure a consumer, with the options and output of Kafka's tool."""

from __future__ import annotations

import random
from typing import Annotated, Any, Final

import typer

from spark_log.cli.format import ConsumerReport, JavaDateFormat, Output, print_note
from spark_log.cli.options import Root, Topic, complete_groups, parse_pairs, with_option_groups
from spark_log.cli.terminal import exit_on_sigterm, with_examples
from spark_log.consumer import Consumer, ConsumerRebalanceListener
from spark_log.types import TopicPartition
from spark_log.util import SYSTEM_CLOCK, Clock

_MIB: Final = 1_048_576
_POLL_MS: Final = 100


@with_examples("spark-log consumer-perf flights --messages 3 --timeout 1000")
@with_option_groups
def consumer_perf(
    topic: Topic,
    root: Root,
    output: Output,
    messages: Annotated[
        int,
        typer.Option("--messages", "--num-records", min=1, help="Number of records to read."),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Id of the group. [default: perf-consumer-NUMBER]",
            autocompletion=complete_groups,
        ),
    ] = None,
    fetch_size: Annotated[
        int,
        typer.Option("--fetch-size", min=0, help="Bytes to fetch ahead for each partition."),
    ] = _MIB,
    from_latest: Annotated[
        bool,
        typer.Option("--from-latest", help="Start at the log end if the group has no offset."),
    ] = False,
    timeout_ms: Annotated[
        int,
        typer.Option("--timeout", min=0, help="Milliseconds without a record after which it ends."),
    ] = 10_000,
    reporting_interval_ms: Annotated[
        int,
        typer.Option("--reporting-interval", min=1, help="Milliseconds between detailed lines."),
    ] = 5_000,
    show_detailed_stats: Annotated[
        bool,
        typer.Option("--show-detailed-stats", help="Print a line for each reporting interval."),
    ] = False,
    date_format: Annotated[
        str,
        typer.Option("--date-format", help="Form of times, in Java's letters yyyy MM dd HH …"),
    ] = "yyyy-MM-dd HH:mm:ss:SSS",
    hide_header: Annotated[
        bool, typer.Option("--hide-header", help="Do not print the line of headings.")
    ] = False,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print the consumer's metrics at the end.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Read Arrow tables instead of single records.")
    ] = False,
    consumer_props: Annotated[
        list[str] | None,
        typer.Option(
            "--consumer-props",
            "--command-property",
            metavar="KEY=VALUE",
            help="A consumer config, such as max.poll.records=5000. Repeatable.",
        ),
    ] = None,
) -> None:
    """Measure how fast records are read.

    As in Kafka's tool, checksums are not verified, unless --consumer-props check.crcs=true. MB are
    2^20 bytes of keys and values. --json answers with one object; with --show-detailed-stats, one
    object for each interval precedes it.
    """
    given: dict[str, Any] = {
        "check.crcs": "false",
        "client.id": "perf-consumer-client",
        **parse_pairs("--consumer-props", consumer_props or []),
        "max.partition.fetch.bytes": fetch_size,
        "auto.offset.reset": "latest" if from_latest else "earliest",
    }
    times = JavaDateFormat(date_format)
    root.cluster().topic(topic.name)  # a consumer waits for a topic that does not exist
    report = ConsumerReport(output, times, show_detailed_stats)
    if not hide_header:
        report.print_header()
    with (
        exit_on_sigterm(),
        Consumer(
            root=root.url,
            group_id=group or f"perf-consumer-{random.randrange(100_000)}",
            **root.client_arguments,
            **given,
        ) as consumer,
    ):
        metrics = _consume(
            consumer, topic.name, messages, timeout_ms, reporting_interval_ms, report, table
        )
    if report.total.count < messages:
        print_note(
            f"WARNING: Exiting before consuming the expected number of messages: timeout "
            f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    report.end(metrics if print_metrics else None)


def _consume(
    consumer: Consumer,
    topic: str,
    messages: int,
    timeout_ms: int,
    reporting_interval_ms: int,
    report: ConsumerReport,
    reads_tables: bool,
) -> dict[str, dict[str, float]]:
    clock = SYSTEM_CLOCK
    consumer.subscribe([topic], listener=_JoinTimer(clock, report))
    report.begin(clock)
    last_ms = clock.monotonic_ms()
    total = report.total
    while total.count < messages and clock.monotonic_ms() - last_ms <= timeout_ms:
        count = total.count
        if reads_tables:
            total.add_table(consumer.poll_table(_POLL_MS))
        else:
            for records in consumer.poll(_POLL_MS).values():
                total.add_records(records)
        if total.count > count:
            last_ms = clock.monotonic_ms()
        if clock.monotonic_ms() - report.reported_ms >= reporting_interval_ms:
            report.interval(clock)
    report.stop(clock)
    return consumer.metrics()


class _JoinTimer(ConsumerRebalanceListener):
    """Measures the time until partitions are assigned."""

    def __init__(self, clock: Clock, report: ConsumerReport) -> None:
        self._clock = clock
        self._report = report
        self._began_ms = clock.monotonic_ms()

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._began_ms = self._clock.monotonic_ms()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._report.join_ms += self._clock.monotonic_ms() - self._began_ms
