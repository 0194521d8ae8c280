"""The buffers of a small record batch, as its checksum and its file need them.

They are taken from an Arrow batch, or made of a producer's records without Arrow: to make its
arrays would take longer than to fill in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.record.arrays import ints_of
from spark_log.record.batch_check import COLUMN_SUMS_BYTES
from spark_log.record.batch_header import BatchHeader
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

NODES: Final = 7
"""Arrays of a record batch: key, value, headers, their structs, names and values, timestamp."""

BUFFERS: Final = 17
"""Buffers of these arrays, in the order of Arrow's IPC format."""

_ALL_NULL: Final = b"\x02"
_NO_NULL: Final = b"\x00"
_FIRST: Final = b"\0\0\0\0"

_ROW_BYTES: Final = 40
"""Memory of an Arrow row without key, value and headers, rounded up: offsets, validity bits and the
timestamp."""

MOST_SMALL_ROWS: Final = COLUMN_SUMS_BYTES // _ROW_BYTES
"""Maximum number of records in a batch that `SmallBatch.of_records` makes."""

BinaryColumn = tuple[bytes, bytes, bytes]
"""Validity bits, offsets and bytes of a binary column. The bits are empty if no row is null."""


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
        no_headers = _header_buffers(headers)
        times = timestamp.buffers()[1].to_pybytes()
        # A longer buffer belongs to a slice, of which Arrow's writer writes other bytes.
        if no_headers is None or len(times) != 8 * rows:
            return None
        return cls._of_columns(rows, keys, values, no_headers, times)

    @classmethod
    def of_records(
        cls,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times_us: Iterable[int] | bytes,
    ) -> SmallBatch | None:
        """Make the buffers of records without headers. They are those of `of` for these records.

        Args:
            keys: the key of each record, at least one.
            values: the value of each record.
            times_us: the timestamp of each record, microseconds since the epoch, or the bytes of
                their int64 numbers. They are not computed for records that are refused.

        Returns:
            None for records that may be too large, or have a column in which some rows are null and
            others are not.
        """
        rows = len(values)
        most_bytes = COLUMN_SUMS_BYTES - 1 - _ROW_BYTES * rows
        made_values = _made(values, rows, most_bytes)
        if made_values is None:
            return None
        made_keys = _made(keys, rows, most_bytes - len(made_values[2]))
        if made_keys is None:
            return None
        times = times_us if isinstance(times_us, bytes) else struct.pack(f"<{rows}q", *times_us)
        return cls._of_columns(rows, made_keys, made_values, _no_headers(rows), times)

    @classmethod
    def of_columns(
        cls, rows: int, keys: BinaryColumn, values: BinaryColumn, times: bytes
    ) -> SmallBatch | None:
        """Make the buffers of records without headers of columns that something else has made.

        They are those of `of` for these records.

        Args:
            rows: number of records, at least 1.
            keys: the keys.
            values: the values.
            times: the timestamps, int64 microseconds since the epoch.

        Returns:
            None for records that may be too large, or have a column in which some rows are null and
            others are not.
        """
        most_bytes = COLUMN_SUMS_BYTES - 1 - _ROW_BYTES * rows
        if most_bytes < len(keys[2]) + len(values[2]):
            return None
        of_keys, of_values = _all_or_none(rows, keys), _all_or_none(rows, values)
        if of_keys is None or of_values is None:
            return None
        return cls._of_columns(rows, of_keys, of_values, _no_headers(rows), times)

    @classmethod
    def joined(cls, batches: Sequence[SmallBatch]) -> SmallBatch | None:
        """Return the records of several batches as one; None if they are too many for it.

        Args:
            batches: the batches, at least one.
        """
        return cls.of_records(
            [key for each in batches for key in each.texts(0)],
            [value for each in batches for value in each.texts(1)],
            b"".join(each.buffers[-1] for each in batches),
        )

    @classmethod
    def of_buffers(
        cls, rows: int, nulls: tuple[int, int, int], buffers: Sequence[bytes]
    ) -> SmallBatch | None:
        """Return the batch that has these buffers; None if they do not fit each other.

        Args:
            rows: number of records, at least 1.
            nulls: number of nulls in each of the columns key, value and headers.
            buffers: the `BUFFERS` buffers.
        """
        keys, values = _checked(rows, nulls[0], buffers[:3]), _checked(rows, nulls[1], buffers[3:6])
        headers, times = tuple(buffers[6:15]), buffers[16]
        if keys is None or values is None or not _are_null(rows, headers):
            return None
        if nulls[2] != rows or buffers[15] or len(times) != 8 * rows:
            return None
        return cls._of_columns(rows, keys, values, headers, times)

    @classmethod
    def _of_columns(
        cls,
        rows: int,
        keys: BinaryColumn,
        values: BinaryColumn,
        headers: tuple[bytes, ...],
        times: bytes,
    ) -> SmallBatch:
        return cls(
            rows,
            (rows if keys[0] else 0, rows if values[0] else 0, rows),
            (*keys, *values, *headers, b"", times),
            b"".join((_content(keys), _content(values), _ALL_NULL, _NO_NULL, times)),
        )

    def time_range_us(self) -> tuple[int, int, int]:
        """Return the first, the smallest and the largest timestamp, as microseconds."""
        times_us = struct.unpack(f"<{self.rows}q", self.buffers[-1])
        return times_us[0], min(times_us), max(times_us)

    def crc32c(self, header: BatchHeader) -> int:
        """Return the checksum of the batch; the header's field ``crc32c`` is ignored."""
        return int(extend(extend(0, header.checksummed_bytes()), self.content))

    def texts(self, column: int) -> list[bytes | None]:
        """Return the keys (column 0) or the values (column 1)."""
        rows = self.rows
        if self.nulls[column]:
            return [None] * rows
        offsets, data = self.buffers[3 * column + 1], self.buffers[3 * column + 2]
        if rows == 1:
            return [data]
        ends = struct.unpack(f"<{rows + 1}i", offsets)
        return [data[start:end] for start, end in pairwise(ends)]

    def times_us(self) -> np.ndarray:
        """Return the timestamps, int64 microseconds since the epoch."""
        return np.frombuffer(self.buffers[-1], np.int64)

    def records(self) -> pa.RecordBatch:
        """Return the records as an Arrow batch of `RECORD_SCHEMA`."""
        rows, buffers = self.rows, self.buffers
        times = pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [None, pa.py_buffer(buffers[-1])])
        return pa.RecordBatch.from_arrays(
            [
                _array(rows, self.nulls[0], buffers[1:3]),
                _array(rows, self.nulls[1], buffers[4:6]),
                pa.nulls(rows, HEADERS_TYPE),
                times,
            ],
            schema=RECORD_SCHEMA,
        )


def joined_records(batches: Sequence[pa.RecordBatch | SmallBatch]) -> pa.RecordBatch:
    """Return the records of some batches as one Arrow batch of `RECORD_SCHEMA`.

    Args:
        batches: the batches, at least one.
    """
    small = [each for each in batches if isinstance(each, SmallBatch)]
    if len(batches) == 1 or len(small) < len(batches):
        arrow = [each.records() if isinstance(each, SmallBatch) else each for each in batches]
        return arrow[0] if len(arrow) == 1 else pa.concat_batches(arrow)
    # Faster than to make an Arrow batch of each.
    times = pa.py_buffer(b"".join(each.buffers[-1] for each in small))
    rows = times.size // 8
    return pa.RecordBatch.from_arrays(
        [
            pa.array([text for each in small for text in each.texts(0)], pa.binary()),
            pa.array([text for each in small for text in each.texts(1)], pa.binary()),
            pa.nulls(rows, HEADERS_TYPE),
            pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [None, times]),
        ],
        schema=RECORD_SCHEMA,
    )


def small_batches(
    records: pa.RecordBatch, headers: Iterable[BatchHeader]
) -> Sequence[SmallBatch | None]:
    """Take consecutive batches out of an Arrow batch (`SmallBatch.of_records`).

    Args:
        records: their rows, with the columns of `RECORD_SCHEMA`.
        headers: the header of each batch, which tells the number of its rows.

    Returns:
        The records of each batch, None for those that are not small; or nothing at all, if some
        records have headers.
    """
    if records.column("headers").null_count != records.num_rows:
        return ()
    keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
    times_us = ints_of(records.column("timestamp"), np.int64).tolist()
    found: list[SmallBatch | None] = []
    row = 0
    for header in headers:
        rows = slice(row, row + header.record_count)
        found.append(SmallBatch.of_records(keys[rows], values[rows], times_us[rows]))
        row = rows.stop
    return found


def _header_buffers(headers: pa.Array) -> tuple[bytes, ...] | None:
    """Return the buffers of a column of headers that are all null; None if it is a slice's."""
    rows = len(headers)
    validity, offsets, _, _, names, _, _, contents, _ = headers.buffers()
    list_offsets = offsets.to_pybytes()
    if len(list_offsets) != 4 * rows + 4:
        return None
    if list_offsets[:4] != _FIRST or list_offsets[-4:] != _FIRST:
        return None
    return (
        _cut(validity, (rows + 7) // 8),
        list_offsets,
        b"",
        # Arrow's writer does not cut the offsets of an array without items.
        *(b"", b"" if names is None else names.to_pybytes(), b""),
        *(b"", b"" if contents is None else contents.to_pybytes(), b""),
    )


@lru_cache(maxsize=MOST_SMALL_ROWS)
def _no_headers(rows: int) -> tuple[bytes, ...]:
    """Return the buffers of a column of headers that are all null, as Arrow makes it."""
    found = _header_buffers(pa.nulls(rows, HEADERS_TYPE))
    assert found is not None
    return found


def _are_null(rows: int, headers: tuple[bytes, ...]) -> bool:
    """Return whether buffers are those of headers that are all null, as Arrow makes them.

    `pyarrow.nulls` makes offsets of names and values for each row, an array of Python values one.
    """
    made = _no_headers(rows)
    return headers in (made, (*made[:4], _FIRST, b"", b"", _FIRST, b""))


def _made(texts: Sequence[bytes | None], rows: int, most_bytes: int) -> BinaryColumn | None:
    """Return a column of byte strings.

    Args:
        texts: the byte strings.
        rows: number of them.
        most_bytes: maximum length of all of them; negative if there are too many rows already.

    Returns:
        None if they are longer, or if some of them are null and others are not.
    """
    nulls = texts.count(None) if most_bytes >= 0 else 0
    if most_bytes < 0 or 0 < nulls < rows:
        return None
    if nulls:
        return bytes((rows + 7) // 8), bytes(4 * rows + 4), b""
    data = b"".join(texts)  # type: ignore[arg-type]
    if len(data) > most_bytes:
        return None
    offsets = struct.pack(f"<{rows + 1}i", *accumulate(map(len, texts), initial=0))  # type: ignore[arg-type]
    return b"", offsets, data


def _all_or_none(rows: int, column: BinaryColumn) -> BinaryColumn | None:
    """Return a column in which all rows are null, or none; None for another one."""
    validity = column[0]
    if not validity:
        return column
    if int.from_bytes(validity, "little") & ((1 << rows) - 1):
        return None
    return bytes((rows + 7) // 8), bytes(4 * rows + 4), b""


def _checked(rows: int, nulls: int, buffers: Sequence[bytes]) -> BinaryColumn | None:
    """Return a column whose buffers fit each other; None if they do not."""
    validity, offsets, data = buffers
    if nulls:
        is_right = tuple(buffers) == (bytes((rows + 7) // 8), bytes(4 * rows + 4), b"")
    else:
        is_right = not validity and len(offsets) == 4 * rows + 4
        if is_right:
            ends = struct.unpack(f"<{rows + 1}i", offsets)
            is_right = ends[0] == 0 and ends[-1] == len(data) and list(ends) == sorted(ends)
    return (validity, offsets, data) if is_right else None


def _array(rows: int, nulls: int, buffers: Sequence[bytes]) -> pa.Array:
    """Return a binary column.

    Args:
        rows: number of rows.
        nulls: number of nulls, all rows or none.
        buffers: the offsets, and the bytes.
    """
    if nulls:
        return pa.nulls(rows, pa.binary())
    return pa.Array.from_buffers(pa.binary(), rows, [None, *map(pa.py_buffer, buffers)], 0)


def _texts(array: pa.Array, rows: int) -> BinaryColumn | None:
    """Return the buffers of a binary array; None for a slice, or if only some rows are null."""
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


def _content(column: BinaryColumn) -> bytes:
    """Return a column as it enters the checksum of a batch."""
    validity, offsets, data = column
    return _ALL_NULL if validity else b"".join((_NO_NULL, offsets, data))
