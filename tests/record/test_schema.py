"""The schema of a segment file: names and types that every reader relies on."""

import base64
import os

import pyarrow as pa

from spark_log.record.schema import OFFSET_DELTA_FIELD, RECORD_SCHEMA, segment_schema


def test_the_columns_are_what_the_format_says():
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert [(field.name, field.type, field.nullable) for field in RECORD_SCHEMA] == [
        ("key", pa.binary(), True),
        ("value", pa.binary(), True),
        ("headers", headers, True),
        ("timestamp", pa.timestamp("us", "UTC"), False),
    ]
    assert OFFSET_DELTA_FIELD.equals(pa.field("offset_delta", pa.int32(), nullable=False))


def test_the_metadata_identifies_the_segment(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))
    schema = segment_schema("a-topic-id", 17)
    assert schema.equals(RECORD_SCHEMA)
    assert schema.metadata == {
        b"spark_log.format": b"1",
        b"spark_log.topic_id": b"a-topic-id",
        b"spark_log.partition": b"17",
        b"spark_log.append_id": b"AAECAwQFBgcICQoLDA0ODw",
    }


def test_every_segment_has_another_append_id():
    drawn = [segment_schema("id", 0).metadata[b"spark_log.append_id"] for _ in range(100)]
    assert len(set(drawn)) == 100
    assert {len(base64.urlsafe_b64decode(each + b"==")) for each in drawn} == {16}
