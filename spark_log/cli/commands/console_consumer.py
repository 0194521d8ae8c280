"""``spark-log console-consumer``: records of a topic on stdout."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.cli.format.output import Output, print_bytes, print_json_lines, print_note
from spark_log.cli.format.record_format import TextFormat, format_text, record_documents
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.partition_reader import OffsetRange, read_partitions
from spark_log.cli.properties import with_properties
from spark_log.cli.root import Root
from spark_log.cli.time_window import TimeWindow
from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import PartitionLog
from spark_log.metadata import Cluster
from spark_log.metadata.image import TopicImage

_EARLIEST, _LATEST = "earliest", "latest"

_ROWS_AT_ONCE = 4096
"""So many records become Python objects at once."""


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
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Print keys, values and headers byte by byte. [default: what is not UTF-8 is "
            "replaced, and on a terminal, which would obey them, control characters are escaped]",
        ),
    ] = False,
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
    """Print the records of a topic.

    By default those that come from now on, until Ctrl-C.

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
        key_separator=TextFormat().key_separator if key_separator is None else key_separator,
    )
    text_format = with_properties(text_format, properties or [])
    window = TimeWindow.parse(from_time, to_time)
    start = _parse_start(from_beginning, offset, window)
    cluster = root.cluster()
    image = cluster.topic(topic)
    numbers = sorted(image.partitions) if partition is None else [partition]
    if isinstance(start, int) and len(numbers) > 1:
        raise typer.BadParameter(
            f"{start} needs --partition too: topic {topic!r} has {len(numbers)}",
            param_hint="'--offset'",
        )
    logs = {number: cluster.partition_log(image, number) for number in numbers}
    ranges = {number: _range(log, start, window) for number, log in logs.items()}
    fetched = read_partitions(logs, ranges, cluster.clock, timeout_ms)
    for_terminal = sys.stdout.isatty()
    count = 0
    try:
        for records in _limited(_inside(fetched, window), max_messages):
            for piece in records.pieces(_ROWS_AT_ONCE):
                count += len(piece)  # before printing, as Kafka: Ctrl-C may come right after it
                if output.is_json:
                    print_json_lines({"topic": topic, **each} for each in record_documents(piece))
                else:
                    print_bytes(
                        format_text(piece, text_format, is_raw=raw, for_terminal=for_terminal)
                    )
    except KeyboardInterrupt:
        _report(count)
        raise
    except (OffsetOutOfRangeError, CorruptRecordError, NotFoundError):
        _check_is_there(cluster, image)
        raise
    _report(count)


def _parse_start(from_beginning: bool, offset: str | None, window: TimeWindow) -> int | str:
    """Return the offset to start at, or which end of the log."""
    if from_beginning and offset is not None:
        raise typer.BadParameter("--from-beginning and --offset exclude each other")
    if window.from_us is not None and (from_beginning or offset is not None):
        other = "--offset" if offset is not None else "--from-beginning"
        raise typer.BadParameter(f"--from-time and {other} exclude each other")
    if offset is None:
        return _LATEST if window.is_open and not from_beginning else _EARLIEST
    if offset in (_EARLIEST, _LATEST):
        return offset
    if not re.fullmatch(r"[0-9]{1,18}", offset):
        raise typer.BadParameter(
            f"{offset!r} is not an offset; give a number from 0, {_EARLIEST} or {_LATEST}",
            param_hint="'--offset'",
        )
    return int(offset)


def _range(log: PartitionLog, start: int | str, window: TimeWindow) -> OffsetRange:
    """Return what to read of a partition; a window of time ends where the log ends now."""
    view = log.observe()
    end = None if window.is_open else view.log_end_offset
    if window.from_us is not None:
        found = log.offset_for_time(window.from_us)
        # Not found: nothing of the log is in the window, so begin at its end.
        return OffsetRange(view.log_end_offset if found is None else found[0], end)
    if isinstance(start, int):
        return OffsetRange(start, end)
    return OffsetRange(view.log_start_offset if start == _EARLIEST else view.log_end_offset, end)


def _check_is_there(cluster: Cluster, topic: TopicImage) -> None:
    """Check that a topic was not deleted: its log would look empty, and any offset wrong.

    Raises:
        UnknownTopicOrPartitionError: it was.
    """
    found = cluster.image().find(topic.name)
    if found is None or found.topic_id != topic.topic_id:
        again = "" if found is None else " and created again: start again to read the new one"
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} was deleted while it was read{again}", topic=topic.name
        )


def _inside(fetched: Iterator[FetchedRecords], window: TimeWindow) -> Iterator[FetchedRecords]:
    """Leave out what is outside of a window of time."""
    if window.is_open:
        yield from fetched
        return
    for records in fetched:
        kept = records.where(window.contains(records.timestamps_us))
        if kept:
            yield kept


def _limited(fetched: Iterator[FetchedRecords], limit: int | None) -> Iterator[FetchedRecords]:
    """End after exactly ``limit`` records."""
    if limit is None:
        yield from fetched
        return
    left = limit
    for records in fetched:
        yield records.slice(0, left)
        left -= len(records)
        if left <= 0:
            return


def _report(count: int) -> None:
    print_note(f"Processed a total of {count} messages")
