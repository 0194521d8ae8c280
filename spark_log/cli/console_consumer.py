"""``spark-log console-consumer``: records of a topic on stdout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.output import Output, print_bytes, print_note
from spark_log.cli.partition_reader import OffsetRange, read_partitions
from spark_log.cli.properties import with_properties
from spark_log.cli.record_format import TextFormat, format_json, format_text
from spark_log.cli.root import Root
from spark_log.cli.time_window import TimeWindow
from spark_log.errors import InvalidOptionError
from spark_log.log import LogBatch, PartitionLog

_EARLIEST, _LATEST = "earliest", "latest"


@with_option_groups
def console_consumer(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    root: Root,
    output: Output,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the earliest record.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", help="Only this one. [default: all]")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="N|earliest|latest",
            help="Where to start; a number goes with --partition. [default: latest]",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="End after so many records.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Only records with this timestamp or a later one. ISO 8601 (UTC unless it says "
            "otherwise), or milliseconds since the epoch.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Only records with an earlier timestamp."),
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout-ms", min=0, help="End when no record came for so long."),
    ] = None,
    print_key: Annotated[bool, typer.Option("--print-key", help="Print keys.")] = False,
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="Print timestamps, milliseconds.")
    ] = False,
    print_partition: Annotated[
        bool, typer.Option("--print-partition", help="Print partitions.")
    ] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset", help="Print offsets.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="Print headers.")] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Between columns. [default: a tab]"),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--formatter-property",
            metavar="KEY=VALUE",
            help="A property of Kafka's formatter: print.key, print.value, print.timestamp, "
            "print.offset, print.epoch, print.partition, print.headers, key.separator, "
            "line.separator, headers.separator, null.literal. Repeatable.",
        ),
    ] = None,
) -> None:
    """Print records, by default those that come from now on, until Ctrl-C.

    With --from-time or --to-time, a window of event time is replayed: exactly the records whose
    timestamps lie in it, of all that the log holds when the command starts; then it ends.

    With --output json each record is one JSON object on a line of its own.
    """
    text_format = TextFormat(
        print_key=print_key,
        print_timestamp=print_timestamp,
        print_partition=print_partition,
        print_offset=print_offset,
        print_headers=print_headers,
    )
    if key_separator is not None:
        text_format = replace(text_format, key_separator=key_separator)
    text_format = with_properties(text_format, properties or [])
    window = TimeWindow.parse(from_time, to_time)
    start = _parse_start(from_beginning, offset, window)
    cluster = root.cluster()
    image = cluster.topic(topic)
    numbers = sorted(image.partitions) if partition is None else [partition]
    if isinstance(start, int) and len(numbers) > 1:
        raise InvalidOptionError(
            f"--offset {start} needs --partition: topic {topic!r} has {len(numbers)}",
            key="--offset",
        )
    logs = {number: cluster.partition_log(image, number) for number in numbers}
    ranges = {number: _range(log, start, window) for number, log in logs.items()}
    batches = read_partitions(logs, ranges, cluster.clock, timeout_ms)
    count = 0
    try:
        for number, batch in _limited(_inside(batches, window), max_messages):
            pieces = (
                format_json(batch, topic, number)
                if output.is_json
                else format_text(batch, number, text_format)
            )
            for piece in pieces:
                print_bytes(piece)
            count += batch.records.num_rows
    except KeyboardInterrupt:
        _report(count)
        raise
    _report(count)


def _parse_start(from_beginning: bool, offset: str | None, window: TimeWindow) -> int | str:
    """Return the offset to start at, or which end of the log."""
    if from_beginning and offset is not None:
        raise InvalidOptionError("--from-beginning and --offset exclude each other", key="--offset")
    if window.from_us is not None and (from_beginning or offset is not None):
        other = "--offset" if offset is not None else "--from-beginning"
        raise InvalidOptionError(f"--from-time and {other} exclude each other", key="--from-time")
    if offset is None:
        return _EARLIEST if from_beginning or window.is_bounded else _LATEST
    if offset in (_EARLIEST, _LATEST):
        return offset
    if not re.fullmatch(r"[0-9]+", offset):
        raise InvalidOptionError(
            f"--offset {offset!r} is not an offset; give a number from 0, {_EARLIEST} or {_LATEST}",
            key="--offset",
        )
    return int(offset)


def _range(log: PartitionLog, start: int | str, window: TimeWindow) -> OffsetRange:
    """Return what to read of a partition; a window of time ends where the log ends now."""
    view = log.observe()
    end = view.log_end_offset if window.is_bounded else None
    if window.from_us is not None:
        found = log.offset_for_time(window.from_us)
        # Not found: there is nothing in the window, so begin at its end.
        return OffsetRange(view.log_end_offset if found is None else found[0], end)
    if isinstance(start, int):
        return OffsetRange(start, end)
    return OffsetRange(view.log_start_offset if start == _EARLIEST else view.log_end_offset, end)


def _inside(
    batches: Iterator[tuple[int, LogBatch]], window: TimeWindow
) -> Iterator[tuple[int, LogBatch]]:
    """Leave out the records outside of a window of time."""
    for number, batch in batches:
        inside = window.contains(batch.records.column("timestamp"))
        kept = batch if inside is None else batch.filter(inside)
        if kept.records.num_rows:
            yield number, kept


def _limited(
    batches: Iterator[tuple[int, LogBatch]], limit: int | None
) -> Iterator[tuple[int, LogBatch]]:
    """End after exactly ``limit`` records."""
    if limit is None:
        yield from batches
        return
    left = limit
    for number, batch in batches:
        rows = min(left, batch.records.num_rows)
        yield number, replace(batch, records=batch.records.slice(0, rows))
        left -= rows
        if not left:
            return


def _report(count: int) -> None:
    print_note(f"Processed a total of {count} messages")
