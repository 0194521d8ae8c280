"""Requests and responses as bytes, with their headers: the port of the message codec."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from spark_log.gateway.protocol.decoder import decoder
from spark_log.gateway.protocol.encoder import encoder
from spark_log.gateway.protocol.message import MalformedMessageError, message_class
from spark_log.gateway.protocol.schema import message_names, message_schema

_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_LENGTH = struct.Struct(">i")
API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The header of a request.

    Attributes:
        api_key: the key of the request's API.
        api_version: the version of the request.
        correlation_id: the number that the response repeats.
        client_id: the client's name for itself; None if it gave none.
        size: the position in the frame at which ``client_id`` ends.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


@dataclass(frozen=True, slots=True)
class ApiSchema:
    """The schema of an API of Kafka: its name, and the versions that Kafka 4 accepts."""

    key: int
    name: str
    first_version: int
    last_version: int


@cache
def api_schemas() -> dict[int, ApiSchema]:
    """Return the APIs that the codec knows, by key."""
    found = {}
    for name in message_names():
        if name.endswith("Request"):
            schema = message_schema(name)
            assert schema.api_key is not None
            first, last = schema.versions.first, schema.versions.last
            api = ApiSchema(schema.api_key, name.removesuffix("Request"), first, last)
            found[api.key] = api
    return found


def decode_header(frame: memoryview) -> RequestHeader:
    """Return the header of a request, up to its client id.

    Args:
        frame: the request without its length.

    Raises:
        MalformedMessageError: the frame has no such header.
    """
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        end = _HEADER.size + max(0, length)
        if end > len(frame):
            raise MalformedMessageError(f"the client id has the length {length}")
        client_id = None if length < 0 else str(frame[_HEADER.size : end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"the header of a request cannot be read: {error}") from None
    return RequestHeader(key, version, correlation_id, client_id, end)


def decode_request(name: str, header: RequestHeader, frame: memoryview) -> Any:
    """Return a request.

    Args:
        name: the API's name, such as ``Metadata``.
        header: the request's header.
        frame: the request without its length. Records in the result are views of it.

    Raises:
        MalformedMessageError: the frame is not such a request.
    """
    message = f"{name}Request"
    return _decode(message, header.api_version, frame, header.size, has_tags=True)


def encode_response(name: str, version: int, correlation_id: int, response: Any) -> list[bytes]:
    """Return the parts of a response's frame, with its length.

    Args:
        name: the API's name, such as ``Metadata``.
        version: the version of the request.
        correlation_id: the number in the request's header.
        response: the response.
    """
    message = f"{name}Response"
    schema = message_schema(message)
    header = _CORRELATION_ID.pack(correlation_id)
    # A client that does not know the version of the answer can read its header all the same.
    if version in schema.flexible and schema.api_key != API_VERSIONS_KEY:
        header += b"\x00"
    return _framed(header, encoder(message, version)(response))


def encode_request(
    name: str, version: int, correlation_id: int, client_id: str | None, request: Any
) -> list[bytes]:
    """Return the parts of a request's frame, as a client sends it."""
    message = f"{name}Request"
    schema = message_schema(message)
    assert schema.api_key is not None
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    header = _HEADER.pack(schema.api_key, version, correlation_id, length) + encoded
    if version in schema.flexible:
        header += b"\x00"
    return _framed(header, encoder(message, version)(request))


def decode_response(name: str, version: int, frame: memoryview) -> tuple[int, Any]:
    """Return the correlation id of a response, and the response, as a client reads it.

    Raises:
        MalformedMessageError: the frame is not such a response.
    """
    message = f"{name}Response"
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    has_tags = message_schema(message).api_key != API_VERSIONS_KEY
    return correlation_id, _decode(message, version, frame, _CORRELATION_ID.size, has_tags=has_tags)


def new_message(name: str, **fields: Any) -> Any:
    """Return a message by Kafka's name, such as ``MetadataRequest``; defaults are Kafka's."""
    return message_class(name)(**fields)


def _decode(message: str, version: int, frame: memoryview, start: int, *, has_tags: bool) -> Any:
    try:
        if has_tags and version in message_schema(message).flexible:
            start = _skip_tags(frame, start)
        found, end = decoder(message, version)(frame, start)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"{message} of version {version}: {error}") from None
    if end > len(frame):
        raise MalformedMessageError(f"{message} of version {version} ends within a field")
    return found


def _skip_tags(frame: memoryview, position: int) -> int:
    """Return the position after the tagged fields of a header; none is known."""
    count, position = _varint(frame, position)
    for _ in range(count):
        _, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedMessageError("a tagged field of the header is longer than the message")
    return position


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
    raise MalformedMessageError("a varint has more than five bytes")


def _framed(header: bytes, parts: Iterable[bytes]) -> list[bytes]:
    found = [header, *parts]
    return [_LENGTH.pack(sum(map(len, found))), *found]
