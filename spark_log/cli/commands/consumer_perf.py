"""``spark-log consumer-perf``: measure a consumer, with the options and output of Kafka's tool."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import typer

from spark_log.cli.completion import complete_groups
from spark_log.cli.examples import with_examples
from spark_log.cli.format.output import Output, print_json, print_note, print_text
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.properties import parse_pairs
from spark_log.cli.root import Root
from spark_log.cli.topic_options import Topic
from spark_log.clock import SYSTEM_CLOCK, Clock
from spark_log.consumer import Consumer, ConsumerRebalanceListener
from spark_log.types import ConsumerRecord, TopicPartition

_MIB: Final = 1_048_576
_POLL_MS: Final = 100
_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DETAILED_HEADER: Final = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_JAVA_DATE: Final = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S",
}  # fmt: skip


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
    times = _Times(date_format)
    root.cluster().topic(topic.name)  # a consumer waits for a topic that does not exist
    report = _Report(output, times, show_detailed_stats)
    if not hide_header and not output.is_json:
        print_text(_DETAILED_HEADER if show_detailed_stats else _HEADER)
    with Consumer(
        root=root.url,
        group_id=group or f"perf-consumer-{random.randrange(100_000)}",
        storage_options=root.storage_options,
        **given,
    ) as consumer:
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
    report: _Report,
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


@dataclass(slots=True)
class _Total:
    """Number and size of the records that were read."""

    count: int = 0
    size_bytes: int = 0

    def add_records(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            self.count += 1
            if isinstance(record.key, bytes):
                self.size_bytes += len(record.key)
            if isinstance(record.value, bytes):
                self.size_bytes += len(record.value)

    def add_table(self, table: pa.Table) -> None:
        self.count += table.num_rows
        for name in ("key", "value"):
            self.size_bytes += pc.sum(pc.binary_length(table.column(name))).as_py() or 0


class _Times:
    """Formats times as Java's SimpleDateFormat; it knows the letters of dates and times."""

    def __init__(self, pattern: str) -> None:
        """Take a pattern of Java's letters; refuse unknown letters."""
        parts = re.findall(r"([A-Za-z])(\1*)|([^A-Za-z]+)", pattern)
        self._parts = [other or first + more for first, more, other in parts]
        wrong = [each for each in self._parts if each[0].isalpha() and not self._knows(each)]
        if wrong:
            raise typer.BadParameter(
                f"{wrong[0]!r} is unknown; use {', '.join(_JAVA_DATE)}, SSS",
                param_hint="'--date-format'",
            )

    def text(self, time_us: int) -> str:
        """Return a time, given in microseconds since the epoch, as text in the local time zone."""
        moment = datetime.fromtimestamp(time_us / 1e6)
        milliseconds = f"{time_us // 1000 % 1000:03d}"
        return "".join(
            milliseconds if part == "SSS" else moment.strftime(_JAVA_DATE.get(part, part))
            for part in self._parts
        )

    @staticmethod
    def _knows(part: str) -> bool:
        return part == "SSS" or part in _JAVA_DATE


class _Report:
    """Prints the lines of Kafka's tool: one for each interval, or one at the end."""

    def __init__(self, output: Output, times: _Times, is_detailed: bool) -> None:
        self.total = _Total()
        self.reported_ms = 0.0
        self.join_ms = 0.0
        self._output = output
        self._times = times
        self._is_detailed = is_detailed
        self._began_us = self._ended_us = 0
        self._began_ms = self._ended_ms = 0.0
        self._last = _Total()
        self._last_join_ms = 0.0

    def begin(self, clock: Clock) -> None:
        """Start the clock."""
        self._began_us, self._began_ms = clock.time_us(), clock.monotonic_ms()
        self.reported_ms = self._began_ms

    def stop(self, clock: Clock) -> None:
        """Stop the clock."""
        self._ended_us, self._ended_ms = clock.time_us(), clock.monotonic_ms()

    def interval(self, clock: Clock) -> None:
        """End an interval, and print its line with ``--show-detailed-stats``."""
        now_ms = clock.monotonic_ms()
        if self._is_detailed:
            figures = _figures(
                self.total.size_bytes - self._last.size_bytes,
                self.total.count - self._last.count,
                now_ms - self.reported_ms,
                self.join_ms - self._last_join_ms,
            )
            time = self._times.text(clock.time_us())
            total_mb = self.total.size_bytes / _MIB
            if self._output.is_json:
                document = {"time": time, "threadId": 0, **figures}
                document["data.consumed.in.MB"] = total_mb
                document["data.consumed.in.nMsg"] = self.total.count
                print_json(document)
            else:
                print_text(f"{time}, 0, {_line(figures, total_mb, self.total.count)}")
        self.reported_ms = now_ms
        self._last = _Total(self.total.count, self.total.size_bytes)
        self._last_join_ms = self.join_ms

    def end(self, metrics: dict[str, dict[str, float]] | None) -> None:
        """Print the figures of the whole run."""
        figures = _figures(
            self.total.size_bytes,
            self.total.count,
            self._ended_ms - self._began_ms,
            self.join_ms,
        )
        start, end = self._times.text(self._began_us), self._times.text(self._ended_us)
        if self._output.is_json:
            document = {"start.time": start, "end.time": end, **figures}
            print_json(document if metrics is None else {**document, "metrics": metrics})
            return
        if not self._is_detailed:
            total_mb = self.total.size_bytes / _MIB
            print_text(f"{start}, {end}, {_line(figures, total_mb, self.total.count)}")
        for group, values in (metrics or {}).items():
            for name, value in values.items():
                print_text(f"{group}:{name}: {value}")


def _figures(size_bytes: int, count: int, took_ms: float, join_ms: float) -> dict[str, object]:
    took_s = max(took_ms, 0.001) / 1000
    fetch_s = max(took_ms - join_ms, 0.001) / 1000
    size_mb = size_bytes / _MIB
    return {
        "data.consumed.in.MB": size_mb,
        "MB.sec": size_mb / took_s,
        "data.consumed.in.nMsg": count,
        "nMsg.sec": count / took_s,
        "rebalance.time.ms": round(join_ms),
        "fetch.time.ms": round(took_ms - join_ms),
        "fetch.MB.sec": size_mb / fetch_s,
        "fetch.nMsg.sec": count / fetch_s,
    }


def _line(figures: dict[str, object], total_mb: float, total_count: int) -> str:
    return (
        f"{total_mb:.4f}, {figures['MB.sec']:.4f}, {total_count}, {figures['nMsg.sec']:.4f}, "
        f"{figures['rebalance.time.ms']}, {figures['fetch.time.ms']}, "
        f"{figures['fetch.MB.sec']:.4f}, {figures['fetch.nMsg.sec']:.4f}"
    )


class _JoinTimer(ConsumerRebalanceListener):
    """Measures the time until partitions are assigned."""

    def __init__(self, clock: Clock, report: _Report) -> None:
        self._clock = clock
        self._report = report
        self._began_ms = clock.monotonic_ms()

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._began_ms = self._clock.monotonic_ms()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._report.join_ms += self._clock.monotonic_ms() - self._began_ms
