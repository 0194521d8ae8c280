"""``spark-log offsets``: look up offsets, as kafka-get-offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from spark_log.cli.format import Output, print_json, print_table
from spark_log.cli.options import IsolationLevelOption, Root, Topics, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.config import parse_time_ms
from spark_log.errors import UnknownTopicOrPartitionError
from spark_log.types import OffsetAndTimestamp, OffsetSpec, TopicPartition

app = typer.Typer(rich_markup_mode=None)

_SPECS: Final = {
    spelling: spec
    for spec in OffsetSpec
    for spelling in (str(spec.value), spec.name.lower().replace("_", "-"))
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@app.command("list")
@with_examples(
    "spark-log offsets list flights",
    "spark-log offsets list flights --time 2013-07-04T12:00:00Z",
)
@with_option_groups
def list_offsets(
    topics: Topics,
    root: Root,
    output: Output,
    partitions: Annotated[
        str | None,
        typer.Option("--partitions", metavar="N,...", help="Partitions. [default: all]"),
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time",
            metavar="TIME",
            help="latest or -1; earliest or -2; max-timestamp or -3: the record with the largest "
            "timestamp; a time (ISO 8601 or milliseconds): the first record at or after it.",
        ),
    ] = "latest",
    isolation_level: IsolationLevelOption = "read_uncommitted",
) -> None:
    """Look up the end or start of partitions, or offsets by time.

    Without names the offsets of all topics are listed.
    """
    spec = _parse_spec(time)
    numbers = None if partitions is None else _parse_numbers(partitions)
    image = root.cluster().image()
    names = topics.given or [topic.name for topic in image.topics()]
    wanted = [
        TopicPartition(name, number)
        for name in names
        for number in sorted(image.topic(name).partitions)
        if numbers is None or number in numbers
    ]
    if numbers and (missing := numbers - {each.partition for each in wanted}):
        raise UnknownTopicOrPartitionError(
            f"no partition {min(missing)} in {', '.join(names)}", topic=names[0]
        )
    found = root.admin().list_offsets(dict.fromkeys(wanted, spec), isolation_level=isolation_level)
    if output.is_json:
        print_json({"offsets": [_document(*pair) for pair in found.items()]})
        return
    columns = ["Topic", "Partition", "Offset", "Timestamp"]
    print_table(columns, [_row(*pair) for pair in found.items()])


def _parse_spec(text: str) -> int:
    spec = _SPECS.get(text.strip().lower())
    return parse_time_ms("--time", text) if spec is None else spec


def _parse_numbers(text: str) -> set[int]:
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of partitions such as 0,1,2", param_hint="'--partitions'"
        ) from None


def _document(partition: TopicPartition, found: OffsetAndTimestamp) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": None if found.offset == -1 else found.offset,
        "timestamp_ms": None if found.timestamp == -1 else found.timestamp,
    }


def _row(partition: TopicPartition, found: OffsetAndTimestamp) -> list[object]:
    offset = None if found.offset == -1 else found.offset
    return [partition.topic, partition.partition, offset, _time(found.timestamp)]


def _time(timestamp_ms: int) -> str:
    if timestamp_ms == -1:
        return "-"
    try:
        time = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # outside of the calendar of `datetime`
        return f"{timestamp_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
