"""The Arrow schema of records, in segment files and in tables that users append."""

from __future__ import annotations

import base64
import os
from typing import Final

import pyarrow as pa
from pyarrow import ipc

FORMAT_VERSION = "1"
"""The value of the schema metadata ``spark_log.format``."""

APPEND_ID_KEY: Final = b"spark_log.append_id"
"""The key of a segment's append id in its schema metadata."""

STRIPE_KEY: Final = b"spark_log.stripe"
"""The key of a stripe's number in the schema metadata of its objects and home markers."""

COMPRESSIONS: Final = ("none", "lz4", "zstd")
"""Compressions of the record batches in a segment."""

APPEND_ID_CHARACTERS: Final = 22
"""Length of an append id: 16 random bytes in base64."""

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""The type of record headers: names and values in order; duplicates are kept."""

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
    ]
)
"""The columns of a segment without gaps, in which a record's offset is base offset + row number."""

READ_SCHEMA = pa.schema(
    [
        RECORD_SCHEMA.field("key"),
        RECORD_SCHEMA.field("value"),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        RECORD_SCHEMA.field("timestamp"),
        pa.field("timestampType", pa.int32(), nullable=False),
        RECORD_SCHEMA.field("headers"),
    ]
)
"""The columns of records that are read: names and types of Spark's Kafka connector.

``topic`` is a plain string, as in Spark and Delta. It needs no memory per row, because one array of
equal names is created for each topic and sliced."""

OFFSET_DELTA_FIELD = pa.field("offset_delta", pa.int32(), nullable=False)
"""The fifth column, only in rewritten segments with gaps: the offset minus the base offset."""


def new_append_id() -> bytes:
    """Return a random append id.

    By this id a writer that lost an answer can distinguish its own file from a file with equal
    records (ADR 3).
    """
    return base64.urlsafe_b64encode(os.urandom(16))[:APPEND_ID_CHARACTERS]


def segment_schema(
    topic_id: str,
    partition: int,
    name: str | None = None,
    compaction_id: str | None = None,
    *,
    append_id: bytes | None = None,
    is_stripe: bool = False,
) -> pa.Schema:
    """Return the schema of a segment file, with metadata that identifies the segment.

    Args:
        topic_id: the topic's id.
        partition: the partition's number; the stripe's number of a stripe's object.
        name: the name of a rewritten segment, without ``.log``. It is known before the file is
            written. None for an appended segment, which gets its name by put-if-absent after it is
            written.
        compaction_id: the random id of the compaction that writes the segment; None for others.
        append_id: the segment's append id; None for a new one.
        is_stripe: whether the file is an object of a stripe, with records of many partitions.
    """
    metadata: dict[str | bytes, str | bytes] = {
        "spark_log.format": FORMAT_VERSION,
        "spark_log.topic_id": topic_id,
        STRIPE_KEY if is_stripe else "spark_log.partition": str(partition),
        APPEND_ID_KEY: new_append_id() if append_id is None else append_id,
    }
    if name is not None:
        metadata["spark_log.name"] = name
    if compaction_id is not None:
        metadata["spark_log.compaction_id"] = compaction_id
    return RECORD_SCHEMA.with_metadata(metadata)


def write_options(compression: str) -> ipc.IpcWriteOptions:
    """Return the options of Arrow's writer for a segment file.

    Args:
        compression: ``none``, ``lz4`` or ``zstd``.
    """
    return ipc.IpcWriteOptions(
        compression=None if compression == "none" else compression, use_threads=False
    )
