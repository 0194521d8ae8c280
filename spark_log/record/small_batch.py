"""The buffers of a small record batch, taken from Arrow once for its checksum and its file."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from spark_log.record.batch_check import COLUMN_SUMS_BYTES

NODES: Final = 7
"""Arrays of a record batch: key, value, headers, their structs, names and values, timestamp."""

BUFFERS: Final = 17
"""Buffers of these arrays, in the order of Arrow's IPC format."""

_ALL_NULL: Final = b"\x02"
_NO_NULL: Final = b"\x00"
_FIRST: Final = b"\0\0\0\0"


class SmallBatch(NamedTuple):
    """The buffers of a record batch of less than `COLUMN_SUMS_BYTES`.

    Attributes:
        rows: number of records, at least 1.
        nulls: number of nulls in each of the columns key, value and headers.
        buffers: the `BUFFERS` buffers as Arrow's IPC writer writes them, without padding.
        content: the columns as they enter the checksum of a batch (`record.checksum`).
    """

    rows: int
    nulls: tuple[int, int, int]
    buffers: Sequence[bytes]
    content: bytes

    @classmethod
    def of(cls, records: pa.RecordBatch) -> SmallBatch | None:
        """Take the buffers of a record batch.

        Args:
            records: columns of `RECORD_SCHEMA`, at least one row, no timestamp null.

        Returns:
            None for a batch that is large, has headers, is a slice, or has a column in which some
            rows are null and others are not.
        """
        rows = records.num_rows
        if records.get_total_buffer_size() >= COLUMN_SUMS_BYTES:
            return None
        key, value, headers, timestamp = records.columns
        keys, values = _texts(key, rows), _texts(value, rows)
        if keys is None or values is None or headers.null_count != rows:
            return None
        if headers.offset or timestamp.offset:
            return None
        validity, offsets, _, _, names, _, _, contents, _ = headers.buffers()
        list_offsets = offsets.to_pybytes()
        times = timestamp.buffers()[1].to_pybytes()
        # A longer buffer belongs to a slice, of which Arrow's writer writes other bytes.
        if len(times) != 8 * rows or len(list_offsets) != 4 * rows + 4:
            return None
        if list_offsets[:4] != _FIRST or list_offsets[-4:] != _FIRST:
            return None
        bits = _cut(validity, (rows + 7) // 8)
        return cls(
            rows,
            (rows if keys[0] else 0, rows if values[0] else 0, rows),
            (
                *keys,
                *values,
                bits,
                list_offsets,
                b"",
                # Arrow's writer does not cut the offsets of an array without items.
                *(b"", b"" if names is None else names.to_pybytes(), b""),
                *(b"", b"" if contents is None else contents.to_pybytes(), b""),
                b"",
                times,
            ),
            b"".join((_content(keys), _content(values), _ALL_NULL, _NO_NULL, times)),
        )


def content_of(rows: int, nulls: tuple[int, int], buffers: Sequence[bytes]) -> bytes | None:
    """Return the columns of a batch without headers, as they enter its checksum.

    Args:
        rows: number of records.
        nulls: number of nulls in the columns key and value.
        buffers: the `BUFFERS` buffers of the batch.

    Returns:
        None if the buffers do not fit the numbers.
    """
    key, value, times = buffers[:3], buffers[3:6], buffers[-1]
    for count, (validity, starts, data) in zip(nulls, (key, value), strict=True):
        if count != (rows if validity else 0) or len(starts) != 4 * rows + 4:
            return None
        if _I32.unpack_from(starts, 4 * rows) != (len(data),):
            return None
    if len(times) != 8 * rows or len(buffers[6]) != (rows + 7) // 8:
        return None
    return b"".join((_content(key), _content(value), _ALL_NULL, _NO_NULL, times))


def _texts(array: pa.Array, rows: int) -> tuple[bytes, bytes, bytes] | None:
    """Return the validity bits, the offsets and the bytes of a binary array.

    The bits are empty if no row is null.
    """
    nulls = array.null_count
    if array.offset or (nulls and nulls != rows):
        return None
    validity, offsets, data = array.buffers()
    starts = offsets.to_pybytes()
    if len(starts) != 4 * rows + 4 or starts[:4] != _FIRST:
        return None
    (end,) = _I32.unpack_from(starts, 4 * rows)
    if nulls and end:
        return None
    return (
        _cut(validity, (rows + 7) // 8) if nulls else b"",
        starts,
        b"" if data is None else _cut(data, end),
    )


_I32: Final = struct.Struct("<i")


def _cut(buffer: pa.Buffer, length: int) -> bytes:
    """Return the first bytes of a buffer."""
    whole: bytes = buffer.to_pybytes()
    return whole if len(whole) == length else whole[:length]


def _content(column: Sequence[bytes]) -> bytes:
    """Return a column as it enters the checksum of a batch."""
    validity, offsets, data = column
    return _ALL_NULL if validity else b"".join((_NO_NULL, offsets, data))
