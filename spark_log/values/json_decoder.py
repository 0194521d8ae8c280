"""JSON values as Arrow columns, by pyarrow's reader, which parses a whole batch at once.

A value must be one object in UTF-8. Fields that the schema does not name are ignored. A value does
not decode if one of its columns occurs twice, has another type, or does not fit its type: a whole
number has no point and no exponent, and numbers are not written as text.

One value that does not decode makes the reader refuse all of them. Then the values are divided: at
the row that the reader names, otherwise in the middle, until it accepts the parts. If it refuses
more than one call for 8 values, the values that are left are checked one by one with Python's
``json``, and only those without a problem are given to the reader again. So n values cost at most
n / 8 refused calls and one check of each. Only a value that passes the check and not the reader (a
decimal, a date or a time that does not fit, a number beyond a DOUBLE) costs log2(n) more calls.

The reader has no maps. In a schema with maps, every value goes through Python's ``json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.record import bools_of, offsets_of

_PART_ROWS: Final = 65_536
"""Rows in one call; the reader takes at most 100,000 in one block."""

_OBJECT: Final = r"(?s)^[ \t\r\n]*\{.*\}[ \t\r\n]*$"
"""A value that begins and ends like an object. If the reader accepts such values, joined by
newlines, and returns as many rows as there are values, then each is one object: a value that ended
inside of a string would have a newline there, and ``{`` cannot follow ``}`` inside of an object or
array, so each value begins a row."""

_ROW: Final = re.compile(r" in row (\d+)$")

_CALL_ROWS: Final = 8
"""Values that are checked one by one in the time of a refused call, about."""

_FIRST_ROWS: Final = 256
"""Values at the beginning of a part of which all may be refused before the others are checked."""


class Decoded(NamedTuple):
    """Rows that were decoded.

    Attributes:
        columns: an array for each column, null in rows that did not decode.
        errors: the row → why it did not decode.
    """

    columns: list[pa.Array]
    errors: dict[int, str]


class JsonDecoder:
    """Decodes values of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        """Prepare the reader's schema.

        Args:
            schema: the columns to return.
        """
        self._schema = schema
        self._stored = pa.schema([(field.name, _stored_type(field.type)) for field in schema])
        self._has_maps = any(_has_map(field.type) for field in schema)
        self._floats = any(_has_float(field.type) for field in schema)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values without nulls; no value raises an error.

        Args:
            values: the values.
        """
        errors = _not_objects(values)
        good = np.delete(np.arange(len(values)), sorted(errors))
        texts = values.take(pa.array(good)) if errors else values
        if self._has_maps:
            texts, good = self._checked(texts, good, errors)
        tables = [self._schema.empty_table()]
        for first in range(0, len(texts), _PART_ROWS):
            part = texts.slice(first, _PART_ROWS)
            tables += self._decode_part(
                part, good[first : first + len(part)], errors, are_checked=self._has_maps
            )
        return Decoded(_expanded(pa.concat_tables(tables), len(values), errors), errors)

    def _decode_part(
        self, texts: pa.BinaryArray, rows: np.ndarray, errors: dict[int, str], *, are_checked: bool
    ) -> Iterator[pa.Table]:
        """Yield the rows that decode, in order; add errors for the others.

        Args:
            texts: the values.
            rows: their rows.
            errors: the row → why it does not decode.
            are_checked: whether `_checked` has seen the values.
        """
        offsets = pa.array([0, len(texts)], pa.int32())
        joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), b"\n")[0].as_buffer()
        starts = offsets_of(texts).astype(np.int64)
        starts = (starts - starts[0] + np.arange(len(starts))).tolist()
        parts = [(0, len(texts))] if len(texts) else []
        refused = 0
        while parts:
            first, end = parts.pop()
            if refused * _CALL_ROWS > first + _FIRST_ROWS and not are_checked:
                checked = self._checked(texts.slice(first), rows[first:], errors)
                yield from self._decode_part(*checked, errors, are_checked=True)
                return
            text = joined.slice(starts[first], starts[end] - 1 - starts[first])
            try:
                yield self._read(text, end - first)
            except (pa.ArrowException, ValueError) as error:
                refused += 1
                if end - first > 1:
                    parts += _divided(first, end, error)[::-1]
                    continue
                problem = self._problem(texts[first].as_py())
                errors[int(rows[first])] = problem or _reason(error)

    def _read(self, text: pa.Buffer, count: int) -> pa.Table:
        """Decode some values, separated by newlines.

        Args:
            text: the values.
            count: number of values.

        Raises:
            pa.ArrowException, ValueError: one or more do not decode.
        """
        from pyarrow import json as arrow_json  # late: few topics have typed columns

        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._stored, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != count:
            raise ValueError("it is more than one JSON value")
        columns = [
            _as_type(_one_array(column), field.type)
            for column, field in zip(table.columns, self._schema, strict=True)
        ]
        if self._floats and not all(map(_is_finite, columns)):
            raise ValueError(
                "it has a number that JSON does not have, or that its column cannot hold"
            )
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _checked(
        self, texts: pa.BinaryArray, rows: np.ndarray, errors: dict[int, str]
    ) -> tuple[pa.BinaryArray, np.ndarray]:
        """Return the values without those that `_problem` refuses, value by value.

        In a schema with maps each map becomes an array of pairs, which the reader knows.
        """
        kept: list[bytes] = []
        kept_rows: list[int] = []
        for row, text in zip(rows.tolist(), texts.to_pylist(), strict=True):
            try:
                rewritten = self._rewritten(text)
            except ValueError as error:
                errors[row] = str(error)
            else:
                kept.append(rewritten if self._has_maps else text)
                kept_rows.append(row)
        return pa.array(kept, pa.binary()), np.array(kept_rows, np.int64)

    def _problem(self, text: bytes) -> str | None:
        """Return why a value does not decode, with the name of the column; None if not known."""
        try:
            self._rewritten(text)
        except ValueError as error:
            return str(error)
        return None

    def _rewritten(self, text: bytes) -> bytes:
        """Return the JSON of the schema's fields, in which each map is an array of pairs.

        Raises:
            ValueError: the reader refuses the value, too, or it has a map with a key twice.
        """
        if not self._has_maps and (b"NaN" in text or b"Inf" in text):
            return text  # the reader accepts more of these than Python does
        try:
            value = _LOADS(text.decode())
        except RecursionError:
            if self._has_maps:
                raise ValueError("it is nested too deep") from None
            return text
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
        return _object_text(value, self._schema, "").encode()


def _not_objects(values: pa.BinaryArray) -> dict[int, str]:
    """Return the rows that must not be given to the reader, and why.

    The reader crashes on a batch that begins with ``null``, and takes a zero byte as the end.
    """
    errors: dict[int, str] = {}
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(values):
            try:
                value.as_py().decode()
            except UnicodeDecodeError as error:
                errors[row] = f"it is not UTF-8: {error.reason} at byte {error.start}"
        texts = pa.array(
            ["{}" if row in errors else value.as_py() for row, value in enumerate(values)],
            pa.binary(),
        ).cast(pa.string())
    if _has_nul(values):
        for row in np.flatnonzero(bools_of(pc.match_substring(texts, "\0"))).tolist():
            errors.setdefault(row, "it has a zero byte")
    others = np.flatnonzero(~_has_braces(values))
    is_object = bools_of(pc.match_substring_regex(texts.take(pa.array(others)), _OBJECT))
    for row in others[~is_object].tolist():
        errors.setdefault(
            row, "it is not a JSON object" if len(values[row].as_py()) else "it is empty"
        )
    return errors


def _has_nul(values: pa.BinaryArray) -> bool:
    offsets, data = _content(values)
    content = data[offsets[0] : offsets[-1]]
    return bool(len(content)) and not content.min()


def _has_braces(values: pa.BinaryArray) -> np.ndarray:
    """Return whether each value begins with ``{`` and ends with ``}``, without spaces around."""
    offsets, data = _content(values)
    if not len(data):
        return np.zeros(len(values), np.bool_)
    first, last = offsets[:-1], offsets[1:] - 1
    is_long = last > first
    first = np.where(is_long, first, 0)
    braces = (data[first] == ord("{")) & (data[np.where(is_long, last, 0)] == ord("}"))
    return np.asarray(is_long & braces)


def _content(values: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of values in their data, and the data."""
    data = values.buffers()[2]
    return offsets_of(values), np.empty(0, np.uint8) if data is None else np.frombuffer(
        data, np.uint8
    )


def _divided(start: int, end: int, error: Exception) -> list[tuple[int, int]]:
    """Return the parts of rows that did not decode together."""
    found = _ROW.search(str(error))
    bad = start + int(found[1]) if found else start
    if not found or not start <= bad < end:
        middle = (start + end) // 2
        return [(start, middle), (middle, end)]
    parts = [(start, bad), (bad, bad + 1), (bad + 1, end)]
    return [part for part in parts if part[0] < part[1]]


def _reason(error: Exception) -> str:
    return _ROW.sub("", str(error)).removeprefix("JSON parse error: ").rstrip(".")


def _expanded(table: pa.Table, count: int, errors: dict[int, str]) -> list[pa.Array]:
    """Return the columns of a table, with null rows where there are errors."""
    if not errors:
        return [_one_array(column) for column in table.columns]
    decoded = np.ones(count, np.bool_)
    decoded[list(errors)] = False
    rows = pa.array(np.cumsum(decoded) - 1, pa.int64(), mask=~decoded)
    return [_one_array(column).take(rows) for column in table.columns]


# --- types that the reader does not have ---------------------------------------------------------


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which the reader reads a column."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        pair = [("key", _stored_type(kind.key_type)), ("value", _stored_type(kind.item_type))]
        return pa.list_(pa.struct(pair))
    return pa.list_(_stored_type(kind.value_type)) if pa.types.is_list(kind) else kind


def _as_type(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what the reader read as the column's type.

    Raises:
        pa.ArrowInvalid: a date is wrong.
    """
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        fields = [_as_type(array.field(at), each.type) for at, each in enumerate(kind)]
        if not fields:
            return array
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        pairs = array.flatten()
        children = [
            _as_type(pairs.field(0), kind.key_type),
            _as_type(pairs.field(1), kind.item_type),
        ]
        entries = pa.StructArray.from_arrays(children, fields=[kind.key_field, kind.item_field])
    elif pa.types.is_list(kind):
        entries = _as_type(array.flatten(), kind.value_type)
    else:
        return array.cast(kind)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    validity = (
        None
        if not array.null_count
        else pa.py_buffer(np.packbits(bools_of(array.is_valid()), bitorder="little"))
    )
    return pa.Array.from_buffers(
        kind, len(array), [validity, pa.py_buffer(offsets)], children=[entries]
    )


def _is_finite(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(array)).as_py() in (True, None))
    if pa.types.is_struct(kind):
        return all(map(_is_finite, array.flatten()))
    if pa.types.is_map(kind):
        return _is_finite(array.items)
    return not pa.types.is_list(kind) or _is_finite(array.flatten())


def _has_float(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(map(_has_float, _children(kind)))


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(map(_has_map, _children(kind)))


def _children(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(at).type for at in range(kind.num_fields)]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --- maps ----------------------------------------------------------------------------------------


class _Number(str):
    """A number as its text, which keeps all digits."""


class _Object(list[tuple[str, Any]]):
    """The pairs of an object, in their order."""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it has {name}, which is no number of JSON")


_LOADS: Final = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_float=_Number,
    parse_int=_Number,
    parse_constant=_no_number,
).decode

_INTEGER: Final = re.compile(r"-?\d+")


def _object_text(value: _Object, fields: Iterable[pa.Field], path: str) -> str:
    types = {field.name: field.type for field in fields}
    known = [(name, each) for name, each in value if name in types]
    if len(dict(known)) < len(known):
        names = [name for name, _ in known]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{path}{twice} is there twice")
    pairs = [
        f"{json.dumps(name)}:{_value_text(each, types[name], path + name)}" for name, each in known
    ]
    return "{" + ",".join(pairs) + "}"


def _value_text(value: Any, kind: pa.DataType, path: str) -> str:
    """Return the JSON of a value of a type.

    Raises:
        ValueError: the value is of another type, or an integer out of range.
    """
    text: str | None = None
    if value is None:
        text = "null"
    elif isinstance(value, _Object):
        if pa.types.is_struct(kind):
            text = _object_text(value, kind, f"{path}.")
        elif pa.types.is_map(kind):
            text = _pairs_text(value, kind.item_type, path)
    elif isinstance(value, list):
        if pa.types.is_list(kind):
            items = (_value_text(each, kind.value_type, path) for each in value)
            text = "[" + ",".join(items) + "]"
    elif isinstance(value, _Number):
        if _holds(kind, value):
            text = value
    elif _is_textual(kind) if isinstance(value, str) else pa.types.is_boolean(kind):
        text = json.dumps(value)
    if text is None:
        shown = value if isinstance(value, _Number) else json.dumps(value)
        found = _KINDS.get(type(value)) or shown[:80]
        raise ValueError(f"{path}: {found} does not fit {kind}")
    return text


def _pairs_text(value: _Object, kind: pa.DataType, path: str) -> str:
    if len(dict(value)) < len(value):
        raise ValueError(f"{path} has a key twice")
    pairs = [
        f'{{"key":{json.dumps(key)},"value":{_value_text(each, kind, path)}}}'
        for key, each in value
    ]
    return "[" + ",".join(pairs) + "]"


def _holds(kind: pa.DataType, number: _Number) -> bool:
    """Return whether a type may hold a number; of a decimal only the reader knows."""
    if pa.types.is_integer(kind):
        is_whole = _INTEGER.fullmatch(number) and len(number) <= len(str(-(1 << 63)))
        return bool(is_whole) and -1 <= int(number) >> kind.bit_width - 1 <= 0
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_KINDS: Final[dict[type, str]] = {_Object: "an object", list: "an array"}


def _is_textual(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (pa.types.is_string, pa.types.is_temporal, pa.types.is_decimal)
    )
