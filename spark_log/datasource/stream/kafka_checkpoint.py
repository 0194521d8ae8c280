"""Reads the initial offsets of a query on ``format("kafka")`` from its checkpoint.

Kafka's source writes them to ``sources/<n>/0``, in the format of Spark's
``KafkaSourceInitialOffsetWriter``: a zero byte, ``v1``, a line feed, and the offsets as JSON (Spark
2.1.0: only the JSON). They are needed if the first batch was never committed, because ``offsets/0``
contains only the end of that batch.
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
    """Return the offsets at which the source of these topics started.

    Args:
        checkpoint: the ``checkpointLocation`` of a query on Kafka.
        storage_options: options of the checkpoint's file system.
        topics: topics of the first batch. They identify the source if a query has several.

    Returns:
        None if no source of the checkpoint has initial offsets of these topics.

    Raises:
        InvalidOptionError: a file is not in the format of Kafka's source, or two sources read these
            topics and started at different offsets.
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
            f"{' and '.join(sorted(found))} of the checkpoint {checkpoint} start at different "
            f"offsets of {', '.join(sorted(topics))}, and it is unknown which of them belongs to "
            f"this source; finish the first batch with format kafka before changing the format",
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
            f"{path} does not contain initial offsets in the format of Spark's Kafka source: it "
            f"begins with {text[:40]!r}, expected v1 and a line of JSON",
            key="checkpointLocation",
        ) from None
