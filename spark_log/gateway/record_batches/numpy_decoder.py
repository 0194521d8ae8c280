"""The fields of a batch's records by numpy and pyarrow, where ``_native.c`` has not been compiled.

Only the records' bounds are found one after the other, because each record begins with its size:
runs of records of equal size at once, others in a loop. Everything else is done for all records
of all batches together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_log.gateway.record_batches.columns import (
    BinaryBuffers,
    HeaderBuffers,
    RecordColumns,
    RecordPart,
)
from spark_log.gateway.record_batches.record_fault import RecordFault
from spark_log.record import int_array

_MIN_RUN = 16
_LOOPED_RECORDS = 256
_MAX_TOTAL_BYTES = 2**31 - 1
_MAX_TIME_MS = (2**63 - 1) // 1000
_VARINT_BYTES, _VARLONG_BYTES = 5, 10
_FEW_ROWS = 32


def decode(parts: Sequence[RecordPart]) -> RecordColumns:
    """Return the columns of records, as `RecordCodec` describes them."""
    joined = parts[0][0] if len(parts) == 1 else b"".join(data for data, _, _ in parts)
    data = np.frombuffer(joined, np.uint8)
    counts = np.array([count for _, count, _ in parts], np.int64)
    if not counts.sum():
        _check_empty(parts)
        empty = np.zeros(0, np.int64)
        none = (np.zeros(1, np.int32), None, b"")
        return empty, empty.astype(np.int32), none, none, None
    fields = _Fields(data, counts, *_bounds(joined, data, parts))
    fields.at += 1  # attributes: no bit has a meaning
    fields.check(fields.at <= fields.ends, RecordFault.ENDS_EARLY)
    delta_ms = fields.varints(_VARLONG_BYTES)
    offset_deltas = fields.varints(_VARINT_BYTES).astype(np.int32)
    key = fields.bytes()
    value = fields.bytes()
    header_counts = fields.varints(_VARINT_BYTES)
    has_sane_count = (header_counts >= 0) & (header_counts <= fields.ends - fields.at)
    fields.check(has_sane_count, RecordFault.HEADER_COUNT)
    headers = _headers(fields, header_counts)
    fields.check(fields.at == fields.ends, RecordFault.WRONG_SIZE)
    base_ms = np.repeat(np.array([base for _, _, base in parts], np.int64), counts)
    times_ms = base_ms + delta_ms  # wraps around, which the signs show
    wrapped = ((base_ms >= 0) == (delta_ms >= 0)) & ((times_ms >= 0) != (base_ms >= 0))
    in_range = (times_ms >= -_MAX_TIME_MS) & (times_ms <= _MAX_TIME_MS)
    fields.check(in_range & ~wrapped, RecordFault.TIME_RANGE)
    columns = (key.buffers(data), value.buffers(data))
    return times_ms * 1000, offset_deltas, *columns, headers


@dataclass(frozen=True, slots=True)
class _Slices:
    """Byte strings within the data: where they begin and end; a negative length is a null."""

    starts: np.ndarray
    lengths: np.ndarray

    def buffers(self, data: np.ndarray) -> BinaryBuffers:
        """Return the byte strings as the buffers of an Arrow array, with their bytes copied."""
        count = len(self.starts)
        sizes = np.maximum(self.lengths, 0)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if offsets[-1] > _MAX_TOTAL_BYTES:
            raise ValueError(RecordFault.TOO_LARGE, 0, 0)
        is_valid = self.lengths >= 0
        validity = None if is_valid.all() else np.packbits(is_valid, bitorder="little")
        return offsets.astype(np.int32), validity, _gathered(data, self.starts, sizes)


def _gathered(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> pa.Buffer | bytes:
    """Return the bytes of ascending slices, one after the other.

    Each slice and each gap before a slice becomes a row of an array over the data, of which `take`
    copies every second row. That is ten times as fast as an index of bytes.
    """
    if not sizes.any():
        return b""
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, starts + sizes, 0
    bounds[-1] = bounds[-2]
    rows = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    taken = rows.take(int_array(np.arange(0, len(bounds) - 1, 2), pa.int64()))
    return taken.buffers()[2]


class _Fields:
    """A position in each record, which moves on with each field that is read.

    Attributes:
        data: the records of all batches.
        at: the position in each record.
        ends: the end of each record.
    """

    def __init__(
        self, data: np.ndarray, counts: np.ndarray, starts: np.ndarray, ends: np.ndarray
    ) -> None:
        self.data = data
        self.at = starts
        self.ends = ends
        self._counts = counts

    def of_rows(self, rows: np.ndarray) -> _Fields:
        """Return the positions of some records alone; faults are told without the record."""
        return _Fields(self.data, self._counts, self.at[rows], self.ends[rows])

    def check(self, holds: np.ndarray, fault: RecordFault) -> None:
        """Raise the error of the first record for which `holds` is False."""
        if holds.all():
            return
        row = int(holds.argmin())
        part = int(np.searchsorted(np.cumsum(self._counts), row, side="right"))
        raise ValueError(fault, part, row - int(self._counts[:part].sum()))

    def varints(self, max_bytes: int) -> np.ndarray:
        """Return the next varint of each record, int64."""
        self.check(self.at < self.ends, RecordFault.ENDS_EARLY)
        first = self.data[self.at]
        self.at = self.at + 1
        bits = (first & 0x7F).astype(np.uint64)
        rows = np.flatnonzero(first >= 0x80)
        for shift in range(7, 7 * max_bytes, 7):
            if not len(rows):
                break
            at = self.at[rows]
            self._check_rows(rows, at < self.ends[rows], RecordFault.ENDS_EARLY)
            byte = self.data[at]
            bits[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[rows] += 1
            rows = rows[byte >= 0x80]
        if len(rows):
            self._check_rows(rows, np.zeros(len(rows), np.bool_), RecordFault.LONG_VARINT)
        if max_bytes == _VARINT_BYTES:
            bits &= np.uint64(0xFFFFFFFF)
        signs: np.ndarray = -(bits & np.uint64(1)).view(np.int64)
        values: np.ndarray = (bits >> np.uint64(1)).view(np.int64) ^ signs
        return values

    def bytes(self) -> _Slices:
        """Return the next length and byte string of each record."""
        lengths = self.varints(_VARINT_BYTES)
        starts = self.at
        self.check(lengths <= self.ends - starts, RecordFault.ENDS_EARLY)
        self.at = starts + np.maximum(lengths, 0)
        return _Slices(starts, lengths)

    def _check_rows(self, rows: np.ndarray, holds: np.ndarray, fault: RecordFault) -> None:
        if not holds.all():
            of_all = np.ones(len(self.at), np.bool_)
            of_all[rows] = holds
            self.check(of_all, fault)


def _headers(fields: _Fields, counts: np.ndarray) -> HeaderBuffers | None:
    """Read the headers of all records: the first of each, then the second, and so on."""
    total = int(counts.sum())
    if not total:
        return None
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    columns = [_Slices(np.empty(total, np.int64), np.empty(total, np.int64)) for _ in range(2)]
    number = 0
    rows = np.flatnonzero(counts)
    while len(rows) > _FEW_ROWS or (number < _FEW_ROWS and len(rows)):
        of_rows = fields.of_rows(rows)
        for column, is_name in zip(columns, (True, False), strict=True):
            read = of_rows.bytes()
            if is_name:
                of_rows.check(read.lengths >= 0, RecordFault.HEADER_NAME)
            column.starts[ends[rows] + number] = read.starts
            column.lengths[ends[rows] + number] = read.lengths
        fields.at[rows] = of_rows.at
        number += 1
        rows = rows[counts[rows] > number]
    for row in rows.tolist():  # a few records with many headers
        _headers_of_one(fields, row, int(ends[row]) + number, int(ends[row + 1]), columns)
    validity = None if counts.all() else np.packbits(counts > 0, bitorder="little")
    names, values = (column.buffers(fields.data) for column in columns)
    return ends.astype(np.int32), validity, names, values


def _headers_of_one(
    fields: _Fields, row: int, first: int, end: int, columns: Sequence[_Slices]
) -> None:
    record_end = int(fields.ends[row])
    data = fields.data[:record_end].tobytes()[int(fields.at[row]) :]
    base, at = record_end - len(data), 0
    for index in range(first, end):
        for column, is_name in zip(columns, (True, False), strict=True):
            length, at = _varint(data, at, len(data))
            fault = RecordFault.ENDS_EARLY if length > len(data) - at else None
            if is_name and length < 0:
                fault = RecordFault.HEADER_NAME
            if fault is not None:
                raise ValueError(fault, 0, row)
            column.starts[index], column.lengths[index] = base + at, length
            at += max(length, 0)
    fields.at[row] = base + at


def _bounds(
    joined: bytes | memoryview, data: np.ndarray, parts: Sequence[RecordPart]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions after each record's size, and at its end."""
    rows = sum(count for _, count, _ in parts)
    starts, ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
    position = row = 0
    for index, (part, count, _) in enumerate(parts):
        end, last = position + len(part), row + count
        while row < last:
            found = _equal_run(data, joined, position, end, last - row)
            if found is None:
                stop = min(last, row + _LOOPED_RECORDS)
                position = _loop(joined, position, end, starts[row:stop], ends[row:stop], index)
                row = stop
                continue
            count_of_run, prefix, stride = found
            first = position + prefix + stride * np.arange(count_of_run)
            starts[row : row + count_of_run] = first
            ends[row : row + count_of_run] = first + (stride - prefix)
            position += count_of_run * stride
            row += count_of_run
        if position != end:
            raise ValueError(RecordFault.LEFT_OVER, index, count)
    return starts, ends


def _equal_run(
    data: np.ndarray, joined: bytes | memoryview, position: int, end: int, most: int
) -> tuple[int, int, int] | None:
    """Return length, bytes of the size and stride of a run of records of equal size.

    None if the run is too short to be worth more than a loop.
    """
    size, after = _varint(joined, position, end)
    prefix, stride = after - position, after - position + size
    if size < 1 or after + size > end:
        return None
    most = min(most, (end - position) // stride)
    first = data[position:after]
    equal, step = 0, _MIN_RUN
    while equal < most:
        step = min(step, most - equal)
        begin = position + equal * stride
        rows = data[begin : begin + step * stride].reshape(step, stride)[:, :prefix]
        same = (rows == first).all(axis=1)
        if not same.all():
            equal += int(same.argmin())
            break
        equal += step
        step *= 4
    return (equal, prefix, stride) if equal >= min(_MIN_RUN, most) else None


def _loop(
    data: bytes | memoryview,
    position: int,
    end: int,
    starts: np.ndarray,
    ends: np.ndarray,
    part: int,
) -> int:
    """Write the bounds of records, one after the other; return the position behind the last."""
    found_starts, found_ends = [], []
    for index in range(len(starts)):
        try:
            byte = data[position]
            if byte < 0x80 and position < end:
                size, start = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, start = _varint(data, position, end)
        except IndexError:
            raise ValueError(RecordFault.ENDS_EARLY, part, index) from None
        position = start + size
        if size < 1 or position > end:
            raise ValueError(RecordFault.ENDS_EARLY, part, index)
        found_starts.append(start)
        found_ends.append(position)
    starts[:], ends[:] = found_starts, found_ends
    return position


def _varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the varint at a position, and the position behind it."""
    bits = shift = 0
    for position in range(at, min(end, at + _VARINT_BYTES)):
        byte = data[position]
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            bits &= 0xFFFFFFFF
            return (bits >> 1) ^ -(bits & 1), position + 1
    is_long = shift == 7 * _VARINT_BYTES
    raise ValueError(RecordFault.LONG_VARINT if is_long else RecordFault.ENDS_EARLY, 0, 0)


def _check_empty(parts: Sequence[RecordPart]) -> None:
    for index, (data, _, _) in enumerate(parts):
        if len(data):
            raise ValueError(RecordFault.LEFT_OVER, index, 0)
