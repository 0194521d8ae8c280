"""Decodes one Avro value after the other, for items of long arrays that few values have."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from spark_log.values.avro_schema import (
    AvroEnum,
    AvroFixed,
    AvroNullable,
    AvroPrimitive,
    AvroRecord,
    AvroRepeated,
    AvroType,
)

TOO_SHORT: Final = "ends too early"
WRONG_LENGTH: Final = "ends too early, or has a wrong length"
TOO_WIDE: Final = "a number has more than {} bits"
NO_BOOLEAN: Final = "a boolean is neither 0 nor 1"
NO_UTF8: Final = "a string is not UTF-8"
NO_TIMESTAMP: Final = "a timestamp has more than 64 bits of microseconds"
NO_SYMBOL: Final = "has no symbol of the {} of the enum"
NO_BRANCH: Final = "has no branch of the {} of the union"
TOO_MANY_ITEMS: Final = "an array or map has more items than bytes"
WRONG_SIZE: Final = "a block of an array or map has a wrong size"
LONG_DECIMAL: Final = "a decimal has more than 16 bytes"
MANY_DIGITS: Final = "a decimal has more than {} digits"

_EXACT: Final = Context(prec=40)


class AvroReader:
    """Reads values from bytes, as values from which pyarrow makes arrays.

    Attributes:
        position: the position of the next byte.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def read(self, kind: AvroType) -> Any:
        """Read a value of a type.

        Raises:
            ValueError: the bytes are no value of it.
        """
        match kind:
            case AvroPrimitive():
                value = self._primitive(kind)
            case AvroNullable():
                branches = 1 if kind.null_index is None else 2
                branch = self._varint()
                _check(0 <= branch < branches, NO_BRANCH.format(branches))
                value = None if branch == kind.null_index else self.read(kind.inner)
            case AvroRecord():
                value = {name: self.read(each) for name, each in kind.fields}
            case AvroRepeated():
                value = self._repeated(kind)
            case AvroEnum():
                index = self._varint()
                _check(0 <= index < len(kind.symbols), NO_SYMBOL.format(len(kind.symbols)))
                value = kind.symbols[index]
            case AvroFixed():
                value = self._fixed(kind)
            case _:
                raise TypeError(kind)
        return value

    def _primitive(self, kind: AvroPrimitive) -> Any:
        name = kind.name
        if name in ("int", "long"):
            number = self._varint()
            _check(name == "long" or -(1 << 31) <= number < 1 << 31, TOO_WIDE.format(32))
            if kind.unit_us > 1:
                limit = (1 << 63) // kind.unit_us - 1
                _check(-limit <= number <= limit, NO_TIMESTAMP)
            return number * (kind.unit_us or 1)
        if name in ("float", "double"):
            form, size = ("<f", 4) if name == "float" else ("<d", 8)
            return struct.unpack(form, self._take(size))[0]
        if name == "boolean":
            byte = self._take(1)[0]
            _check(byte <= 1, NO_BOOLEAN)
            return byte == 1
        data = self._sized()
        if name == "bytes":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ValueError(NO_UTF8) from None

    def _repeated(self, kind: AvroRepeated) -> list[Any]:
        items: list[Any] = []
        while True:
            count = self._varint()
            left = len(self._data) - self.position
            if count < 0:
                size, count = self._varint(), -count
                left = len(self._data) - self.position
                _check(count <= size <= left, WRONG_SIZE)
            _check(count <= left, TOO_MANY_ITEMS)
            if not count:
                break
            items += [self.read(kind.item) for _ in range(count)]
        if pa.types.is_map(kind.arrow):
            return [(item["key"], item["value"]) for item in items]
        return items

    def _fixed(self, kind: AvroFixed) -> bytes | Decimal:
        data = self._sized() if kind.size is None else self._take(kind.size)
        if not pa.types.is_decimal(kind.arrow):
            return data
        _check(len(data) <= 16, LONG_DECIMAL)
        digits = int.from_bytes(data, "big", signed=True)
        precision = kind.arrow.precision
        _check(abs(digits) < 10**precision, MANY_DIGITS.format(precision))
        return Decimal(digits).scaleb(-kind.arrow.scale, _EXACT)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            _check(shift < 70, TOO_WIDE.format(64))
        _check(number < 1 << 64, TOO_WIDE.format(64))
        return (number >> 1) ^ -(number & 1)

    def _sized(self) -> bytes:
        length = self._varint()
        _check(0 <= length <= len(self._data) - self.position, WRONG_LENGTH)
        return self._take(length)

    def _take(self, size: int) -> bytes:
        end = self.position + size
        _check(end <= len(self._data), TOO_SHORT)
        data = self._data[self.position : end]
        self.position = end
        return data


def _check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise ValueError(problem)
