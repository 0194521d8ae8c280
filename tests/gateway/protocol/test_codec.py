"""The codec: each message and version both ways, Kafka's own bytes, and bytes that lie."""

import random
import struct
import tracemalloc
import uuid
from typing import Any

import pytest

from spark_log.gateway.protocol import (
    MAX_ELEMENTS,
    ZERO_UUID,
    MalformedMessageError,
    api_schemas,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    message_class,
    new_message,
)
from spark_log.gateway.protocol.decoder import decoder
from spark_log.gateway.protocol.encoder import encoder, varint
from spark_log.gateway.protocol.message import FORMATS, uuid_bytes
from spark_log.gateway.protocol.schema import message_names, message_schema
from spark_log.gateway.requests import HANDLERS
from spark_log.util import random_id
from tests.gateway.protocol.import_messages import needed_messages

MESSAGES = sorted(message_names())


def random_message(struct_of, version, chance, make):
    """Return a message with random values in the fields that a version has."""
    fields: dict[str, Any] = {}
    for field in struct_of.fields:
        if version not in field.versions:
            continue
        is_nullable = version in field.nullable
        if is_nullable and chance.random() < 0.2:
            fields[field.name] = None
        elif field.is_array:
            count = chance.choice([0, 1, 3])
            fields[field.name] = [random_value(field, version, chance, make) for _ in range(count)]
        else:
            fields[field.name] = random_value(field, version, chance, make)
    return make(struct_of.name)(**fields)


def random_value(field, version, chance, make):
    if field.struct is not None:
        return random_message(field.struct, version, chance, make)
    if field.type in FORMATS and field.type not in ("bool", "float64"):
        bits = 8 * struct.calcsize(FORMATS[field.type])
        low, high = (
            (0, 2**bits) if field.type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        )
        return chance.choice([low, high - 1, chance.randrange(low, high), 0])
    return {
        "bool": lambda: chance.random() < 0.5,
        "float64": chance.random,
        "string": lambda: "é" * chance.choice([0, 1, 200]),
        "bytes": lambda: chance.randbytes(chance.choice([0, 5, 300])),
        "records": lambda: chance.randbytes(chance.choice([0, 5, 300])),
        "uuid": random_id,
    }[field.type]()


def classes_of(name):
    top = message_class(name)
    return lambda struct_name: top if struct_name == name else getattr(top, struct_name)


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_encoded_is_decoded_again(name):
    schema, chance = message_schema(name), random.Random(name)
    for version in range(schema.versions.first, schema.versions.last + 1):
        for _ in range(3):
            message = random_message(schema.struct, version, chance, classes_of(name))
            data = b"".join(encoder(name, version)(message))
            found, end = decoder(name, version)(memoryview(data), 0)
            assert end == len(data)
            assert found == message
            assert b"".join(encoder(name, version)(found)) == data


# --- the bytes are Kafka's -----------------------------------------------------------------------


def kafka_python_classes():
    """Yield the messages that kafka-python knows."""
    from kafka.protocol import admin, consumer, metadata, producer, sasl

    for module in (admin, consumer, metadata, producer, sasl):
        for each in vars(module).values():
            if isinstance(each, type) and getattr(each, "_json", None):
                yield each


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_reads_what_we_write_and_writes_it_again():
    """Its codec was written by others, from the same schemas."""
    compared = 0
    for other in kafka_python_classes():
        name, chance = other.__name__, random.Random(other.__name__)
        if name not in MESSAGES:
            continue
        schema = message_schema(name)
        known = min(schema.versions.last, other.max_version)
        for version in range(max(schema.versions.first, 1), known + 1):
            message = random_message(schema.struct, version, chance, classes_of(name))
            if name == "ApiVersionsResponse":
                message.error_code = 0  # it reads others as version 0
            data = b"".join(encoder(name, version)(message))
            theirs = other.decode(data, version=version, header=False)
            if schema.kind != "data":
                theirs._header = None  # noqa: SLF001 - its decoder forgets it
            again = bytes(theirs.encode(version=version, header=False))
            found, _ = decoder(name, version)(memoryview(again), 0)
            assert found == message, (name, version)
            compared += 1
    assert compared > 300


# --- bytes that lie ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2**31 - 1, 2**20, -2, -(2**31)])
def test_a_count_beyond_the_message_is_refused(length):
    data = struct.pack(">i", length) + b"\x00" * 100
    with pytest.raises(MalformedMessageError, match="more bytes"):
        decoder("MetadataRequest", 1)(memoryview(data), 0)


def test_a_compact_count_beyond_the_message_is_refused_before_anything_is_allocated():
    data = b"\xff\xff\xff\xff\x0f" + b"\x01" * 100
    decode = decoder("MetadataRequest", 12)
    tracemalloc.start()
    with pytest.raises(MalformedMessageError, match="more bytes"):
        decode(memoryview(data), 0)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_varint_that_does_not_end_is_refused():
    with pytest.raises(MalformedMessageError, match="five bytes"):
        decoder("MetadataRequest", 12)(memoryview(b"\x80" * 1_000_000), 0)


def test_more_elements_than_the_limit_are_refused():
    data = struct.pack(">i", MAX_ELEMENTS + 1) + b"\x00" * (2 * MAX_ELEMENTS + 2)
    with pytest.raises(MalformedMessageError, match="more than"):
        decoder("MetadataRequest", 1)(memoryview(data), 0)


@pytest.mark.parametrize("name", [name for name in MESSAGES if name.endswith("Request")])
def test_a_message_that_is_cut_off_is_refused(name):
    schema, chance = message_schema(name), random.Random(name)
    header = decode_header(memoryview(struct.pack(">hhih", 0, schema.versions.last, 0, -1)))
    message = random_message(schema.struct, header.api_version, chance, classes_of(name))
    key = schema.api_key
    data = b"".join(
        encode_request(name.removesuffix("Request"), header.api_version, 1, None, message)
    )[4:]
    header = decode_header(memoryview(data))
    assert header.api_key == key
    for end in range(header.size, len(data)):
        with pytest.raises(MalformedMessageError):
            decode_request(name.removesuffix("Request"), header, memoryview(data)[:end])


def test_unknown_tagged_fields_are_skipped():
    request = new_message("MetadataRequest", topics=None)
    data = b"".join(encode_request("Metadata", 12, 5, "client", request))[4:]
    assert data.endswith(b"\x00")
    tag = b"\x01" + varint(9_999) + varint(3) + b"abc"
    found = data[:-1] + tag
    header = decode_header(memoryview(found))
    assert decode_request("Metadata", header, memoryview(found)) == request
    in_header = data[: header.size] + tag + data[header.size + 1 :]
    assert decode_request("Metadata", header, memoryview(in_header)) == request


def test_a_tagged_field_that_is_longer_than_the_message_is_refused():
    request = new_message("MetadataRequest", topics=None)
    data = b"".join(encode_request("Metadata", 12, 5, None, request))[4:-1]
    found = memoryview(data + b"\x01" + varint(7) + varint(1_000_000))
    with pytest.raises(MalformedMessageError):
        decode_request("Metadata", decode_header(found), found)


def test_null_is_refused_where_the_field_has_none():
    with pytest.raises(MalformedMessageError, match="topics is null"):
        decoder("MetadataRequest", 0)(memoryview(struct.pack(">i", -1)), 0)


def test_text_that_is_not_utf_8_is_refused():
    data = memoryview(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff")
    with pytest.raises(MalformedMessageError):
        decode_header(data)
    data = memoryview(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">ih", 1, 2) + b"\xff\xff")
    with pytest.raises(MalformedMessageError):
        decode_request("Metadata", decode_header(data), data)


# --- the rest ------------------------------------------------------------------------------------


def test_a_response_has_its_correlation_id_and_a_flexible_header_except_api_versions():
    for name, version, size in (("Metadata", 8, 4), ("Metadata", 9, 5), ("ApiVersions", 4, 4)):
        parts = encode_response(name, version, 77, message_class(f"{name}Response")())
        data = b"".join(parts)
        assert struct.unpack_from(">i", data)[0] == len(data) - 4
        assert len(parts[1]) == size
        assert decode_response(name, version, memoryview(data)[4:])[0] == 77


def test_records_are_a_view_of_the_frame():
    topic = message_class("ProduceRequest").TopicProduceData(name="t")
    partition = message_class("ProduceRequest").PartitionProduceData(index=0, records=b"records")
    topic.partition_data.append(partition)
    request = new_message("ProduceRequest", acks=1, timeout_ms=5, topic_data=[topic])
    frame = memoryview(b"".join(encode_request("Produce", 9, 1, None, request))[4:])
    found = decode_request("Produce", decode_header(frame), frame)
    records = found.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj
    assert bytes(records) == b"records"


def test_ids_are_texts_as_in_the_metadata_of_the_log():
    chosen = random_id()
    assert len(uuid_bytes(chosen)) == 16
    assert uuid_bytes(ZERO_UUID) == uuid.UUID(int=0).bytes
    topic = message_class("MetadataRequest").MetadataRequestTopic(topic_id=chosen, name=None)
    request = new_message("MetadataRequest", topics=[topic])
    frame = memoryview(b"".join(encode_request("Metadata", 12, 1, None, request))[4:])
    assert decode_request("Metadata", decode_header(frame), frame).topics[0].topic_id == chosen


def test_two_messages_share_no_list():
    first, second = new_message("MetadataRequest"), new_message("MetadataRequest")
    first.topics.append(1)
    assert second.topics == []
    assert second == new_message("MetadataRequest")
    assert first != second
    assert "topics=[1]" in repr(first)


def test_the_file_has_the_messages_of_all_handlers():
    """A new handler's messages come with ``python -m tests.gateway.protocol.import_messages``."""
    assert api_schemas()[3].name == "Metadata"
    assert HANDLERS.keys() <= api_schemas().keys()
    names = {each.api.name for each in HANDLERS.values()}
    assert {name.removesuffix("Request") for name in needed_messages()} >= names
    assert needed_messages() == set(MESSAGES)
