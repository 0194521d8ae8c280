"""Classes of Kafka's messages, made from their schemas."""

from __future__ import annotations

import struct
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from spark_log.gateway.protocol.schema import Field, Struct, message_schema

ZERO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that means "no id": sixteen zero bytes."""


class MalformedMessageError(ValueError):
    """Bytes are not what the protocol has in this place; the connection has to be closed."""


class Message:
    """A request, a response or a structure in one; attributes are Kafka's fields in snake_case.

    A field that the version in use lacks has its default. Ids of topics and members (type uuid)
    are texts of 22 characters, as in Kafka's ``Uuid.toString`` and in this log's metadata; no id is
    `ZERO_UUID`. Fields of type ``records`` are a `memoryview` of the request's frame.

    Structures of a message are attributes of its class: ``MetadataResponse.MetadataResponseTopic``.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]


@cache
def message_class(name: str) -> Any:
    """Return the class of a message by Kafka's name, such as ``MetadataResponse``.

    Its constructor takes the fields as keyword arguments; those that are not given have Kafka's
    defaults.

    Raises:
        KeyError: Kafka has no such message.
    """
    structs: dict[str, type[Message]] = {}
    made = _class_of(message_schema(name).struct, structs)
    for nested, nested_class in structs.items():
        if nested_class is not made:
            setattr(made, nested, nested_class)
    return made


def class_of_struct(message: str, struct_of: Struct) -> Any:
    """Return the class of a structure in a message, or of the message itself."""
    top = message_class(message)
    return top if struct_of.name == top.__name__ else getattr(top, struct_of.name)


def _class_of(of: Struct, made: dict[str, type[Message]]) -> type[Message]:
    """Return the class of a structure; add it and those in it to ``made``."""
    if of.name in made:
        return made[of.name]
    scope: dict[str, Any] = {"_UNSET": _UNSET}
    arguments, body = [], []
    for number, field in enumerate(of.fields):
        if field.struct is not None:
            _class_of(field.struct, made)
        fresh = _fresh_default(field)
        if fresh:
            if field.struct is not None:
                scope[field.struct.name] = made[field.struct.name]
            arguments.append(f"{field.name}=_UNSET")
            body.append(f" self.{field.name} = {fresh} if {field.name} is _UNSET else {field.name}")
        else:
            scope[f"_default{number}"] = default_of(field)
            arguments.append(f"{field.name}=_default{number}")
            body.append(f" self.{field.name} = {field.name}")
    source = f"def __init__(self, {', '.join(arguments)}):\n" + "\n".join(body)
    exec(source, scope)  # the text comes from Kafka's schemas alone
    attributes = {
        "__slots__": tuple(field.name for field in of.fields),
        "__init__": scope["__init__"],
        "__module__": __name__,
        "__doc__": f"Kafka's ``{of.name}``.",
    }
    made[of.name] = type(of.name, (Message,), attributes)
    return made[of.name]


def default_of(field: Field) -> Any:
    """Return the default of a field that is neither an array nor a structure with fields."""
    if field.is_null_by_default:
        return None
    return _PARSE_DEFAULT[field.type](field.default or "")


def _fresh_default(field: Field) -> str:
    """Return an expression that makes a new default; empty if one value serves all messages."""
    if field.is_null_by_default:
        return ""
    if field.is_array:
        return "[]"
    return f"{field.struct.name}()" if field.struct is not None else ""


_UNSET = object()


def _integer(text: str | int) -> int:
    return text if isinstance(text, int) else int(text or "0", 0)


_PARSE_DEFAULT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), _integer),
    "float64": lambda text: float(text or 0.0),
    "bool": lambda text: text in ("true", True),
    "string": str,
    "bytes": lambda _: b"",
    "records": lambda _: b"",
    "uuid": lambda _: ZERO_UUID,
}

FORMATS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
"""`struct` formats of the primitive types with a fixed size."""


def uuid_text(data: memoryview, position: int) -> str:
    """Return the id in the sixteen bytes at a position."""
    found = data[position : position + 16]
    if len(found) != 16:
        raise MalformedMessageError("the message ends within an id")
    return urlsafe_b64encode(found)[:22].decode()


def uuid_bytes(text: str | uuid.UUID) -> bytes:
    """Return the sixteen bytes of an id."""
    if isinstance(text, uuid.UUID):
        return text.bytes
    return urlsafe_b64decode(text + "==")


def pack(formats: str) -> Callable[..., bytes]:
    """Return a function that encodes values of fixed size, big-endian."""
    return struct.Struct(f">{formats}").pack
