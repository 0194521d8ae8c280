"""Where a query on ``format("kafka")`` began: ``sources/<n>/0`` of its checkpoint.

Kafka's source writes the offsets of its start there, in the format of Spark's
``KafkaSourceInitialOffsetWriter``: a zero byte, ``v1``, a line feed, and the offsets as JSON (Spark
2.1.0: the JSON alone). They are needed where the first batch was never committed: ``offsets/0``
tells only where that batch ends.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from spark_log.datasource.stream.stream_offset import StreamOffset
from spark_log.errors import InvalidOptionError, NotFoundError
from spark_log.storage import open_store
from spark_log.types import TopicPartition


def initial_offsets(
    checkpoint: str, storage_options: Mapping[str, str], topics: Collection[str]
) -> Mapping[TopicPartition, int] | None:
    """Return where the source of these topics began, by the checkpoint of a query on Kafka.

    Args:
        checkpoint: the query's ``checkpointLocation``.
        storage_options: for the file system that it lies on.
        topics: those that the first batch reads; they tell a query's sources apart.

    Returns:
        None where no source of the checkpoint tells it.

    Raises:
        InvalidOptionError: a file is not what Kafka's source writes, or two sources read these
            topics and began at different offsets.
        StorageError: the checkpoint cannot be read.
    """
    store = open_store(checkpoint, storage_options)
    found: dict[str, Mapping[TopicPartition, int]] = {}
    for number in store.list_directories("sources"):
        path = f"sources/{number}/0"
        try:
            content = bytes(store.open_buffer(path))
        except NotFoundError:
            continue
        offsets = _parse(content, f"{checkpoint}/{path}")
        if {tp.topic for tp in offsets} & set(topics):
            found[path] = offsets
    if any(each != next(iter(found.values())) for each in found.values()):
        raise InvalidOptionError(
            f"{' and '.join(sorted(found))} of the checkpoint {checkpoint} begin at different "
            f"offsets of {', '.join(sorted(topics))}, and which one is this source's cannot be "
            f"told; finish the first batch with format kafka before changing the format",
            key="checkpointLocation",
        )
    return next(iter(found.values()), None)


def _parse(content: bytes, path: str) -> Mapping[TopicPartition, int]:
    text = content.removeprefix(b"\0").decode("utf-8", "replace")
    version, _, rest = text.partition("\n")
    try:
        return StreamOffset.from_document(json.loads(rest if version == "v1" else text)).offsets
    except (ValueError, InvalidOptionError):
        raise InvalidOptionError(
            f"{path} is not a file of starting offsets as format kafka writes it: it begins with "
            f"{text[:40]!r}, expected v1 and a line of JSON",
            key="checkpointLocation",
        ) from None
