"""Kafka's message schemas: the fields of each request and response, by protocol version.

``messages.json`` has those of the requests that a gateway answers, in the form of Kafka's own
``common/message/*.json`` (Apache License 2.0), one message a line, without comments and
descriptions. ``python -m tests.gateway.protocol.import_messages`` writes the file from the jar of
kafka-clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_LAST_VERSION = 32_767
_NAME = re.compile(r'"name":"(\w+)"')
"""The first name in a line is the message's."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of protocol versions; empty if ``first`` is larger than ``last``."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Return the versions that a schema names: ``0+``, ``3-5``, ``7`` or ``none``."""
        if text is None or text.strip() in ("", "none"):
            return cls(0, -1)
        first, separator, last = text.strip().partition("-")
        if first.endswith("+"):
            return cls(int(first[:-1]), _LAST_VERSION)
        return cls(int(first), int(last if separator else first))


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message or of a structure in it.

    Attributes:
        name: the attribute's name: Kafka's name of the field in snake_case.
        type: the type of the field, or of its elements: a primitive type's name, or ``struct``.
        is_array: whether the field is an array.
        struct: the structure, if the type is ``struct``.
        versions: the versions that have the field.
        nullable: the versions in which the field may be null.
        tag: the tag of a tagged field (KIP-482); None for others.
        tagged: the versions in which the field is tagged.
        default: the default as the schema writes it; None without one.
    """

    name: str
    type: str
    is_array: bool
    struct: Struct | None
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any

    @property
    def is_null_by_default(self) -> bool:
        """Whether the default is null."""
        return bool(self.default == "null")


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure: its name in Kafka's schema, and its fields."""

    name: str
    fields: tuple[Field, ...]

    def untagged(self, version: int) -> Iterator[Field]:
        """Yield the fields that a version has in fixed places, in this order."""
        for field in self.fields:
            if version in field.versions and version not in field.tagged:
                yield field

    def tagged(self, version: int) -> Iterator[Field]:
        """Yield the tagged fields of a version, by rising tag."""
        found = [f for f in self.fields if version in f.versions and version in f.tagged]
        yield from sorted(found, key=lambda field: field.tag or 0)


@dataclass(frozen=True, slots=True)
class Message:
    """The schema of a request, a response, or another structure that Kafka's protocol has.

    Attributes:
        struct: the message's fields.
        api_key: the key of the request; None for what is neither request nor response.
        kind: ``request``, ``response`` or ``data``.
        versions: the versions that Kafka 4 accepts.
        flexible: the versions with compact lengths and tagged fields (KIP-482).
    """

    struct: Struct
    api_key: int | None
    kind: str
    versions: Versions
    flexible: Versions


@cache
def message_schema(name: str) -> Message:
    """Return the schema of a message by its name, such as ``MetadataRequest``.

    Raises:
        KeyError: the file has no such message.
    """
    return _message(json.loads(_lines()[name]))


def message_names() -> Iterable[str]:
    """Return the names of all messages."""
    return _lines().keys()


@cache
def _lines() -> Mapping[str, str]:
    """Return the line of each message by its name; a line is parsed when it is needed."""
    text = files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    return {_NAME.search(line)[1]: line for line in text.splitlines()}  # type: ignore[index]


def _message(found: Mapping[str, Any]) -> Message:
    common = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    return Message(
        Struct(found["name"], _fields(found["fields"], common)),
        found.get("apiKey"),
        found["type"],
        Versions.parse(found["validVersions"]),
        Versions.parse(found.get("flexibleVersions")),
    )


def _fields(found: list[dict[str, Any]], common: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(_field(each, common) for each in found)


def _field(found: Mapping[str, Any], common: Mapping[str, Any]) -> Field:
    declared = found["type"]
    element = declared.removeprefix("[]")
    struct = None
    if element[0].isupper():
        struct = Struct(element, _fields(found.get("fields") or common[element], common))
    return Field(
        _snake_case(found["name"]),
        "struct" if struct else element,
        declared != element,
        struct,
        Versions.parse(found["versions"]),
        Versions.parse(found.get("nullableVersions")),
        found.get("tag"),
        Versions.parse(found.get("taggedVersions")),
        found.get("default"),
    )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
