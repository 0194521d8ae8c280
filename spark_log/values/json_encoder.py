r"""Columns as JSON values.

A value has the fields in the order of the schema. A whole number has its digits. Other numbers are
as Python's ``repr`` writes them: the fewest digits that mean the same number, with an exponent
below 1e-4 and from 1e16 on. A decimal is a number as Java's ``BigDecimal.toString`` writes it. A
date is ``2024-01-31``; a timestamp is in UTC as Java's ``Instant.toString`` writes it, with no,
three or six digits behind the second; both have years 0 to 9999. A text has ``\"  \\  \b  \f  \n
\r  \t``, and ``\u00xx`` for other control characters. The rest is a matter of style (`JsonStyle`).
"""

from __future__ import annotations

from dataclasses import dataclass
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import ints_of, offsets_of, text_array, text_scalar


@dataclass(frozen=True, slots=True)
class JsonStyle:
    r"""The manner in which a producer writes JSON.

    Attributes:
        spaced: whether a space follows each comma and colon, as from Python's ``json.dumps``.
        nulls: whether fields without a value are written as ``null``, not left out.
        ascii: whether characters beyond ASCII are written as ``\uXXXX``.
        integral: whether a DOUBLE that is a whole number has no ``.0``, as from JavaScript.
        millis: whether a timestamp has three digits behind the second also if they are zeros, as
            from Spark and JavaScript.
    """

    spaced: bool = False
    nulls: bool = False
    ascii: bool = False
    integral: bool = False
    millis: bool = False


def encode_json(schema: pa.Schema, columns: list[pa.Array], style: JsonStyle) -> pa.BinaryArray:
    """Return a value for each row.

    Args:
        schema: the columns' names and types.
        columns: an array for each field.
        style: the style.
    """
    return _Encoder(style).object_of(list(schema), columns).cast(pa.binary())


_DAY: Final = b'"0000-00-00"'
_TIME: Final = b'"0000-00-00T00:00:00.000000Z"'
_FRACTION: Final = _TIME.index(b".")

_SAMPLE_ROWS: Final = 4_096
_MOST_DIFFERENT: Final = 0.75
"""Part of the rows with different values from which on texts are made row by row, and not once for
each value."""

_LEAST_PLAIN: Final = 1e-4
_MOST_PLAIN: Final = 1e10
"""Numbers between these have no exponent, neither in Arrow's text nor in Python's."""

_LEAST_EXPONENT: Final = 1e16

_SPECIAL: Final = np.zeros(256, np.bool_)
_SPECIAL[: ord(" ")] = True
_SPECIAL[[ord('"'), ord("\\")]] = True

_SPECIAL_ASCII: Final = _SPECIAL.copy()
_SPECIAL_ASCII[0x7F:] = True


class _Encoder:
    def __init__(self, style: JsonStyle) -> None:
        self._style = style
        self._comma = ", " if style.spaced else ","
        self._colon = ": " if style.spaced else ":"
        self._escape = encode_basestring_ascii if style.ascii else encode_basestring
        self._special = _SPECIAL_ASCII if style.ascii else _SPECIAL

    def object_of(self, fields: list[pa.Field], columns: list[pa.Array]) -> pa.Array:
        """Return an object for each row."""
        parts: list[pa.Array | pa.Scalar] = [text_scalar("{")]
        # Without a first member in each row, the comma before the first one is cut off again.
        is_cut = not self._style.nulls and bool(columns[0].null_count)
        for at, (field, column) in enumerate(zip(fields, columns, strict=True)):
            comma = self._comma if at or is_cut else ""
            name = comma + self._escape(field.name) + self._colon
            distinct = _distinct(column)
            if distinct is not None:
                parts.append(self._member_of(name, *distinct))
                continue
            text = self.text(column)
            if not text.null_count:
                parts += [text_scalar(name), text]
                continue
            member = _joined(text_scalar(name), text)
            if self._style.nulls:
                member = member.fill_null(text_scalar(f"{name}null"))
            parts.append(member)
        if not is_cut:
            return _joined_known(*parts, text_scalar("}"))
        content = _joined_known(*parts[1:]).cast(pa.binary())
        content = pc.binary_replace_slice(content, 0, len(self._comma), b"{").cast(pa.string())
        return _joined(content, text_scalar("}"))

    def _member_of(self, name: str, values: pa.Array, rows: pa.Array) -> pa.Array:
        """Return name and text of the value of each row.

        Args:
            name: what precedes the value.
            values: the values, each once.
            rows: the number of each row's value; null for a null.
        """
        texts = _joined(text_scalar(name), self.text(values))
        if rows.null_count and self._style.nulls:
            texts = pa.concat_arrays([texts, text_array([f"{name}null"])])
            rows = rows.fill_null(len(values))
        return texts.take(rows)

    def text(self, array: pa.Array) -> pa.Array:
        """Return the JSON of each value of an array; null for a null."""
        kind = array.type
        if pa.types.is_string(kind):
            return self._quoted(array)
        if pa.types.is_floating(kind):
            text = self._float(array)
        elif pa.types.is_timestamp(kind):
            text = _timestamp(array, millis=self._style.millis)
        elif pa.types.is_date(kind):
            text = _texts(_day_digits(ints_of(array, np.int32).astype("M8[D]"), _DAY))
        elif pa.types.is_struct(kind):
            text = self.object_of(list(kind), array.flatten())
        elif pa.types.is_map(kind) or pa.types.is_list(kind):
            text = self._repeated(array)
        else:
            return array.cast(pa.string())
        return _with_nulls_of(array, text)

    def _quoted(self, array: pa.Array) -> pa.Array:
        quote = text_scalar('"')
        quoted = _joined(quote, array, quote)
        data = array.buffers()[2]
        if data is None or not len(array):
            return quoted
        offsets = offsets_of(array)
        first, last = int(offsets[0]), int(offsets[-1])
        special = np.flatnonzero(self._special[np.frombuffer(data, np.uint8)[first:last]])
        if not len(special):
            return quoted
        rows = np.unique(np.searchsorted(offsets, special + first, side="right") - 1)
        escaped = [
            None if text is None else self._escape(text)
            for text in array.take(pa.array(rows)).to_pylist()
        ]
        order = np.arange(len(array))
        order[rows] = len(array) + np.arange(len(rows))
        return pa.concat_arrays([quoted, pa.array(escaped, pa.string())]).take(pa.array(order))

    def _float(self, array: pa.Array) -> pa.Array:
        texts = array.cast(pa.string())
        if not self._style.integral:
            is_whole = pc.less(pc.find_substring(texts, "."), pa.scalar(0))
            texts = pc.if_else(is_whole, _joined(texts, text_scalar(".0")), texts)
        width = array.type.bit_width // 8
        numbers = np.abs(ints_of(array, f"<f{width}"))
        rows = np.flatnonzero(((numbers < _LEAST_PLAIN) & (numbers > 0)) | ~(numbers < _MOST_PLAIN))
        if not len(rows):
            return texts
        extremes = [_number_text(each) for each in ints_of(array, f"<f{width}")[rows]]
        if self._style.integral:
            extremes = [each.removesuffix(".0") for each in extremes]
        order = np.arange(len(array))
        order[rows] = len(array) + np.arange(len(rows))
        return pa.concat_arrays([texts, text_array(extremes)]).take(pa.array(order))

    def _repeated(self, array: pa.Array) -> pa.Array:
        is_map = pa.types.is_map(array.type)
        offsets = offsets_of(array)
        first, last = int(offsets[0]), int(offsets[-1])
        items = array.items if is_map else array.values
        texts = self.text(items.slice(first, last - first)).fill_null(text_scalar("null"))
        if is_map:
            keys = self._quoted(array.keys.slice(first, last - first))
            texts = _joined(keys, text_scalar(self._colon), texts)
        lists = pa.ListArray.from_arrays(pa.array(offsets - first, pa.int32()), texts)
        begin, end = "{}" if is_map else "[]"
        joined = _joined(
            text_scalar(begin), pc.binary_join(lists, text_scalar(self._comma)), text_scalar(end)
        )
        return _with_nulls_of(array, joined)


def _distinct(array: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Return the values of an array, each once, and the number of each row's value.

    None if most rows have values of their own, or the type has parts.
    """
    kind = array.type
    if pa.types.is_nested(kind):
        return None
    if pa.types.is_floating(kind):  # by their bits, since 0.0 and -0.0 have different texts
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    sample = array.slice(0, _SAMPLE_ROWS).dictionary_encode()
    if len(sample.dictionary) > _MOST_DIFFERENT * len(sample):
        return None
    found = sample if len(sample) == len(array) else array.dictionary_encode()
    return found.dictionary.view(kind), found.indices


def _number_text(number: np.floating) -> str:
    """Return the shortest text of a number, as Python's ``repr`` has it for 64 bits."""
    if _LEAST_PLAIN <= abs(number) < _LEAST_EXPONENT:
        return np.format_float_positional(number, trim="0")
    return np.format_float_scientific(number, trim="-", exp_digits=2)


def _timestamp(array: pa.Array, *, millis: bool) -> pa.Array:
    times = ints_of(array, np.int64).astype("M8[us]")
    digits = _day_digits(times, _TIME)
    seconds = times.astype("M8[s]")
    within = (seconds - times.astype("M8[D]")).astype(np.int64)
    _put(digits, 12, within // 3600, 2)
    _put(digits, 15, within // 60 % 60, 2)
    _put(digits, 18, within % 60, 2)
    micros = (times - seconds).astype(np.int64)
    if not micros.any() and not millis:
        return _texts(np.delete(digits, np.s_[_FRACTION : _FRACTION + 7], 1))
    _put(digits, _FRACTION + 1, micros, 6)
    taken = np.ones(digits.shape, np.bool_)
    taken[micros % 1000 == 0, _FRACTION + 4 : _FRACTION + 7] = False
    if not millis:
        taken[micros == 0, _FRACTION : _FRACTION + 7] = False
    return _texts(digits, taken)


def _day_digits(times: np.ndarray, template: bytes) -> np.ndarray:
    """Return a matrix with a row for each time: a template with year, month and day."""
    digits = np.tile(np.frombuffer(template, np.uint8), (len(times), 1))
    months = times.astype("M8[M]")
    month = months.astype(np.int64)
    _put(digits, 1, month // 12 + 1970, 4)
    _put(digits, 6, month % 12 + 1, 2)
    _put(digits, 9, (times.astype("M8[D]") - months.astype("M8[D]")).astype(np.int64) + 1, 2)
    return digits


def _put(digits: np.ndarray, at: int, numbers: np.ndarray, width: int) -> None:
    """Write decimal digits into columns of a matrix."""
    for place in range(width):
        digits[:, at + width - 1 - place] = ord("0") + numbers // 10**place % 10


def _texts(rows: np.ndarray, taken: np.ndarray | None = None) -> pa.Array:
    """Return the characters of each row of a matrix, or those that are taken, as strings."""
    lengths = np.full(len(rows), rows.shape[1]) if taken is None else taken.sum(axis=1)
    data = np.ascontiguousarray(rows) if taken is None else rows[taken]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


def _with_nulls_of(array: pa.Array, encoded: pa.Array) -> pa.Array:
    if not array.null_count:
        return encoded
    return pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.string()))


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return parts joined row by row; null where one of them is."""
    return pc.binary_join_element_wise(*parts, text_scalar(""))


def _joined_known(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return parts joined row by row, without those that are null.

    The option ``skip`` of Arrow's function leaves out rows in which all parts are null.
    """
    return pc.binary_join_element_wise(
        *parts, text_scalar(""), null_handling="replace", null_replacement=""
    )
