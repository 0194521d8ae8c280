"""Arrow arrays of Python's and numpy's values, by the buffers themselves.

What pyarrow offers for it (``pa.array``, ``pa.scalar``, ``to_numpy``, ``fill_null``) imports
pandas, where that is installed, to see whether it has to do with it: a quarter of a second of a
process's first append or poll.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_log.record.schema import TIMESTAMP_TYPE


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Return byte strings as an array, in a tenth of what ``pa.array`` takes.

    Args:
        values: None is a null.
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
    """Return texts as an array."""
    return binary_array([value.encode() for value in values]).view(pa.string())


def text_scalar(value: str) -> pa.Scalar:
    """Return a text as Arrow's."""
    return text_array([value])[0]


def int_array(values: Sequence[int] | np.ndarray, of_type: pa.DataType) -> pa.Array:
    """Return integers as an array of this type, ``int32`` or ``int64``; such ones are not copied.

    Raises:
        OverflowError: one is too large for it.
    """
    data = pa.py_buffer(np.ascontiguousarray(values, np.dtype(str(of_type))))
    return pa.Array.from_buffers(of_type, len(values), [None, data])


def ints_of(column: pa.Array, kind: type[np.integer] | str) -> np.ndarray:
    """Return an array of numbers, or of times, as numpy's, 0 for null; not copied without one."""
    if not len(column):
        return np.empty(0, kind)
    width = np.dtype(kind).itemsize
    values = np.frombuffer(column.buffers()[1], kind, len(column), column.offset * width)
    return np.where(bools_of(column.is_valid()), values, 0) if column.null_count else values


def bools_of(column: pa.Array) -> np.ndarray:
    """Return an array of booleans, none null, as numpy's."""
    if not len(column):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    end = column.offset + len(column)
    return np.unpackbits(bits, count=end, bitorder="little")[column.offset :].view(np.bool_)


def timestamp_array(times_us: np.ndarray) -> pa.Array:
    """Return microseconds since the epoch, int64, as an array of `TIMESTAMP_TYPE`."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(times_us, np.int64))]
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(times_us), buffers)


def times_us_of(records: pa.RecordBatch) -> np.ndarray:
    """Return the column ``timestamp``, none null, as int64 microseconds; not copied."""
    return ints_of(records.column("timestamp"), np.int64)
