"""``spark-log get``: print the newest record of a key."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.format import Output, print_note
from spark_log.cli.options import (
    IsolationLevelOption,
    RecordForm,
    Root,
    complete_topics,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.log import FetchedRecords
from spark_log.record import partition_for_key
from spark_log.util import printable


@with_examples("spark-log get airports JFK")
@with_option_groups
def get(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics),
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key.")],
    form: RecordForm,
    root: Root,
    output: Output,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="N", help="Partition. [default: by key, as in Kafka]"),
    ] = None,
    hex_key: Annotated[
        bool, typer.Option("--hex-key", help="KEY is in hexadecimal: its bytes are not text.")
    ] = False,
    isolation_level: IsolationLevelOption = "read_uncommitted",
) -> None:
    """Print the newest record of a key.

    If the key was never written, or its newest record is a tombstone, nothing is printed, and the
    exit status is 1.

    A topic that is compacted and has a table is searched by an index. In any other topic this reads
    the keys of the whole partition.
    """
    wanted = _parse_key(key, is_hex=hex_key)
    printer = form.printer(output)
    cluster = root.cluster()
    image = cluster.topic(topic)
    number = partition_for_key(wanted, image.num_partitions) if partition is None else partition
    log = cluster.partition_log(image, number)
    with cluster.detecting_deletion(image):
        batch = log.find_key(wanted, isolation_level=isolation_level)
    if batch is None or not batch.records.column("value")[0].is_valid:
        kind = "no record" if batch is None else "a tombstone"
        print_note(f"Partition {number} of {topic} has {kind} of the key {printable(key)!r}.")
        raise typer.Exit(1)
    printer.print_all([(topic, FetchedRecords.of_batch(number, batch))])


def _parse_key(key: str, *, is_hex: bool) -> bytes:
    if not is_hex:
        return key.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(key)
    except ValueError as error:
        raise typer.BadParameter(f"{key!r} is not hexadecimal: {error}") from None
