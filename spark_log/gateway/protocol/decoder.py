"""Decoders of Kafka's messages: a function for each message and version, generated from its schema.

A decoder trusts nothing: a length or a count is compared with the bytes that are left, and with a
limit, before anything is allocated for it. It needs no more memory than a fixed multiple of the
message's size, whatever the message says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from spark_log.gateway.protocol.function_generator import FunctionGenerator
from spark_log.gateway.protocol.message import (
    FORMATS,
    MalformedMessageError,
    class_of_struct,
    default_of,
    uuid_text,
)
from spark_log.gateway.protocol.schema import Field, Struct

MAX_ELEMENTS = 65_536
"""Maximum number of elements in all arrays of one message. Each becomes a Python object, of many
times the size that it has in the message."""

_MAX_STRING_BYTES = 32_767
"""Kafka's limit of a string, also where the length is a varint."""

Decode = Callable[[memoryview, int], tuple[Any, int]]
"""A function from bytes and a position to a message and the position after it."""


@cache
def decoder(name: str, version: int) -> Decode:
    """Return the decoder of a version of a message, such as ``MetadataRequest``.

    The decoder raises `MalformedMessageError`, `IndexError`, `struct.error` or `UnicodeDecodeError`
    for bytes that are not such a message.
    """
    return _Generator(name, version).decoder()


class _Generator(FunctionGenerator):
    """Generates the text of one decoder.

    The text uses these names: ``data`` and ``pos``, the bytes and the position in them; ``end``,
    their length; ``left``, how many elements of arrays the message may still have.
    """

    def __init__(self, name: str, version: int) -> None:
        scope: dict[str, Any] = {
            "MAX_ELEMENTS": MAX_ELEMENTS,
            "Malformed": MalformedMessageError,
            "check_length": _check_length,
            "too_many": _too_many,
            "unpack": struct.unpack_from,
            "uuid_text": uuid_text,
            "varint": _rest_of_varint,
        }
        super().__init__(name, version, scope)

    def decoder(self) -> Decode:
        self._emit(0, "def decode(data, pos):")
        self._emit(1, "end = len(data)")
        self._emit(1, "left = MAX_ELEMENTS")
        self._read_struct(1, "found", self._struct)
        self._emit(1, "return found, pos")
        return self._compiled("decode")

    def _read_struct(self, depth: int, target: str, of: Struct) -> None:
        values = {field.name: self._new_name("value") for field in of.fields}
        present = {f.name for f in (*of.untagged(self._version), *of.tagged(self._version))}
        for run in _runs(of, self._version):
            if run[0].type in FORMATS and not run[0].is_array:
                self._read_run(depth, [values[field.name] for field in run], run)
            else:
                self._read_field(depth, values[run[0].name], run[0], self._is_flexible)
        tagged = list(of.tagged(self._version))
        arguments = []
        for field in of.fields:
            is_absent = field.name not in present
            if field in tagged or is_absent:
                default = self._default(field)
                if is_absent:
                    values[field.name] = default
                else:
                    self._emit(depth, f"{values[field.name]} = {default}")
            arguments.append(values[field.name])
        if self._is_flexible:
            self._read_tags(depth, tagged, values)
        made = self._constant(class_of_struct(self._name, of))
        self._emit(depth, f"{target} = {made}({', '.join(arguments)})")

    def _default(self, field: Field) -> str:
        if field.is_null_by_default:
            return "None"
        if field.is_array:
            return "[]"
        if field.struct is not None:
            return f"{self._constant(class_of_struct(self._name, field.struct))}()"
        return self._constant(default_of(field))

    def _read_run(self, depth: int, targets: list[str], run: list[Field]) -> None:
        formats = ">" + "".join(FORMATS[field.type] for field in run)
        comma = "," if len(run) == 1 else ""
        self._emit(depth, f"{', '.join(targets)}{comma} = unpack({formats!r}, data, pos)")
        self._emit(depth, f"pos += {struct.calcsize(formats)}")

    def _read_field(self, depth: int, target: str, field: Field, is_compact: bool) -> None:
        is_nullable = self._version in field.nullable
        if field.is_array:
            self._read_array(depth, target, field, is_nullable, is_compact)
        elif field.struct is not None:
            if is_nullable:
                flag = self._new_name("flag")
                self._emit(depth, f"{flag}, = unpack('>b', data, pos)")
                self._emit(depth, "pos += 1")
                self._emit(depth, f"if {flag} < 0:")
                self._emit(depth + 1, f"{target} = None")
                self._emit(depth, "else:")
                depth += 1
            self._read_struct(depth, target, field.struct)
        elif field.type == "uuid":
            self._emit(depth, f"{target} = uuid_text(data, pos)")
            self._emit(depth, "pos += 16")
        elif field.type in FORMATS:
            self._read_run(depth, [target], [field])
        else:
            self._read_bytes(depth, target, field, is_nullable, is_compact)

    def _read_length(self, depth: int, length: str, format: str, is_compact: bool) -> None:
        if is_compact:
            self._emit(depth, f"{length} = data[pos]")
            self._emit(depth, "pos += 1")
            self._emit(depth, f"if {length} > 127:")
            self._emit(depth + 1, f"{length}, pos = varint({length}, data, pos)")
            self._emit(depth, f"{length} -= 1")
        else:
            self._emit(depth, f"{length}, = unpack('>{format}', data, pos)")
            self._emit(depth, f"pos += {struct.calcsize('>' + format)}")

    def _read_bytes(
        self, depth: int, target: str, field: Field, is_nullable: bool, is_compact: bool
    ) -> None:
        is_text = field.type == "string"
        length, stop = self._new_name("length"), self._new_name("stop")
        self._read_length(depth, length, "h" if is_text else "i", is_compact)
        self._emit(depth, f"if {length} < 0:")
        self._null(depth + 1, target, length, field, is_nullable)
        self._emit(depth, "else:")
        self._emit(depth + 1, f"{stop} = pos + {length}")
        limit = f" or {length} > {_MAX_STRING_BYTES}" if is_text and is_compact else ""
        self._emit(depth + 1, f"if {stop} > end{limit}:")
        self._emit(depth + 2, f"check_length({length}, end - pos, {field.name!r})")
        read = {
            "string": f"str(data[pos:{stop}], 'utf-8')",
            "bytes": f"bytes(data[pos:{stop}])",
            "records": f"data[pos:{stop}]",
        }[field.type]
        self._emit(depth + 1, f"{target} = {read}")
        self._emit(depth + 1, f"pos = {stop}")

    def _null(self, depth: int, target: str, length: str, field: Field, is_nullable: bool) -> None:
        if is_nullable:
            self._emit(depth, f"if {length} != -1: check_length({length}, 0, {field.name!r})")
            self._emit(depth, f"{target} = None")
        else:
            self._emit(depth, f"raise Malformed('{field.name} is null')")

    def _read_array(
        self, depth: int, target: str, field: Field, is_nullable: bool, is_compact: bool
    ) -> None:
        count = self._new_name("count")
        self._read_length(depth, count, "i", is_compact)
        self._emit(depth, f"if {count} < 0:")
        self._null(depth + 1, target, count, field, is_nullable)
        self._emit(depth, "else:")
        depth += 1
        # Each element takes at least one byte.
        self._emit(
            depth, f"if {count} > end - pos: check_length({count}, end - pos, {field.name!r})"
        )
        self._emit(depth, f"left -= {count}")
        self._emit(depth, "if left < 0: too_many()")
        if field.type in FORMATS:
            format = FORMATS[field.type]
            self._emit(depth, f"{target} = list(unpack(f'>{{{count}}}{format}', data, pos))")
            self._emit(depth, f"pos += {count} * {struct.calcsize('>' + format)}")
            return
        element = self._new_name("element")
        self._emit(depth, f"{target} = []")
        self._emit(depth, f"for _ in range({count}):")
        if field.struct is not None:
            self._read_struct(depth + 1, element, field.struct)
        elif field.type == "uuid":
            self._emit(depth + 1, f"{element} = uuid_text(data, pos)")
            self._emit(depth + 1, "pos += 16")
        else:
            self._read_bytes(depth + 1, element, field, False, is_compact)
        self._emit(depth + 1, f"{target}.append({element})")

    def _read_tags(self, depth: int, tagged: list[Field], values: dict[str, str]) -> None:
        """Read known tagged fields, and skip unknown ones, as KIP-482 asks."""
        count, tag, size, stop = map(self._new_name, ("tags", "tag", "size", "stop"))
        self._read_varint(depth, count)
        self._emit(depth, f"if {count}:")
        depth += 1
        self._emit(depth, f"if {count} > end - pos: check_length({count}, end - pos, 'tags')")
        self._emit(depth, f"for _ in range({count}):")
        depth += 1
        self._read_varint(depth, tag)
        self._read_varint(depth, size)
        self._emit(depth, f"{stop} = pos + {size}")
        self._emit(depth, f"if {stop} > end: check_length({size}, end - pos, 'tag')")
        for field in tagged:
            self._emit(depth, f"if {tag} == {field.tag}:")
            self._read_field(depth + 1, values[field.name], field, True)
            self._emit(depth + 1, f"if pos != {stop}:")
            self._emit(depth + 2, f"raise Malformed('{field.name} does not fill its tagged field')")
        self._emit(depth, f"pos = {stop}")

    def _read_varint(self, depth: int, target: str) -> None:
        self._emit(depth, f"{target} = data[pos]")
        self._emit(depth, "pos += 1")
        self._emit(depth, f"if {target} > 127:")
        self._emit(depth + 1, f"{target}, pos = varint({target}, data, pos)")


def _runs(of: Struct, version: int) -> Iterator[list[Field]]:
    """Yield the untagged fields; successive ones of fixed size together."""
    run: list[Field] = []
    for field in of.untagged(version):
        if field.type in FORMATS and not field.is_array:
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


def _rest_of_varint(first: int, data: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned varint of more than one byte, and the position after it."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
    raise MalformedMessageError("a varint has more than five bytes")


def _check_length(length: int, left: int, field: str) -> None:
    raise MalformedMessageError(
        f"{field} has the length {length}, and the message has {left} more bytes"
    )


def _too_many() -> None:
    raise MalformedMessageError(f"the message has more than {MAX_ELEMENTS} elements in arrays")
