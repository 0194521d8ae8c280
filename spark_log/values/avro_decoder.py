"""Values in Avro's binary encoding as Arrow columns: each field of all values at once, with numpy.

A cursor stands in each value. Decoding a field moves all cursors behind it. Arrays and maps are
decoded by item: the first items of all values, then the second ones, and so on. If few values have
more items, these are read one by one (`AvroReader`). Numbers of a fixed width are decoded at once.
So a batch costs some calls of numpy for each field, and plain Python for a byte at the worst.

A value may have a frame with the id of a schema (`avro_framing`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import binary_array, bool_array, bools_of, ints_of, offsets_of
from spark_log.values.avro_framing import FRAME_BYTES, FRAME_PREFIX
from spark_log.values.avro_reader import (
    LONG_DECIMAL,
    MANY_DIGITS,
    NO_BOOLEAN,
    NO_BRANCH,
    NO_SYMBOL,
    NO_TIMESTAMP,
    NO_UTF8,
    TOO_MANY_ITEMS,
    TOO_SHORT,
    TOO_WIDE,
    WRONG_LENGTH,
    WRONG_SIZE,
    AvroReader,
)
from spark_log.values.avro_schema import (
    AvroEnum,
    AvroFixed,
    AvroNullable,
    AvroPrimitive,
    AvroRecord,
    AvroRepeated,
    AvroType,
)
from spark_log.values.json_decoder import Decoded

_PADDING: Final = 16
"""Zero bytes behind the last value, so that reads beyond its end need no check of their own."""

FEW_VALUES: Final = 32
"""Values of which the items of arrays are not decoded together: calls of numpy take longer."""

_MAX_VARINT_BYTES: Final = 10
_DECIMAL_BYTES: Final = 16

Rows = np.ndarray
"""Indexes of values, ascending."""


class AvroDecoder:
    """Decodes values of one schema."""

    def __init__(self, record: AvroRecord) -> None:
        """Keep the schema.

        Args:
            record: the type of the values.
        """
        self._record = record

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls; no value raises an error.

        Args:
            values: the values.
        """
        plain = self._decode(values, 0)
        if not plain.errors:
            return plain
        errors = plain.errors
        rows = np.fromiter(errors, np.int64, len(errors))
        again = values if len(rows) == len(values) else values.take(pa.array(rows))
        is_framed = bools_of(pc.starts_with(again, FRAME_PREFIX))
        is_framed &= ints_of(pc.binary_length(again), np.int32) >= FRAME_BYTES
        if is_framed.all():
            framed = self._decode(again, FRAME_BYTES)
            if len(rows) == len(values) and not framed.errors:
                return framed
        else:
            rows = rows[is_framed]
            framed = self._decode(again.filter(bool_array(is_framed)), FRAME_BYTES)
        for at, row in enumerate(rows.tolist()):
            if at in framed.errors:
                errors[row] += f"; behind a schema id: {framed.errors[at]}"
            else:
                del errors[row]
        source = np.arange(len(values))
        source[rows] = len(values) + np.arange(len(rows))
        is_bad = np.zeros(len(values), np.bool_)
        is_bad[list(errors)] = True
        order = pa.array(source, mask=is_bad)
        columns = [
            pa.concat_arrays(pair).take(order)
            for pair in zip(plain.columns, framed.columns, strict=True)
        ]
        return Decoded(columns, errors)

    def _decode(self, values: pa.BinaryArray, skipped_bytes: int) -> Decoded:
        """Decode what follows some bytes of each value; rows with errors have any content."""
        cursors = _Cursors(values, skipped_bytes)
        rows = np.arange(len(values))
        columns = []
        for name, kind in self._record.fields:
            cursors.field = name
            # Most values of another format, or with framing, fail soon.
            if len(rows) and not cursors.any_alive():
                columns.append(pa.nulls(len(values), kind.arrow))
            else:
                columns.append(_decode(cursors, kind, rows))
        cursors.field = ""
        left = cursors.ends - cursors.positions
        cursors.fail(rows, left > 0, "bytes are left behind the last field")
        return Decoded(columns, cursors.errors())


class _Cursors:
    """Positions in values.

    Attributes:
        data: the bytes of all values.
        positions: the position of each value's next byte; of a value that failed, its start.
        ends: the position behind each value.
        field: the name of the field that is decoded, for messages.
    """

    def __init__(self, values: pa.BinaryArray, skipped_bytes: int) -> None:
        offsets = offsets_of(values)
        first, last = int(offsets[0]), int(offsets[-1])
        self.data = np.zeros(last - first + _PADDING, np.uint8)
        content = values.buffers()[2]
        if content is not None:
            self.data[: last - first] = np.frombuffer(content, np.uint8)[first:last]
        self.field = ""
        bounds = offsets.astype(np.int64) - first
        self._starts = bounds[:-1]
        self.positions = bounds[:-1] + skipped_bytes
        self.ends = bounds[1:].copy()
        self._failures = np.zeros(len(values), np.int32)
        self._problems = [""]

    def fail(self, rows: Rows, is_bad: np.ndarray, problem: str) -> None:
        """Note that some values do not decode; the first problem of each counts.

        Args:
            rows: the values that were looked at.
            is_bad: whether each of them has the problem.
            problem: the problem.
        """
        if not is_bad.any():
            return
        bad = rows[is_bad]
        self._problems.append(f"{self.field}: {problem}" if self.field else problem)
        fresh = bad[self._failures[bad] == 0]
        self._failures[fresh] = len(self._problems) - 1
        self.positions[bad] = self.ends[bad] = self._starts[bad]

    def alive(self, rows: Rows) -> np.ndarray:
        """Return whether values have not failed."""
        alive: np.ndarray = self._failures[rows] == 0
        return alive

    def any_alive(self) -> bool:
        """Return whether any value has not failed."""
        return not self._failures.all()

    def errors(self) -> dict[int, str]:
        """Return the values that failed, with their problems."""
        bad = np.flatnonzero(self._failures)
        return {row: self._problems[self._failures[row]] for row in bad.tolist()}

    def varints(self, rows: Rows) -> np.ndarray:
        """Read a zig-zag number of each value; return int64."""
        data = self.data
        at = self.positions[rows]
        byte = data[at].astype(np.uint64)
        at += 1
        numbers = byte & np.uint64(0x7F)
        open_ = np.flatnonzero(byte >= 0x80)
        for place in range(1, _MAX_VARINT_BYTES):
            if not len(open_):
                break
            byte = data[np.minimum(at[open_], len(data) - 1)].astype(np.uint64)
            at[open_] += 1
            numbers[open_] |= (byte & np.uint64(0x7F)) << np.uint64(7 * place)
            if place == _MAX_VARINT_BYTES - 1:
                self.fail(rows[open_], byte > 1, TOO_WIDE.format(64))
            open_ = open_[byte >= 0x80]
        self._move(rows, at)
        signs = -(numbers & np.uint64(1)).view(np.int64)
        signed: np.ndarray = (numbers >> np.uint64(1)).view(np.int64) ^ signs
        return signed

    def fixed(self, rows: Rows, size: int) -> np.ndarray:
        """Read a number of bytes of each value; return them as a matrix of a row for each value."""
        at = self.positions[rows]
        self._move(rows, at + size)
        at = self.positions[rows] - size  # a value that failed has other bytes
        indexes = np.clip(at, 0, len(self.data) - size)[:, None] + np.arange(size)
        found: np.ndarray = self.data[indexes]
        return found

    def lengths(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Read the lengths of bytes that follow, and move behind these; return starts and ends."""
        length = self.varints(rows)
        at = self.positions[rows]
        is_bad = (length < 0) | (length > self.ends[rows] - at)
        self.fail(rows, is_bad, WRONG_LENGTH)
        starts = self.positions[rows]
        ends = np.where(self.alive(rows), at + length, starts)
        self.positions[rows] = ends
        return starts, ends

    def _move(self, rows: Rows, positions: np.ndarray) -> None:
        self.positions[rows] = positions
        self.fail(rows, positions > self.ends[rows], TOO_SHORT)


def _decode(cursors: _Cursors, kind: AvroType, rows: Rows) -> pa.Array:
    """Decode a value of a type at each cursor of some values."""
    match kind:
        case AvroPrimitive():
            return _decode_primitive(cursors, kind, rows)
        case AvroNullable():
            return _decode_nullable(cursors, kind, rows)
        case AvroRecord():
            children = [_decode(cursors, each, rows) for _, each in kind.fields]
            return pa.Array.from_buffers(kind.arrow, len(rows), [None], children=children)
        case AvroRepeated():
            return _decode_repeated(cursors, kind, rows)
        case AvroEnum():
            index = cursors.varints(rows)
            is_bad = (index < 0) | (index >= len(kind.symbols))
            cursors.fail(rows, is_bad, NO_SYMBOL.format(len(kind.symbols)))
            symbols = pa.array(kind.symbols, pa.string())
            return symbols.take(pa.array(index, mask=is_bad | ~cursors.alive(rows)))
        case AvroFixed():
            return _decode_fixed(cursors, kind, rows)
    raise TypeError(kind)


def _decode_primitive(cursors: _Cursors, kind: AvroPrimitive, rows: Rows) -> pa.Array:
    if kind.name in ("int", "long"):
        numbers = cursors.varints(rows)
        if kind.name == "int":
            is_bad = numbers != numbers.astype(np.int32)
            cursors.fail(rows, is_bad, TOO_WIDE.format(32))
            return _from_numpy(numbers.astype(np.int32), kind.arrow)
        if kind.unit_us > 1:
            limit = (1 << 63) // kind.unit_us - 1
            is_bad = (numbers > limit) | (numbers < -limit)
            cursors.fail(rows, is_bad, NO_TIMESTAMP)
            numbers = np.where(is_bad, 0, numbers) * kind.unit_us
        return _from_numpy(numbers, kind.arrow)
    if kind.name in ("float", "double"):
        dtype = np.dtype("<f4" if kind.name == "float" else "<f8")
        return _from_numpy(cursors.fixed(rows, dtype.itemsize).view(dtype)[:, 0], kind.arrow)
    if kind.name == "boolean":
        byte = cursors.fixed(rows, 1)[:, 0]
        cursors.fail(rows, byte > 1, NO_BOOLEAN)
        return bool_array(byte == 1)
    binary = _take_bytes(cursors, *cursors.lengths(rows))
    return binary if kind.name == "bytes" else _as_text(cursors, binary, rows)


def _take_bytes(cursors: _Cursors, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Return parts of the data. They are in order, so with the gaps they are an array, too."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cursors.data)]
    array = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return array.take(pa.array(np.arange(0, 2 * count, 2)))


def _as_text(cursors: _Cursors, binary: pa.Array, rows: Rows) -> pa.Array:
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    is_bad = np.zeros(len(rows), np.bool_)
    for at, value in enumerate(binary):
        try:
            value.as_py().decode()
        except UnicodeDecodeError:
            is_bad[at] = True
    cursors.fail(rows, is_bad, NO_UTF8)
    # Not null: a map whose keys are null cannot be made.
    return pc.if_else(bool_array(is_bad), binary_array([b""])[0], binary).cast(pa.string())


def _decode_nullable(cursors: _Cursors, kind: AvroNullable, rows: Rows) -> pa.Array:
    branch = cursors.varints(rows)
    branches = 1 if kind.null_index is None else 2
    is_bad = (branch < 0) | (branch >= branches)
    cursors.fail(rows, is_bad, NO_BRANCH.format(branches))
    is_null = is_bad | (branch == kind.null_index if branches == 2 else False)
    if not is_null.any():
        return _decode(cursors, kind.inner, rows)
    inner = _decode(cursors, kind.inner, rows[~is_null])
    return inner.take(pa.array(np.cumsum(~is_null) - 1, mask=is_null))


def _decode_repeated(cursors: _Cursors, kind: AvroRepeated, rows: Rows) -> pa.Array:
    pieces: list[pa.Array] = []
    owners: list[np.ndarray] = []
    waiting = np.arange(len(rows))
    while len(waiting):
        counts = cursors.varints(rows[waiting])
        has_size = counts < 0
        if has_size.any():
            sized = rows[waiting[has_size]]
            sizes = cursors.varints(sized)
            counts = np.abs(counts)
            is_bad = (sizes < counts[has_size]) | (
                sizes > (cursors.ends - cursors.positions)[sized]
            )
            cursors.fail(sized, is_bad, WRONG_SIZE)
        left = (cursors.ends - cursors.positions)[rows[waiting]]
        is_bad = (counts < 0) | (counts > left)
        cursors.fail(rows[waiting], is_bad, TOO_MANY_ITEMS)
        going = cursors.alive(rows[waiting]) & (counts > 0)
        waiting, counts = waiting[going], counts[going]
        active = waiting
        width = _width(kind.item)
        if width and len(active):
            pieces.append(_decode_run(cursors, kind.item, rows[active], counts, width))
            owners.append(np.repeat(active, counts))
        else:
            while len(active) > FEW_VALUES:
                pieces.append(_decode(cursors, kind.item, rows[active]))
                owners.append(active)
                counts = counts - 1
                going = (counts > 0) & cursors.alive(rows[active])
                active, counts = active[going], counts[going]
            for at, count in zip(active.tolist(), counts.tolist(), strict=True):
                pieces.append(_decode_alone(cursors, kind.item, int(rows[at]), count))
                owners.append(np.full(len(pieces[-1]), at))
        waiting = waiting[cursors.alive(rows[waiting])]
    owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
    items = pa.concat_arrays(pieces) if pieces else pa.nulls(0, kind.item.arrow)
    if len(pieces) > 1:
        items = items.take(pa.array(np.argsort(owner, kind="stable")))
    lengths = np.bincount(owner, minlength=len(rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(
        kind.arrow, len(rows), [None, pa.py_buffer(offsets)], children=[items]
    )


def _decode_alone(cursors: _Cursors, kind: AvroType, row: int, count: int) -> pa.Array:
    """Decode consecutive items of one value."""
    start, end = int(cursors.positions[row]), int(cursors.ends[row])
    reader = AvroReader(cursors.data[start:end].tobytes())
    items = []
    try:
        for _ in range(count):
            items.append(reader.read(kind))
        cursors.positions[row] = start + reader.position
    except ValueError as error:
        cursors.fail(np.array([row]), np.array([True]), str(error))
    return pa.array(items, kind.arrow)


def _width(kind: AvroType) -> int:
    """Return the size of the values of a number type of a fixed width; 0 for other types."""
    return {"float": 4, "double": 8}.get(kind.name, 0) if isinstance(kind, AvroPrimitive) else 0


def _decode_run(
    cursors: _Cursors, kind: AvroType, rows: Rows, counts: np.ndarray, width: int
) -> pa.Array:
    """Decode consecutive numbers of a fixed width, some of each value."""
    starts = cursors.positions[rows]
    is_bad = counts * width > cursors.ends[rows] - starts
    cursors.fail(rows, is_bad, TOO_SHORT)
    cursors.positions[rows] = np.where(is_bad, cursors.positions[rows], starts + counts * width)
    first = np.cumsum(counts) - counts
    at = np.repeat(starts - first * width, counts) + np.arange(counts.sum()) * width
    at = np.minimum(at, len(cursors.data) - width)
    packed = cursors.data[at[:, None] + np.arange(width)]
    return _from_numpy(packed.view(f"<f{width}")[:, 0], kind.arrow)


def _decode_fixed(cursors: _Cursors, kind: AvroFixed, rows: Rows) -> pa.Array:
    if not pa.types.is_decimal(kind.arrow):
        assert kind.size is not None
        packed = np.ascontiguousarray(cursors.fixed(rows, kind.size))
        return pa.Array.from_buffers(kind.arrow, len(rows), [None, pa.py_buffer(packed)])
    if kind.size is None:
        starts, ends = cursors.lengths(rows)
        cursors.fail(rows, ends - starts > _DECIMAL_BYTES, LONG_DECIMAL)
        ends = np.minimum(ends, starts + _DECIMAL_BYTES)
    else:
        cursors.fixed(rows, kind.size)
        ends = cursors.positions[rows]
        starts = np.where(cursors.alive(rows), ends - kind.size, ends)
    # Least significant byte first, as Arrow stores it; the sign fills the other bytes.
    at = ends[:, None] - 1 - np.arange(_DECIMAL_BYTES)
    digits = cursors.data[np.maximum(at, 0)]
    is_negative = (ends > starts) & (
        cursors.data[np.minimum(starts, len(cursors.data) - 1)] >= 0x80
    )
    sign = np.where(is_negative, 255, 0).astype(np.uint8)
    digits = np.where(at >= starts[:, None], digits, sign[:, None])
    widest = pa.decimal128(38, kind.arrow.scale)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(digits))]
    numbers = pa.Array.from_buffers(widest, len(rows), buffers)
    limit = int("9" * kind.arrow.precision)
    high = digits[:, 8:].copy().view("<i8")[:, 0]
    low = digits[:, :8].copy().view("<u8")[:, 0]
    is_bad = _is_above(high, low, limit) | _is_below(high, low, -limit)
    cursors.fail(rows, is_bad, MANY_DIGITS.format(kind.arrow.precision))
    kept = numbers.take(pa.array(np.arange(len(rows)), mask=is_bad))
    return pa.Array.from_buffers(kind.arrow, len(rows), kept.buffers(), offset=kept.offset)


def _is_above(high: np.ndarray, low: np.ndarray, limit: int) -> np.ndarray:
    top, bottom = limit >> 64, np.uint64(limit & (1 << 64) - 1)
    is_above: np.ndarray = (high > top) | ((high == top) & (low > bottom))
    return is_above


def _is_below(high: np.ndarray, low: np.ndarray, limit: int) -> np.ndarray:
    top, bottom = limit >> 64, np.uint64(limit & (1 << 64) - 1)
    is_below: np.ndarray = (high < top) | ((high == top) & (low < bottom))
    return is_below


def _from_numpy(numbers: np.ndarray, kind: pa.DataType) -> pa.Array:
    packed = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(kind, len(numbers), [None, packed])
