"""The Arrow schema of records: in a segment file, and as users hand them in."""

from __future__ import annotations

import base64
import os

import pyarrow as pa

FORMAT_VERSION = "1"
"""Value of the schema metadata ``spark_log.format``."""

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""Record headers: names and values in order, duplicates kept."""

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
    ]
)
"""Columns of a plain segment, where the offset is base offset + row."""

OFFSET_DELTA_FIELD = pa.field("offset_delta", pa.int32(), nullable=False)
"""Fifth column, only in rewritten segments with gaps: offset - base offset of the segment."""


def segment_schema(topic_id: str, partition: int, name: str | None = None) -> pa.Schema:
    """Return the schema of a new segment file, with the metadata that names where it belongs.

    ``spark_log.append_id`` is drawn anew for every segment: by it a writer whose answer was lost
    knows its own file from one with equal records (ADR 3).

    Args:
        topic_id: of the topic.
        partition: its number.
        name: of a rewritten segment, without ``.log``: it is known before the file is written, and
            never changes. A plain segment gets its name, by put-if-absent, after it is written.
    """
    metadata = {
        "spark_log.format": FORMAT_VERSION,
        "spark_log.topic_id": topic_id,
        "spark_log.partition": str(partition),
        "spark_log.append_id": base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("="),
    }
    if name is not None:
        metadata["spark_log.name"] = name
    return RECORD_SCHEMA.with_metadata(metadata)
