"""``spark-log console-producer``: lines from stdin become records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from spark_log.cli.format import (
    BadLine,
    LineFormat,
    Output,
    counted,
    line_blocks,
    parse_lines,
    print_json,
    print_note,
)
from spark_log.cli.options import Root, Topic, parse_pairs, with_option_groups, with_properties
from spark_log.cli.records import TABLE_BYTES, AppendedRecords, LineSender
from spark_log.cli.terminal import with_examples
from spark_log.config import ProducerConfig, TopicConfig
from spark_log.errors import InvalidRecordError, UnknownTopicOrPartitionError
from spark_log.metadata import TopicImage
from spark_log.producer import Producer
from spark_log.record import record_sizes
from spark_log.util import Clock


@with_examples(
    "printf 'rain\\nsun\\n' | spark-log console-producer weather",
    "printf 'JFK:18\\n' | spark-log console-producer weather --key-separator :",
)
@with_option_groups
def console_producer(
    topic: Topic,
    root: Root,
    output: Output,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help="A line is a key, this text and a value. The same as --property parse.key=true "
            "--property key.separator=TEXT. [default: no keys]",
        ),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            "--null-marker", metavar="TEXT", help="A key or value equal to this text is null."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "--reader-property",
            metavar="KEY=VALUE",
            help="Property of Kafka's line reader: parse.key, key.separator, parse.headers, "
            "headers.delimiter, headers.separator, headers.key.separator, null.marker, "
            "ignore.error. Repeatable.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", help="Partition of all records. [default: by key, as in Kafka]"
        ),
    ] = None,
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            "--compression-codec",
            metavar="none|lz4|zstd",
            help="Compression for topics whose compression.type is producer.",
        ),
    ] = "none",
    producer_property: Annotated[
        list[str] | None,
        typer.Option(
            "--producer-property",
            "--command-property",
            metavar="KEY=VALUE",
            help="Producer config, such as client.id=loader (quotas apply to it). Repeatable.",
        ),
    ] = None,
) -> None:
    """Append lines from stdin to a topic.

    A line that arrives alone is appended at once. Lines that arrive faster are appended together,
    at least once a second. At the end, stderr reports the number of records in each partition.
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
    config = _producer_config(compression, producer_property or [])
    cluster = root.cluster()
    image = cluster.topic(topic.name)
    _check_partition(image, partition)
    sender: LineSender | None = None
    is_done = False
    try:
        with Producer(root.url, **root.client_arguments, **config) as producer:
            sender = LineSender(producer, topic.name, partition, cluster.clock)
            blocks = line_blocks(sys.stdin.fileno(), cluster.clock, _prompt)
            send_lines(blocks, line_format, sender, image.config(), cluster.clock)
        is_done = True
    finally:
        if sender is not None:
            sender.count_late()
            if is_done or sender.records:
                _report(topic.name, sender, output)


def send_lines(
    blocks: Iterator[bytes],
    line_format: LineFormat,
    sender: LineSender,
    config: TopicConfig,
    clock: Clock,
) -> None:
    """Send the records of lines until the lines end, and wait until they are acknowledged.

    Args:
        blocks: whole lines, and an empty block when no more lines are ready, as `line_blocks`
            yields them.
        line_format: form of a line.
        sender: sends the records.
        config: the topic's settings. A line whose record the topic refuses is a bad line.
        clock: the clock that gives the records their timestamps.

    Raises:
        InvalidRecordError: a line is bad. The lines before it were appended.
        SparkLogError: records could not be appended.
    """
    lines = 0
    try:
        for block in blocks:
            if not block:
                sender.flush()
                continue
            parsed = parse_lines(block, line_format, clock.time_us())
            refused = _first_refused(parsed.records, config)
            bad = refused or parsed.bad
            records = parsed.records if refused is None else parsed.records.slice(0, refused.index)
            sender.add(records)
            lines += records.num_rows
            if bad is not None:
                raise InvalidRecordError(f"line {lines + 1}: {bad.reason}")
    except InvalidRecordError:
        sender.flush()
        raise
    sender.flush()


def _producer_config(compression: str, properties: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "client.id": "console-producer",
        "compression.type": compression,
        "linger.ms": 0,  # `LineSender` gathers lines
        "buffer.memory": 2 * TABLE_BYTES,
        "max.request.size": 2**31 - 1,  # the topic's max.message.bytes is the limit
    }
    for key, value in parse_pairs("--producer-property", properties).items():
        config[ProducerConfig.key_name(key)] = value
    ProducerConfig.parse(config)  # the other arguments of `Producer` are not for users of a shell
    return config


def _check_partition(topic: TopicImage, partition: int | None) -> None:
    if partition is not None and partition not in topic.partitions:
        raise UnknownTopicOrPartitionError(
            f"topic {topic.name!r} has no partition {partition}; it has {topic.num_partitions}, "
            f"numbered from 0",
            topic=topic.name,
        )


def _first_refused(records: pa.RecordBatch, config: TopicConfig) -> BadLine | None:
    """Return the first record that the topic would refuse; None if it accepts all of them."""
    found = []
    keys = records.column("key")
    if keys.null_count and "compact" in config.cleanup_policy:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        reason = "the record has no key, but the topic is compacted; give keys (--key-separator)"
        found.append(BadLine(row, reason))
    limit = config.max_message_bytes
    if records.nbytes > limit:
        sizes = record_sizes(records)
        for row in np.flatnonzero(sizes > limit)[:1].tolist():
            reason = f"the record has {sizes[row]} bytes, but max.message.bytes is {limit}"
            found.append(BadLine(row, reason))
    return min(found, key=lambda bad: bad.index, default=None)


def _prompt() -> None:
    if _has_prompt():
        print(">", end="", file=sys.stderr, flush=True)


def _has_prompt() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _report(topic: str, sender: LineSender, output: Output) -> None:
    if output.is_json:
        partitions = [
            {
                "partition": partition,
                "records": appended.records,
                "base_offset": appended.base_offset,
                "last_offset": appended.last_offset,
            }
            for partition, appended in sorted(sender.appended.items())
        ]
        print_json({"topic": topic, "records": sender.records, "partitions": partitions})
        return
    if _has_prompt():
        print_note("")  # the cursor is after the prompt
    where = "".join(
        f"\n  {topic}-{partition}: {_range(appended)}"
        for partition, appended in sorted(sender.appended.items())
    )
    print_note(
        f"Appended {counted(sender.records, 'record')} to {topic}{':' if where else '.'}{where}"
    )


def _range(appended: AppendedRecords) -> str:
    records = counted(appended.records, "record")
    if appended.base_offset < 0:  # acks=0
        return records
    return f"{records}, offsets {appended.base_offset} to {appended.last_offset}"
