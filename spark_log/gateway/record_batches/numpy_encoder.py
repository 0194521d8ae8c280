"""The bytes of records by numpy and pyarrow, where ``_native.c`` has not been compiled.

Varints of all records become one binary array; then one call joins them with keys, values and
headers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import binary_array, ints_of, offsets_of

_VARINT_ENDS = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)


def encode(
    prefix_bytes: int,
    deltas_ms: np.ndarray,
    offset_deltas: np.ndarray,
    key: pa.Array,
    value: pa.Array,
    headers: pa.ListArray,
) -> bytearray:
    """Return the bytes of records, as `RecordCodec` describes them."""
    count = len(deltas_ms)
    if not count:
        return bytearray(prefix_bytes)
    key_lengths, value_lengths = _lengths(key), _lengths(value)
    header_counts, header_bytes = _headers(headers)
    columns = (deltas_ms, offset_deltas.astype(np.int64), key_lengths)
    sizes = 1 + sum(_varint_bytes(each) for each in (*columns, value_lengths, header_counts))
    sizes = sizes + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    if header_bytes is not None:
        sizes = sizes + _lengths(header_bytes)
    if int(sizes.sum()) + 5 * count + prefix_bytes > 2**31 - 1:
        raise OverflowError("the records exceed 2 GiB")
    none = binary_array([b""])[0]
    parts = [
        # The zero of the attributes is the varint 0, too.
        _varint_array([sizes, np.zeros(count, np.int64), *columns]),
        key,
        _varint_array([value_lengths]),
        value,
        _varint_array([header_counts]),
    ]
    if header_bytes is not None:
        parts.append(header_bytes)
    joined = _joined(parts, none)
    encoded = bytearray(prefix_bytes)
    encoded += memoryview(_data(joined))
    return encoded


def _headers(headers: pa.ListArray) -> tuple[np.ndarray, pa.Array | None]:
    """Return the number of headers of each record, and their bytes."""
    count = len(headers)
    if headers.null_count == count:
        return np.zeros(count, np.int64), None
    items = headers.flatten()  # of a null, Arrow may have items, which this leaves out
    counts = np.maximum(_lengths(headers), 0)
    if not len(items):
        return counts, None
    names, values = items.field(0), items.field(1)
    none = binary_array([b""])[0]
    pairs = _joined(
        [
            _varint_array([_lengths(names)]),
            names.view(pa.binary()),
            _varint_array([_lengths(values)]),
            values,
        ],
        none,
    )
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    offsets = np.ascontiguousarray(offsets_of(pairs)[ends])
    buffers = [None, pa.py_buffer(offsets), pairs.buffers()[2]]
    return counts, pa.Array.from_buffers(pa.binary(), count, buffers)


def _joined(parts: Sequence[pa.Array], separator: pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(
        *parts, separator, null_handling="replace", null_replacement=b""
    )


def _data(array: pa.Array) -> pa.Buffer:
    """Return the bytes of all rows."""
    offsets = offsets_of(array)
    data = array.buffers()[2]
    return pa.py_buffer(b"") if data is None else data.slice(offsets[0], offsets[-1] - offsets[0])


def _lengths(column: pa.Array) -> np.ndarray:
    """Return the length of each byte string or list, int64; -1 for a null."""
    lengths = np.diff(offsets_of(column)).astype(np.int64)
    if column.null_count:
        lengths[np.asarray(ints_of(column.is_null().cast(pa.int8()), np.int8), np.bool_)] = -1
    return lengths


def _zigzag(values: np.ndarray) -> np.ndarray:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _varint_bytes(values: np.ndarray) -> np.ndarray:
    """Return the length of each number as a varint."""
    return np.searchsorted(_VARINT_ENDS, _zigzag(values), side="right") + 1


def _varint_array(columns: Sequence[np.ndarray]) -> pa.Array:
    """Return a binary array whose rows are the varints of several columns of int64."""
    count = len(columns[0])
    lengths = [_varint_bytes(column) for column in columns]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sum(lengths), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for column, sizes in zip(columns, lengths, strict=True):
        bits = _zigzag(column)
        most = int(sizes.max())
        for number in range(most):
            if number == 0:
                data[at] = (bits & np.uint64(0x7F)) | np.where(sizes > 1, 0x80, 0).view(np.uint64)
                continue
            rows = np.flatnonzero(sizes > number)
            more = np.where(sizes[rows] > number + 1, 0x80, 0).view(np.uint64)
            data[at[rows] + number] = (
                (bits[rows] >> np.uint64(7 * number)) & np.uint64(0x7F)
            ) | more
        at += sizes
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
