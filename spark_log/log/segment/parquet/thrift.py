"""Thrift's compact protocol, as far as the structs of the Parquet format need it.

pyarrow reads and writes footers only as a whole, and does not show where pages lie. So a few
structs are read here, and a small footer is written (`pages`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

I32: Final = 5
I64: Final = 6
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
_TRUE: Final = 1
_FALSE: Final = 2
_BYTE: Final = 3
_I16: Final = 4
_DOUBLE: Final = 7
_SET: Final = 10
_LONG_LIST: Final = 15

_MAX_DEPTH: Final = 16
"""Maximum depth of nested structs and lists; Parquet's footer has 7."""


class Value(NamedTuple):
    """A value to write.

    Attributes:
        kind: its type: `I32`, `I64`, `BINARY` or `STRUCT`; of a list, the type of its elements.
        value: an int, bytes, the bytes of a struct, or a sequence of these for a list.
    """

    kind: int
    value: int | bytes | Sequence[int | bytes]


class ThriftReader:
    """Reads structs from bytes, from the beginning on.

    Every method raises ValueError if the bytes are not what it reads.

    Attributes:
        position: position of the next byte.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct; return its fields by id: ints, bools, bytes, lists and dictionaries."""
        found: dict[int, Any] = {}
        last = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self._int()
            if kind in (_TRUE, _FALSE):
                found[last] = kind == _TRUE
            else:
                found[last] = self._value(kind, depth + 1)
        return found

    def skip_to_list(self, field: int) -> int:
        """Skip the fields of a struct before one that is a list; return the size of the list."""
        last = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self._int()
            if last == field and kind == LIST:
                return self._list_head()[0]
            if kind not in (_TRUE, _FALSE):
                self._value(kind, 1)
        raise ValueError(f"a struct of Parquet has no field {field}")

    def raw_struct(self) -> tuple[dict[int, Any], bytes]:
        """Read a struct; return its fields, and its bytes."""
        start = self.position
        fields = self.struct()
        return fields, self._data[start : self.position]

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("a struct of Parquet is nested too deeply")
        if kind in (_I16, I32, I64):
            return self._int()
        if kind == BINARY:
            return self._take(self._varint())
        if kind == STRUCT:
            return self.struct(depth)
        if kind in (LIST, _SET):
            count, element = self._list_head()
            return [self._value(element, depth + 1) for _ in range(count)]
        if kind in (_TRUE, _FALSE, _BYTE):  # an element of a list, or a byte
            return self._byte()
        if kind == _DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        raise ValueError(f"a struct of Parquet has a field of the unknown type {kind}")

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4
        if count == _LONG_LIST:
            count = self._varint()
        if count > len(self._data):
            raise ValueError("a list of Parquet is longer than its file")
        return count, head & 15

    def _byte(self) -> int:
        if self.position >= len(self._data):
            raise ValueError("a struct of Parquet is cut")
        found = self._data[self.position]
        self.position += 1
        return found

    def _take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ValueError("a struct of Parquet is cut")
        found = self._data[self.position : end]
        self.position = end
        return found

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number of Parquet is too long")

    def _int(self) -> int:
        found = self._varint()
        return found >> 1 ^ -(found & 1)


def write_struct(fields: Mapping[int, Value]) -> bytes:
    """Return the bytes of a struct.

    Args:
        fields: the fields by id, in ascending order, their ids at most 15 apart.
    """
    parts = bytearray()
    last = 0
    for number, (kind, value) in fields.items():
        is_list = not isinstance(value, int | bytes)
        parts.append(number - last << 4 | (LIST if is_list else kind))
        if isinstance(value, int | bytes):
            parts += _bytes_of(kind, value)
        else:
            parts += bytes([min(len(value), _LONG_LIST) << 4 | kind])
            if len(value) >= _LONG_LIST:
                parts += _varint_bytes(len(value))
            for each in value:
                parts += _bytes_of(kind, each)
        last = number
    parts.append(0)
    return bytes(parts)


def _bytes_of(kind: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint_bytes(value << 1 ^ value >> 63)
    return _varint_bytes(len(value)) + value if kind == BINARY else value


def _varint_bytes(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
