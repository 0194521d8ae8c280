"""Encoders of Kafka's messages: a function for each message and version, generated from schemas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from spark_log.gateway.protocol.function_generator import FunctionGenerator
from spark_log.gateway.protocol.message import (
    FORMATS,
    class_of_struct,
    default_of,
    pack,
    uuid_bytes,
)
from spark_log.gateway.protocol.schema import Field, Struct

Encode = Callable[[Any], list[bytes]]
"""A function from a message to the parts of its bytes, in order."""


@cache
def encoder(name: str, version: int) -> Encode:
    """Return the encoder of a version of a message, such as ``MetadataResponse``.

    Fields that the version lacks are left out. The encoder raises `TypeError`, `AttributeError` or
    `struct.error` for a value that the field cannot have.
    """
    return _Generator(name, version).encoder()


class _Generator(FunctionGenerator):
    """Generates the text of one encoder; the parts are collected in lists."""

    def __init__(self, name: str, version: int) -> None:
        scope: dict[str, Any] = {
            "as_bytes": _as_bytes,
            "compact_text": _compact_text,
            "count": pack("i"),
            "text": _text,
            "uuid_bytes": uuid_bytes,
            "varint": varint,
        }
        super().__init__(name, version, scope)

    def encoder(self) -> Encode:
        self._emit(0, "def encode(message):")
        self._emit(1, "parts = []")
        self._write_struct(1, "parts", "message", self._struct)
        self._emit(1, "return parts")
        return self._compiled("encode")

    def _write_struct(self, depth: int, parts: str, value: str, of: Struct) -> None:
        run: list[Field] = []
        for field in (*of.untagged(self._version), None):
            if field is not None and field.type in FORMATS and not field.is_array:
                run.append(field)
                continue
            if run:
                write = self._constant(pack("".join(FORMATS[each.type] for each in run)))
                arguments = ", ".join(f"{value}.{each.name}" for each in run)
                self._emit(depth, f"{parts}.append({write}({arguments}))")
                run = []
            if field is not None:
                self._write_field(depth, parts, f"{value}.{field.name}", field, self._is_flexible)
        if self._is_flexible:
            self._write_tags(depth, parts, value, list(of.tagged(self._version)))

    def _write_field(
        self, depth: int, parts: str, value: str, field: Field, is_compact: bool
    ) -> None:
        if field.is_array:
            self._write_array(depth, parts, value, field, is_compact)
        elif field.struct is not None:
            item = self._new_name("item")
            self._emit(depth, f"{item} = {value}")
            if self._version in field.nullable:
                self._emit(depth, f"if {item} is None:")
                self._emit(depth + 1, f"{parts}.append(b'\\xff')")
                self._emit(depth, "else:")
                depth += 1
                self._emit(depth, f"{parts}.append(b'\\x01')")
            self._write_struct(depth, parts, item, field.struct)
        else:
            self._write_value(
                depth, parts, value, field, is_compact, self._version in field.nullable
            )

    def _write_value(
        self, depth: int, parts: str, value: str, field: Field, is_compact: bool, is_nullable: bool
    ) -> None:
        """Write a value of a primitive type."""
        if field.type == "uuid":
            self._emit(depth, f"{parts}.append(uuid_bytes({value}))")
        elif field.type in FORMATS:
            write = self._constant(pack(FORMATS[field.type]))
            self._emit(depth, f"{parts}.append({write}({value}))")
        elif field.type == "string":
            write = "compact_text" if is_compact else "text"
            self._emit(depth, f"{parts}.append({write}({value}, {is_nullable}))")
        else:
            self._emit(depth, f"as_bytes({parts}, {value}, {is_compact}, {is_nullable})")

    def _write_array(
        self, depth: int, parts: str, value: str, field: Field, is_compact: bool
    ) -> None:
        items, item = self._new_name("items"), self._new_name("item")
        self._emit(depth, f"{items} = {value}")
        if self._version in field.nullable:
            null = r"b'\x00'" if is_compact else r"b'\xff\xff\xff\xff'"
            self._emit(depth, f"if {items} is None:")
            self._emit(depth + 1, f"{parts}.append({null})")
            self._emit(depth, "else:")
            depth += 1
        length = f"varint(len({items}) + 1)" if is_compact else f"count(len({items}))"
        self._emit(depth, f"{parts}.append({length})")
        self._emit(depth, f"for {item} in {items}:")
        if field.struct is not None:
            self._write_struct(depth + 1, parts, item, field.struct)
        else:
            self._write_value(depth + 1, parts, item, field, is_compact, False)

    def _write_tags(self, depth: int, parts: str, value: str, tagged: list[Field]) -> None:
        if not tagged:
            self._emit(depth, rf"{parts}.append(b'\x00')")
            return
        tags, found = self._new_name("tags"), self._new_name("found")
        self._emit(depth, f"{tags} = []")
        for field in tagged:
            self._emit(depth, f"if {self._differs(f'{value}.{field.name}', field)}:")
            self._emit(depth + 1, f"{found} = []")
            self._write_field(depth + 1, found, f"{value}.{field.name}", field, True)
            self._emit(depth + 1, f"{found} = b''.join({found})")
            self._emit(depth + 1, f"{tags} += (varint({field.tag}), varint(len({found})), {found})")
        self._emit(depth, f"{parts}.append(varint(len({tags}) // 3))")
        self._emit(depth, f"{parts} += {tags}")

    def _differs(self, value: str, field: Field) -> str:
        """Return the condition that a value is not the default.

        The fields of a structure are compared one by one: FetchResponse has three such structures
        for each partition.
        """
        of = field.struct
        is_plain = of is not None and not field.is_array and not field.is_null_by_default
        if of is None or not is_plain or any(map(_has_parts, of.fields)):
            return f"{value} != {self._default(field)}"
        return " or ".join(
            f"{value}.{each.name} != {self._constant(default_of(each))}" for each in of.fields
        )

    def _default(self, field: Field) -> str:
        if field.is_null_by_default:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is not None:
            return self._constant(class_of_struct(self._name, field.struct)())
        return self._constant(default_of(field))


def _has_parts(field: Field) -> bool:
    return field.is_array or field.type not in FORMATS


def varint(value: int) -> bytes:
    """Return an unsigned varint."""
    if value < 128:
        return _ONE_BYTE[value]
    found = bytearray()
    while value > 127:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


_ONE_BYTE = [bytes((value,)) for value in range(128)]
_length_of_text = pack("h")
_length_of_bytes = pack("i")


def _compact_text(value: str | None, is_nullable: bool) -> bytes:
    if value is None and is_nullable:
        return b"\x00"
    encoded = value.encode()  # type: ignore[union-attr] # None is an error of the caller
    return varint(len(encoded) + 1) + encoded


def _text(value: str | None, is_nullable: bool) -> bytes:
    if value is None and is_nullable:
        return b"\xff\xff"
    encoded = value.encode()  # type: ignore[union-attr] # as above
    return _length_of_text(len(encoded)) + encoded


def _as_bytes(
    parts: list[Any], value: bytes | memoryview | None, is_compact: bool, is_nullable: bool
) -> None:
    if value is None and is_nullable:
        parts.append(b"\x00" if is_compact else b"\xff\xff\xff\xff")
        return
    length = memoryview(value).nbytes  # type: ignore[arg-type] # as above
    parts.append(varint(length + 1) if is_compact else _length_of_bytes(length))
    parts.append(value)
