"""Arrow arrays from Python's and numpy's values, by the buffers themselves.

What pyarrow offers for it (``pa.array``, ``pa.scalar``, ``to_numpy``) imports pandas, where that is
installed, to see whether it has to do with it: a quarter of a second of a process's first append.
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


def timestamp_array(times_us: np.ndarray) -> pa.Array:
    """Return microseconds since the epoch, int64, as an array of `TIMESTAMP_TYPE`."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(times_us, np.int64))]
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(times_us), buffers)


def times_us_of(records: pa.RecordBatch) -> np.ndarray:
    """Return the column ``timestamp``, none null, as int64 microseconds; not copied."""
    column = records.column("timestamp")
    if not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
