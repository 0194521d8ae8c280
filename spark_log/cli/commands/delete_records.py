"""``spark-log delete-records``: delete records before an offset, as kafka-delete-records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import Output, counted, print_json, print_note, print_table
from spark_log.cli.options import (
    PartitionsOption,
    Root,
    Topic,
    check_named_once,
    whole_number,
    with_option_groups,
)
from spark_log.cli.terminal import is_confirmed, with_examples
from spark_log.errors import InvalidConfigurationError
from spark_log.types import TopicPartition

_FORM = '{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'


@with_examples("spark-log delete-records flights --before-offset 2 --partition 0 --yes")
@with_option_groups
def delete_records(
    topic: Topic,
    root: Root,
    output: Output,
    before_offset: Annotated[
        int | None,
        typer.Option(
            "--before-offset", metavar="N", help="First offset to keep. -1: delete all records."
        ),
    ] = None,
    partition: PartitionsOption = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help=f"Offsets by partition, instead of the other options: {_FORM}",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete the records before an offset.

    Asks first, on a terminal. Without a terminal, --yes is required. The deleted records cannot be
    read any more. The next cleaning frees their space.
    """
    if offset_json_file is not None:
        if topic.given is not None or before_offset is not None or partition:
            raise InvalidConfigurationError(
                "--offset-json-file names topics, partitions and offsets: give no others with it"
            )
        wanted = _read_offsets(offset_json_file)
    elif topic.given is None or before_offset is None:
        raise InvalidConfigurationError(
            "which records? Give TOPIC and --before-offset, or --offset-json-file"
        )
    else:
        numbers = partition or sorted(root.cluster().topic(topic.name).partitions)
        wanted = {TopicPartition(topic.name, number): before_offset for number in numbers}
    question = f"Delete records of {counted(len(wanted), 'partition')}?"
    if wanted and not yes and not is_confirmed(question):
        print_note("Nothing was deleted.")
        raise typer.Exit(1)
    deleted = root.admin().delete_records(wanted)
    rows = [[key.topic, key.partition, left.low_watermark] for key, left in deleted.items()]
    names = ["topic", "partition", "low_watermark"]
    if output.is_json:
        print_json({"partitions": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        print_table(["Topic", "Partition", "Low watermark"], rows)


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets in a file of the form that kafka-delete-records reads.

    Raises:
        InvalidConfigurationError: the file has another form, or names a partition twice.
    """
    try:
        document = json.loads(path.read_bytes())
        version = document.get("version", 1)
        listed = [
            (
                TopicPartition(str(each["topic"]), whole_number(each["partition"])),
                whole_number(each["offset"]),
            )
            for each in document["partitions"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidConfigurationError(
            f"{path} is not of the form {_FORM}: {type(error).__name__} {error}"
        ) from None
    if version != 1:
        raise InvalidConfigurationError(f"{path} is of version {version!r}, expected 1")
    check_named_once(path, [key for key, _ in listed])
    return dict(listed)
