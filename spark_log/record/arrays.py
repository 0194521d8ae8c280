"""Conversion between Arrow arrays and Python's or numpy's values, through Arrow's buffers.

pyarrow's own functions (``pa.array``, ``pa.scalar``, ``to_numpy``, ``fill_null``) import pandas if
it is installed. A function of `pyarrow.compute` does the same if it gets a number or a string
instead of a scalar. The import would take a quarter of a second of a process's first append or
poll, and half of the time of a short command.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_log.record.schema import TIMESTAMP_TYPE

_FEW_TIMES = 64
"""Number of timestamps up to which numpy's functions take longer than Python's."""


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Return byte strings as a binary array. This is ten times as fast as ``pa.array``.

    Args:
        values: the byte strings; None becomes null.
    """
    count, nulls = len(values), values.count(None)
    if nulls == count:
        return pa.nulls(count, pa.binary())
    validity = None
    if nulls:
        valid = np.fromiter((value is not None for value in values), np.bool_, count)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        values = [b"" if value is None else value for value in values]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, count), out=offsets[1:])  # type: ignore[arg-type]
    data = pa.py_buffer(b"".join(values))  # type: ignore[arg-type]
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer(offsets), data], null_count=nulls
    )


def text_array(values: Sequence[str]) -> pa.Array:
    """Return strings as a string array."""
    return binary_array([value.encode() for value in values]).view(pa.string())


def text_scalar(value: str) -> pa.Scalar:
    """Return a string as an Arrow scalar."""
    return text_array([value])[0]


def int_array(values: Sequence[int] | np.ndarray, of_type: pa.DataType) -> pa.Array:
    """Return integers as an Arrow array.

    Args:
        values: the integers; a numpy array of the right type is not copied.
        of_type: an integer type, such as ``int64``.

    Raises:
        OverflowError: a value is too large for the type.
    """
    data = pa.py_buffer(np.ascontiguousarray(values, np.dtype(str(of_type))))
    return pa.Array.from_buffers(of_type, len(values), [None, data])


def int_scalar(value: int, of_type: pa.DataType) -> pa.Scalar:
    """Return an integer as an Arrow scalar.

    Args:
        value: the integer.
        of_type: an integer type, such as ``int64``.

    Raises:
        OverflowError: the value is too large for the type.
    """
    return int_array([value], of_type)[0]


def nullable_int_array(values: Sequence[int | None], of_type: pa.DataType) -> pa.Array:
    """Return integers as an Arrow array; None becomes null.

    Args:
        values: the integers.
        of_type: an integer type, such as ``int64``.

    Raises:
        OverflowError: a value is too large for the type.
    """
    nulls = values.count(None)
    if not nulls:
        return int_array(values, of_type)  # type: ignore[arg-type]
    known = int_array([value or 0 for value in values], of_type)
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(of_type, len(values), [validity, known.buffers()[1]], nulls)


def ints_of(column: pa.Array, kind: type[np.integer] | str) -> np.ndarray:
    """Return an Arrow array of numbers or timestamps as a numpy array.

    Args:
        column: the Arrow array. It is copied only if it has nulls, which become 0.
        kind: the array's type in numpy.
    """
    if not len(column):
        return np.empty(0, kind)
    width = np.dtype(kind).itemsize
    values = np.frombuffer(column.buffers()[1], kind, len(column), column.offset * width)
    return np.where(bools_of(column.is_valid()), values, 0) if column.null_count else values


def offsets_of(column: pa.Array) -> np.ndarray:
    """Return the offsets of a binary, string, list or map array, as int32 without a copy.

    They count from the beginning of its data, also if the array is a slice.
    """
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


def bool_array(values: np.ndarray) -> pa.Array:
    """Return a numpy array of booleans as an Arrow array."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def bools_of(column: pa.Array) -> np.ndarray:
    """Return an Arrow array of booleans without nulls as a numpy array."""
    if not len(column):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    end = column.offset + len(column)
    return np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(np.bool_)


def timestamp_array(times_us: np.ndarray) -> pa.Array:
    """Return int64 microseconds since the epoch as an Arrow array of `TIMESTAMP_TYPE`."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(times_us, np.int64))]
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(times_us), buffers)


def times_us_of(records: pa.RecordBatch) -> np.ndarray:
    """Return the column ``timestamp``, which has no nulls, as int64 microseconds without a copy."""
    return ints_of(records.column("timestamp"), np.int64)


def time_range_us(records: pa.RecordBatch) -> tuple[int, int, int]:
    """Return the first, the smallest and the largest timestamp of at least one record.

    Args:
        records: records with the column ``timestamp``, which has no nulls.
    """
    rows = records.num_rows
    if rows > _FEW_TIMES:
        times_us = times_us_of(records)
        return int(times_us[0]), int(times_us.min()), int(times_us.max())
    column = records.column("timestamp")
    few_us = struct.unpack_from(f"<{rows}q", column.buffers()[1], 8 * column.offset)
    return few_us[0], min(few_us), max(few_us)
