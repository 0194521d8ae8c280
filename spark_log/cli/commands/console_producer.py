"""``spark-log console-producer``: lines from stdin become records."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from spark_log.cli.format.line_format import LineFormat, parse_lines
from spark_log.cli.format.line_source import line_blocks
from spark_log.cli.format.output import Output, counted, print_json, print_note
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.properties import with_properties
from spark_log.cli.root import Root
from spark_log.cli.topic_appender import TopicAppender
from spark_log.clock import Clock
from spark_log.config import ProducerConfig
from spark_log.errors import InvalidRecordError


@with_option_groups
def console_producer(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    root: Root,
    output: Output,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help="Lines are KEY, this text, VALUE. The same as --property parse.key=true "
            "--property key.separator=TEXT. [default: no keys]",
        ),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            "--null-marker", metavar="TEXT", help="Keys and values of this text are null."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--reader-property",
            metavar="KEY=VALUE",
            help="A property of Kafka's line reader: parse.key, key.separator, parse.headers, "
            "headers.delimiter, headers.separator, headers.key.separator, null.marker, "
            "ignore.error. Repeatable.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", help="Where all records go. [default: by key, as in Kafka]"),
    ] = None,
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            "--compression-codec",
            metavar="none|lz4|zstd",
            help="Compression of segments, where the topic's compression.type is producer.",
        ),
    ] = "none",
) -> None:
    """Append lines from stdin to a topic.

    Lines that come one by one are appended one by one; a stream of lines becomes segments of up to
    64 MiB, one every second at least. At the end, stderr says how many records went where.
    """
    line_format = with_properties(
        LineFormat(
            parse_key=key_separator is not None,
            key_separator=LineFormat().key_separator if key_separator is None else key_separator,
            null_marker=null_marker or "",
        ),
        properties or [],
    )
    line_format.check()
    config = ProducerConfig.parse({"compression.type": compression})
    cluster = root.cluster()
    appender = TopicAppender(
        cluster,
        cluster.topic(topic),
        partition=partition,
        compression=config.compression_type,
        first_sticky=random.randrange(2**31),
    )
    blocks = line_blocks(sys.stdin.fileno(), cluster.clock, _prompt)
    is_done = False
    try:
        with appender:
            append_lines(blocks, line_format, appender, cluster.clock)
        is_done = True
    finally:
        if is_done or appender.records:
            _report(topic, appender, output)


def append_lines(
    blocks: Iterator[bytes], line_format: LineFormat, appender: TopicAppender, clock: Clock
) -> None:
    """Append lines until they end.

    Args:
        blocks: see `line_blocks`.
        line_format: what a line holds.
        appender: where they go.
        clock: tells the records' timestamps.

    Raises:
        InvalidRecordError: a line is not of the format; the lines before it were appended.
    """
    lines = 0
    try:
        for block in blocks:
            if block:
                parsed = parse_lines(block, line_format, clock.time_us())
                appender.add(parsed.records)
                lines += parsed.records.num_rows
                if parsed.bad is not None:
                    raise InvalidRecordError(f"line {lines + 1}: {parsed.bad.reason}")
            if not block or appender.is_due:
                appender.commit()
    except InvalidRecordError:
        appender.commit()
        raise
    appender.commit()


def _prompt() -> None:
    if _has_prompt():
        print(">", end="", file=sys.stderr, flush=True)


def _has_prompt() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _report(topic: str, appender: TopicAppender, output: Output) -> None:
    if output.is_json:
        partitions = [
            {
                "partition": partition,
                "records": appended.records,
                "base_offset": appended.base_offset,
                "last_offset": appended.last_offset,
            }
            for partition, appended in sorted(appender.appended.items())
        ]
        print_json({"topic": topic, "records": appender.records, "partitions": partitions})
        return
    if _has_prompt():
        print_note("")  # the cursor stands behind the prompt
    where = "".join(
        f"\n  {topic}-{partition}: {counted(appended.records, 'record')}, "
        f"offsets {appended.base_offset} to {appended.last_offset}"
        for partition, appended in sorted(appender.appended.items())
    )
    print_note(
        f"Appended {counted(appender.records, 'record')} to {topic}{':' if where else '.'}{where}"
    )
