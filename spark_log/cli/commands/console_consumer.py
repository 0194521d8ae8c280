"""``spark-log console-consumer``: print the records of topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from spark_log.cli.format import Output
from spark_log.cli.options import (
    IsolationLevelOption,
    RecordForm,
    RecordPrinter,
    Root,
    Start,
    TimeWindow,
    Topic,
    complete_groups,
    parse_pairs,
    with_option_groups,
)
from spark_log.cli.records import SubscriptionEnds, read_partitions, read_subscription
from spark_log.cli.terminal import exit_on_sigterm, with_examples
from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.consumer import Consumer, resolver
from spark_log.errors import (
    CorruptRecordError,
    InvalidConfigurationError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import FetchedRecords, IsolationLevel
from spark_log.metadata import TopicImage


@with_examples(
    "spark-log console-consumer flights --from-beginning --max-messages 3",
    "spark-log console-consumer flights --tail 1 --print-key --timeout-ms 100",
    r"spark-log console-consumer flights -f '%p@%o %s\n' --tail 2 --timeout-ms 100",
    "spark-log console-consumer flights --group reports --max-messages 1",
    "spark-log console-consumer flights --group reports --exit-at-end",
)
@with_option_groups
def console_consumer(
    topic: Topic,
    start: Start,
    form: RecordForm,
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
            autocompletion=complete_groups,
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="Number of records to print.")
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout-ms", min=0, help="Milliseconds without a record after which it ends."
        ),
    ] = None,
    isolation_level: IsolationLevelOption = "read_uncommitted",
    consumer_property: Annotated[
        list[str] | None,
        typer.Option(
            "--consumer-property",
            "--command-property",
            metavar="KEY=VALUE",
            help="Consumer config, such as client.rack=east. Others than client.rack require "
            "--group or --include. Repeatable.",
        ),
    ] = None,
) -> None:
    """Print the records of a topic.

    Without further options it prints new records, until Ctrl-C. With --group, a group without
    committed offsets also starts with new records, unless --from-beginning is given.

    With --from-time or --to-time it prints exactly the records whose timestamps are in this window
    of event time, of all records that the log has when the command starts. Then it ends.

    With --exit-at-end it prints the records that the log has when the command starts, and ends.
    With --isolation-level read_committed it ends before the first transaction that is open then.
    With --group it continues at the committed offsets, or else at the earliest record, and commits
    the offsets after the printed records. If the group has other members, it ends when they have
    committed their part.

    With --output json each record is one JSON object on a line.

    Avro is shown as JSON: unions as their value alone, bytes as text or {"base64": ...}, decimals,
    dates, times and UUIDs as text. It needs pip install 'spark-log[avro]'.
    """
    printer = form.printer(output)
    if group is not None or include is not None:
        for name in start.given:
            other = "--group" if include is None else "--include"
            raise typer.BadParameter(f"{name} and {other} exclude each other")
        config = _consumer_config(start, isolation_level, consumer_property or [])
        _print_subscription(
            root,
            topic,
            include,
            group,
            config,
            printer,
            timeout_ms=timeout_ms,
            limit=max_messages,
            exits_at_end=start.exits_at_end,
        )
        return
    cluster = root.cluster(client_rack=_client_rack(consumer_property or []))
    image = cluster.topic(topic.name)
    numbers = sorted(image.partitions) if start.partition is None else [start.partition]
    logs = {number: cluster.partition_log(image, number) for number in numbers}
    ranges = start.ranges(image.name, logs, isolation_level)
    fetched = read_partitions(
        logs,
        ranges,
        cluster.clock,
        timeout_ms,
        isolation_level=isolation_level,
        resolve=resolver(cluster) if isolation_level == "read_committed" else None,
    )
    try:
        found = _limited(_inside(fetched, start.window), max_messages)
        printer.print_all((image.name, records) for records in found)
    except (OffsetOutOfRangeError, CorruptRecordError, NotFoundError):
        _check_not_deleted(cluster, image)
        raise


def _consumer_config(
    start: Start, isolation_level: IsolationLevel, properties: list[str]
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "client.id": "console-consumer",
        "auto.offset.reset": start.reset,
        "isolation.level": isolation_level,
    }
    for key, value in parse_pairs("--consumer-property", properties).items():
        config[ConsumerConfig.key_name(key)] = value
    ConsumerConfig.parse(config)  # the other arguments of `Consumer` are not for users of a shell
    return config


def _client_rack(properties: list[str]) -> str:
    """Return ``client.rack``, the only config that has an effect without a group."""
    pairs = parse_pairs("--consumer-property", properties)
    given = {ConsumerConfig.key_name(key): value for key, value in pairs.items()}
    config = ConsumerConfig.parse(given)
    for key in given:
        if key != "client.rack":
            raise InvalidConfigurationError(
                f"--consumer-property {key}=… requires --group or --include", key=key
            )
    return config.client_rack


def _print_subscription(
    root: Root,
    topic: Topic,
    include: str | None,
    group: str | None,
    config: dict[str, Any],
    printer: RecordPrinter,
    *,
    timeout_ms: int | None,
    limit: int | None,
    exits_at_end: bool,
) -> None:
    """Print the records that a consumer gets; with a group, commit its offsets at the end."""
    cluster = root.cluster()
    if include is None:
        cluster.topic(topic.name)  # a consumer would wait for a topic that does not exist
    elif topic.given is not None:
        raise typer.BadParameter("TOPIC and --include exclude each other")
    else:
        _check_regex(include)
    with (
        exit_on_sigterm(),
        Consumer(root=root.url, group_id=group, **root.client_arguments, **config) as consumer,
    ):
        if include is None:
            consumer.subscribe([topic.name])
        else:
            consumer.subscribe(pattern=rf"(?:{include})\Z")
        ends = SubscriptionEnds(consumer, cluster, root.admin(cluster)) if exits_at_end else None
        printer.print_all(
            read_subscription(
                consumer, cluster.clock, timeout_ms=timeout_ms, max_records=limit, ends=ends
            )
        )


def _check_regex(include: str) -> None:
    try:
        re.compile(include)
    except re.error as error:
        raise typer.BadParameter(
            f"{include!r} is not a regular expression: {error}", param_hint="'--include'"
        ) from None


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
