"""``spark-log console-consumer``: print the records of topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from spark_log.cli.examples import with_examples
from spark_log.cli.fetched_records import FetchedRecords
from spark_log.cli.format.output import Output, print_bytes, print_json_lines, print_note
from spark_log.cli.format.record_format import TextFormat, format_text, record_documents
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.partition_reader import OffsetRange, read_partitions
from spark_log.cli.properties import parse_pairs, with_properties
from spark_log.cli.root import Root
from spark_log.cli.subscription_reader import read_subscription
from spark_log.cli.time_window import TimeWindow
from spark_log.cli.topic_options import Topic
from spark_log.config import ConsumerConfig
from spark_log.consumer import Consumer
from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import PartitionLog
from spark_log.metadata import Cluster
from spark_log.metadata.image import TopicImage

_EARLIEST, _LATEST = "earliest", "latest"

_ROWS_AT_ONCE: Final = 4096
"""Number of records that are converted to Python objects at a time."""

_Records = Iterator[tuple[str, FetchedRecords]]


@with_examples(
    "spark-log console-consumer flights --from-beginning --max-messages 3",
    "spark-log console-consumer flights --tail 1 --print-key --timeout-ms 100",
    "spark-log console-consumer flights --group reports --max-messages 1",
)
@with_option_groups
def console_consumer(
    topic: Topic,
    root: Root,
    output: Output,
    include: Annotated[
        str | None,
        typer.Option(
            "--include",
            "--regex",
            metavar="REGEX",
            help="Read all topics whose name matches, instead of one topic.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Read as a member of this group: continue at its committed offsets, and commit.",
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Start at the earliest record (with --group only without a committed offset).",
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", help="Number of the partition to read. [default: all]"),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="N|-N|earliest|latest",
            help="Where to start. N is an offset, and requires --partition if there are several. "
            "-N is N offsets before the end of each partition. [default: latest]",
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            metavar="N",
            min=1,
            help="Start N offsets before the end of each partition, and wait for "
            "more records unless --max-messages or --timeout-ms ends the command.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="Number of records to print.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Print only records with this timestamp or a later one. ISO 8601 (UTC unless it "
            "has an offset), or milliseconds since the epoch.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="TIME", help="Print only records with an earlier timestamp."
        ),
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout-ms", min=0, help="Milliseconds without a record after which it ends."
        ),
    ] = None,
    print_key: Annotated[bool, typer.Option("--print-key", help="Print keys.")] = False,
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="Print timestamps, in milliseconds.")
    ] = False,
    print_partition: Annotated[
        bool, typer.Option("--print-partition", help="Print partitions.")
    ] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset", help="Print offsets.")] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", help="Print headers.")] = False,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", metavar="TEXT", help="Text between columns. [default: a tab]"
        ),
    ] = None,
    key_deserializer: Annotated[
        str,
        typer.Option(
            "--key-deserializer", metavar="string|json|hex", help="How to print the bytes of keys."
        ),
    ] = "string",
    value_deserializer: Annotated[
        str,
        typer.Option(
            "--value-deserializer",
            metavar="string|json|hex",
            help="How to print the bytes of values.",
        ),
    ] = "string",
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Print keys, values and headers byte by byte. [default: bytes that are not UTF-8 "
            "are replaced, and on a terminal control characters are escaped]",
        ),
    ] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--formatter-property",
            metavar="KEY=VALUE",
            help="Property of Kafka's formatter: print.key, print.value, print.timestamp, "
            "print.offset, print.epoch, print.partition, print.headers, key.separator, "
            "line.separator, headers.separator, null.literal, key.deserializer, "
            "value.deserializer. Repeatable.",
        ),
    ] = None,
    consumer_property: Annotated[
        list[str] | None,
        typer.Option(
            "--consumer-property",
            "--command-property",
            metavar="KEY=VALUE",
            help="Consumer config for --group or --include, such as client.id=a. Repeatable.",
        ),
    ] = None,
) -> None:
    """Print the records of a topic.

    Without further options it prints new records, until Ctrl-C.

    With --from-time or --to-time it prints exactly the records whose timestamps are in this window
    of event time, of all records that the log has when the command starts. Then it ends.

    With --output json each record is one JSON object on a line.
    """
    text_format = TextFormat(
        print_key=print_key,
        print_timestamp=print_timestamp,
        print_partition=print_partition,
        print_offset=print_offset,
        print_headers=print_headers,
        key_separator=TextFormat().key_separator if key_separator is None else key_separator,
        key_deserializer=key_deserializer,
        value_deserializer=value_deserializer,
    )
    text_format = with_properties(text_format, properties or [])
    text_format.check()
    printer = _RecordPrinter(output, text_format, raw)
    if group is not None or include is not None:
        refused = {
            "--partition": partition,
            "--offset": offset,
            "--tail": tail,
            "--from-time": from_time,
            "--to-time": to_time,
        }
        _refuse_with_subscription(refused, "--group" if include is None else "--include")
        config = _consumer_config(from_beginning, consumer_property or [])
        _print_subscription(
            root, topic, include, group, config, printer, timeout_ms=timeout_ms, limit=max_messages
        )
        return
    if consumer_property:
        raise InvalidConfigurationError("--consumer-property requires --group or --include")
    window = TimeWindow.parse(from_time, to_time)
    start = _parse_start(from_beginning, offset, tail, window)
    cluster = root.cluster()
    image = cluster.topic(topic.name)
    numbers = sorted(image.partitions) if partition is None else [partition]
    if isinstance(start, int) and start >= 0 and len(numbers) > 1:
        raise typer.BadParameter(
            f"{start} needs --partition too: topic {image.name!r} has {len(numbers)}",
            param_hint="'--offset'",
        )
    logs = {number: cluster.partition_log(image, number) for number in numbers}
    ranges = {number: _range(log, start, window) for number, log in logs.items()}
    fetched = read_partitions(logs, ranges, cluster.clock, timeout_ms)
    try:
        found = _limited(_inside(fetched, window), max_messages)
        printer.print_all((image.name, records) for records in found)
    except (OffsetOutOfRangeError, CorruptRecordError, NotFoundError):
        _check_not_deleted(cluster, image)
        raise


class _RecordPrinter:
    """Prints records in the requested form, and reports their number at the end."""

    def __init__(self, output: Output, text_format: TextFormat, is_raw: bool) -> None:
        self._output = output
        self._text_format = text_format
        self._is_raw = is_raw
        self._for_terminal = sys.stdout.isatty()

    def print_all(self, found: _Records) -> None:
        """Print records until they end; report their number then, and on Ctrl-C."""
        count = 0
        try:
            for topic, records in found:
                for piece in records.pieces(_ROWS_AT_ONCE):
                    count += len(piece)  # before printing, as Kafka: Ctrl-C may come right after it
                    self._print(topic, piece)
        except KeyboardInterrupt:
            _report(count)
            raise
        _report(count)

    def _print(self, topic: str, records: FetchedRecords) -> None:
        text_format = self._text_format
        if self._output.is_json:
            documents = record_documents(
                records, text_format.key_deserializer, text_format.value_deserializer
            )
            print_json_lines({"topic": topic, **each} for each in documents)
        else:
            print_bytes(
                format_text(
                    records, text_format, is_raw=self._is_raw, for_terminal=self._for_terminal
                )
            )


def _refuse_with_subscription(given: Mapping[str, object], option: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"{name} and {option} exclude each other")


def _consumer_config(from_beginning: bool, properties: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "client.id": "console-consumer",
        "auto.offset.reset": _EARLIEST if from_beginning else _LATEST,
    }
    for key, value in parse_pairs("--consumer-property", properties).items():
        config[ConsumerConfig.key_name(key)] = value
    ConsumerConfig.parse(config)  # the other arguments of `Consumer` are not for users of a shell
    return config


def _print_subscription(
    root: Root,
    topic: Topic,
    include: str | None,
    group: str | None,
    config: dict[str, Any],
    printer: _RecordPrinter,
    *,
    timeout_ms: int | None,
    limit: int | None,
) -> None:
    """Print the records that a consumer gets; with a group, commit its offsets at the end."""
    cluster = root.cluster()
    if include is None:
        cluster.topic(topic.name)  # a consumer would wait for a topic that does not exist
    elif topic.given is not None:
        raise typer.BadParameter("TOPIC and --include exclude each other")
    else:
        _check_regex(include)
    with Consumer(
        root=root.url, group_id=group, storage_options=root.storage_options, **config
    ) as consumer:
        if include is None:
            consumer.subscribe([topic.name])
        else:
            consumer.subscribe(pattern=rf"(?:{include})\Z")
        printer.print_all(
            read_subscription(consumer, cluster.clock, timeout_ms=timeout_ms, max_records=limit)
        )


def _check_regex(include: str) -> None:
    try:
        re.compile(include)
    except re.error as error:
        raise typer.BadParameter(
            f"{include!r} is not a regular expression: {error}", param_hint="'--include'"
        ) from None


def _parse_start(
    from_beginning: bool, offset: str | None, tail: int | None, window: TimeWindow
) -> int | str:
    """Return the offset to start at (negative: before the end), or which end of the log."""
    if tail is not None:
        if offset is not None:
            raise typer.BadParameter("--tail and --offset exclude each other")
        offset = f"-{tail}"
    if from_beginning and offset is not None:
        raise typer.BadParameter("--from-beginning and --offset exclude each other")
    if window.from_us is not None and (from_beginning or offset is not None):
        other = "--offset" if offset is not None else "--from-beginning"
        raise typer.BadParameter(f"--from-time and {other} exclude each other")
    if offset is None:
        return _LATEST if window.is_open and not from_beginning else _EARLIEST
    if offset in (_EARLIEST, _LATEST):
        return offset
    if not re.fullmatch(r"[0-9]{1,18}|-[1-9][0-9]{0,17}", offset):
        raise typer.BadParameter(
            f"{offset!r} is not an offset; give a number, {_EARLIEST} or {_LATEST}",
            param_hint="'--offset'",
        )
    return int(offset)


def _range(log: PartitionLog, start: int | str, window: TimeWindow) -> OffsetRange:
    """Return the offsets to read from a partition; a window of time ends at the log end of now."""
    view = log.observe()
    end = None if window.is_open else view.log_end_offset
    if window.from_us is not None:
        found = log.offset_for_time(window.from_us)
        # Not found: no record of the log is in the window, so start at its end.
        return OffsetRange(view.log_end_offset if found is None else found[0], end)
    if isinstance(start, int) and start < 0:
        return OffsetRange(max(view.log_start_offset, view.log_end_offset + start), end)
    if isinstance(start, int):
        return OffsetRange(start, end)
    return OffsetRange(view.log_start_offset if start == _EARLIEST else view.log_end_offset, end)


def _check_not_deleted(cluster: Cluster, topic: TopicImage) -> None:
    """Check that a topic was not deleted, which makes its log look empty or damaged.

    Raises:
        UnknownTopicOrPartitionError: it was deleted.
    """
    found = cluster.image().find(topic.name)
    if found is None or found.topic_id != topic.topic_id:
        again = "" if found is None else " and created again: restart to read the new topic"
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} was deleted while it was read{again}", topic=topic.name
        )


def _inside(fetched: Iterator[FetchedRecords], window: TimeWindow) -> Iterator[FetchedRecords]:
    """Leave out records outside of a window of time."""
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
