"""Columns as values in Avro's binary encoding.

Avro allows several encodings of a value. This one has the shortest form of each number, arrays and
maps in one block with a positive count and no size, and the shortest two's complement of a decimal
of bytes. So do Avro's libraries for Java, Python and C.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import binary_array, bools_of, ints_of, offsets_of
from spark_log.values.avro_schema import (
    AvroEnum,
    AvroFixed,
    AvroNullable,
    AvroPrimitive,
    AvroRecord,
    AvroRepeated,
    AvroType,
)

_VARINT_BYTES: Final = 10
_DECIMAL_BYTES: Final = 16


def encode_avro(record: AvroRecord, columns: list[pa.Array], frame: bytes) -> pa.BinaryArray:
    """Return a value for each row; null where a field that cannot be null is null.

    Args:
        record: the type of the values.
        columns: an array for each field.
        frame: bytes before each value: none, or Confluent's framing.
    """
    parts = [
        _encode(kind, column) for (_, kind), column in zip(record.fields, columns, strict=True)
    ]
    return _joined([_scalar(frame), *parts] if frame else parts)


def _encode(kind: AvroType, array: pa.Array) -> pa.Array:
    """Return the encoding of each value of an array; null for a null."""
    match kind:
        case AvroPrimitive():
            return _encode_primitive(kind, array)
        case AvroNullable():
            return _encode_nullable(kind, array)
        case AvroRecord():
            fields = zip(kind.fields, array.flatten(), strict=True)
            encoded = _joined([_encode(each, column) for (_, each), column in fields])
        case AvroRepeated():
            encoded = _encode_repeated(kind, array)
        case AvroEnum():
            index = pc.index_in(array, value_set=pa.array(kind.symbols, pa.string()))
            encoded = _varints(ints_of(index, np.int32).astype(np.int64))
        case AvroFixed():
            encoded = _encode_fixed(kind, array)
        case _:
            raise TypeError(kind)
    return _with_nulls_of(array, encoded)


def _encode_nullable(kind: AvroNullable, array: pa.Array) -> pa.Array:
    encoded = _encode(kind.inner, array)
    if kind.null_index is None:
        return _joined([_scalar(b"\0"), encoded])
    branch, null = (bytes([2 * each]) for each in (1 - kind.null_index, kind.null_index))
    return _joined([_scalar(branch), encoded]).fill_null(_scalar(null))


def _encode_primitive(kind: AvroPrimitive, array: pa.Array) -> pa.Array:
    if kind.name in ("string", "bytes"):
        length = pc.binary_length(array)
        return _joined(
            [_varints(ints_of(length, np.int32).astype(np.int64)), array.cast(pa.binary())]
        )
    if kind.name == "boolean":
        byte = bools_of(array.fill_null(pa.scalar(value=False)))
        return _with_nulls_of(array, _runs(byte.astype(np.uint8)[:, None]))
    if kind.name in ("float", "double"):
        width = 4 if kind.name == "float" else 8
        numbers = np.ascontiguousarray(ints_of(array, f"<i{width}"))
        return _with_nulls_of(array, _runs(numbers.view(np.uint8).reshape(-1, width)))
    width = array.type.bit_width // 8
    integers = ints_of(array, f"<i{width}").astype(np.int64)
    return _with_nulls_of(array, _varints(integers // (kind.unit_us or 1)))


def _encode_repeated(kind: AvroRepeated, array: pa.Array) -> pa.Array:
    # pyarrow counts the entries of a map only as a list.
    items = kind.item
    lengths = _lengths(array)
    if pa.types.is_map(array.type):
        entries = array.filter(array.is_valid())
        first, last = (int(entries.offsets[at].as_py()) for at in (0, -1))
        pairs = [entries.keys.slice(first, last - first), entries.items.slice(first, last - first)]
        flat = pa.StructArray.from_arrays(pairs, ["key", "value"])
    else:
        flat = array.flatten()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _encode(items, flat))
    counts = _varints(lengths.astype(np.int64))
    zero = _scalar(b"\0")
    content = _joined([counts, pc.binary_join(lists, _scalar(b"")), zero])
    return pc.if_else(pa.array(lengths > 0), content, zero)


def _lengths(array: pa.Array) -> np.ndarray:
    lengths = np.diff(offsets_of(array))
    return np.where(bools_of(array.is_valid()), lengths, 0) if array.null_count else lengths


def _encode_fixed(kind: AvroFixed, array: pa.Array) -> pa.Array:
    if not pa.types.is_decimal(kind.arrow):
        return array.cast(pa.binary())
    count, start = _DECIMAL_BYTES * len(array), _DECIMAL_BYTES * array.offset
    data = (
        np.frombuffer(array.buffers()[1], np.uint8, count, start)
        if count
        else np.empty(0, np.uint8)
    )
    digits = data.reshape(-1, _DECIMAL_BYTES)
    if kind.size is not None:
        return _runs(digits[:, kind.size - 1 :: -1])
    is_negative = digits[:, -1] >= 0x80
    sign = np.where(is_negative, 255, 0)[:, None]
    # From the most significant byte on: it can be left out if the next one has the same sign.
    spare = (digits[:, :0:-1] == sign) & ((digits[:, -2::-1] >= 0x80) == is_negative[:, None])
    length = _DECIMAL_BYTES - np.logical_and.accumulate(spare, axis=1).sum(axis=1)
    taken = np.arange(_DECIMAL_BYTES)[::-1] < length[:, None]
    content = _runs(digits[:, ::-1], taken)
    return _joined([_varints(length.astype(np.int64)), content])


def _varints(numbers: np.ndarray) -> pa.Array:
    """Return int64 numbers as zig-zag varints."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    places = np.arange(_VARINT_BYTES, dtype=np.uint64) * np.uint64(7)
    most = int(zigzag.max()) if len(zigzag) else 0
    count = max(1, -(-most.bit_length() // 7))
    groups = (zigzag[:, None] >> places[:count]) & np.uint64(0x7F)
    length = 1 + (zigzag[:, None] >> places[1:count] > 0).sum(axis=1)
    more = np.arange(count) < length[:, None] - 1
    packed = (groups | np.where(more, np.uint64(0x80), np.uint64(0))).astype(np.uint8)
    return _runs(packed, np.arange(count) < length[:, None])


def _runs(rows: np.ndarray, taken: np.ndarray | None = None) -> pa.Array:
    """Return the bytes of each row of a matrix, or those that are taken."""
    lengths = np.full(len(rows), rows.shape[1]) if taken is None else taken.sum(axis=1)
    data = np.ascontiguousarray(rows) if taken is None else rows[taken]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _with_nulls_of(array: pa.Array, encoded: pa.Array) -> pa.Array:
    if not array.null_count:
        return encoded
    return pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.binary()))


def _joined(parts: list[pa.Array | pa.Scalar]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _scalar(b""))


def _scalar(value: bytes) -> pa.Scalar:
    return binary_array([value])[0]
