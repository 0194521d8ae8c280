"""Parses lines of text as records, by the properties and rules of Kafka's ``LineMessageReader``.

Whole blocks of lines are parsed at once, as Arrow arrays. Lines are bytes: keys and values need not
be UTF-8. Like Kafka's reader, this one stops at a bad line and returns the records before it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidConfigurationError
from spark_log.record import (
    HEADERS_TYPE,
    RECORD_SCHEMA,
    binary_array,
    bool_array,
    int_array,
    ints_of,
    timestamp_array,
)

_SHOWN_BYTES = 80


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Kafka's properties of the console producer, with Kafka's defaults.

    Attributes:
        parse_key: whether a line begins with the record's key.
        key_separator: text that ends the key.
        parse_headers: whether a line begins with the record's headers (before the key).
        headers_delimiter: text that ends the headers.
        headers_separator: text between two headers.
        headers_key_separator: text between a header's key and its value.
        null_marker: a key, value or header value equal to this text is null; empty: no text is.
        ignore_error: whether a line without a separator is a value, instead of an error.
    """

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str = ""
    ignore_error: bool = False

    def check(self) -> None:
        """Refuse separators that cannot be distinguished.

        Raises:
            InvalidConfigurationError: a separator is empty, or equal to another one.
        """
        texts = {
            field.name.replace("_", "."): getattr(self, field.name)
            for field in fields(self)
            if isinstance(field.default, str)
        }
        for name, text in texts.items():
            if not text and name != "null.marker":
                raise InvalidConfigurationError(f"property {name!r} is empty", key=name)
        # The headers are cut off first, so key.separator may be equal to one of theirs.
        together = [name for name in texts if name != "key.separator"]
        pairs = [*combinations(together, 2), ("key.separator", "null.marker")]
        for one, other in pairs:
            if texts[one] == texts[other]:
                raise InvalidConfigurationError(f"{one} and {other} may not be equal", key=one)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be a record.

    Attributes:
        index: number of the line among the parsed lines, from 0.
        reason: the reason why the line cannot be a record.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """Records of `RECORD_SCHEMA`, and the bad line after them, if one was found."""

    records: pa.RecordBatch
    bad: BadLine | None


def parse_lines(block: bytes, line_format: LineFormat, timestamp_us: int) -> ParsedLines:
    """Return the records in a block of whole lines.

    Args:
        block: lines that end with LF or CR LF; the last line may lack it.
        line_format: form of a line.
        timestamp_us: timestamp of all records.
    """
    lines = _split(block)
    problems: list[BadLine] = []
    values = lines
    keys = pa.nulls(len(lines), pa.binary())
    headers = pa.nulls(len(lines), HEADERS_TYPE)
    if line_format.parse_headers:
        cut = _Cut(values, line_format.headers_delimiter)
        problems += _missing(lines, cut, line_format, "headers.delimiter")
        texts = _null_where_marked(cut.before(), line_format)
        headers, bad = _headers(texts, line_format)
        problems += bad
        values = cut.after()
    if line_format.parse_key:
        cut = _Cut(values, line_format.key_separator)
        problems += _missing(lines, cut, line_format, "key.separator")
        keys = _null_where_marked(cut.before(), line_format)
        values = cut.after()
    values = _null_where_marked(values, line_format)
    times = timestamp_array(np.full(len(lines), timestamp_us))
    records = pa.RecordBatch.from_arrays([keys, values, headers, times], schema=RECORD_SCHEMA)
    first = min(problems, key=lambda problem: problem.index, default=None)
    return ParsedLines(records if first is None else records.slice(0, first.index), first)


class _Cut:
    """Texts, each split at the first occurrence of a separator."""

    def __init__(self, texts: pa.Array, separator: str) -> None:
        pieces = pc.split_pattern(texts, pattern=os.fsencode(separator), max_splits=1)
        ends = ints_of(pieces.offsets, np.int32)
        self._pieces = pieces.values
        self._first, self._last = ends[:-1], ends[1:] - 1
        self.is_found: np.ndarray = self._last > self._first

    def before(self) -> pa.Array:
        """Return the text before the separator; null for a text without one."""
        first = self._pieces.take(int_array(self._first, pa.int32()))
        return pc.if_else(bool_array(self.is_found), first, pa.nulls(len(first), first.type))

    def after(self) -> pa.Array:
        """Return the text after the separator; the whole text if it has none."""
        return self._pieces.take(int_array(self._last, pa.int32()))


def _split(block: bytes) -> pa.Array:
    block = block.replace(b"\r\n", b"\n")
    if not block.endswith(b"\n"):
        block = block.removesuffix(b"\r")
    lines = block.split(b"\n")
    return binary_array(lines[:-1] if block.endswith(b"\n") else lines)


def _headers(texts: pa.Array, line_format: LineFormat) -> tuple[pa.Array, list[BadLine]]:
    """Return the headers in each text (null: no headers), and the bad lines."""
    pairs = pc.split_pattern(texts, pattern=os.fsencode(line_format.headers_separator))
    cut = _Cut(pairs.values, line_format.headers_key_separator)
    names = pc.if_else(bool_array(cut.is_found), cut.before(), pairs.values)
    values = _null_where_marked(cut.after(), line_format)
    values = pc.if_else(bool_array(cut.is_found), values, pa.nulls(len(values), pa.binary()))
    lines = ints_of(pc.list_parent_indices(pairs), np.int64)
    problems = []
    if not line_format.ignore_error and not cut.is_found.all():
        at = int(np.flatnonzero(~cut.is_found)[0])
        shown = _shown(pairs.values[at].as_py())
        separator = line_format.headers_key_separator
        reason = f"no headers.key.separator {separator!r} in the header {shown}"
        problems.append(BadLine(int(lines[at]), reason))
    if line_format.null_marker:
        is_marker = pc.equal(names, os.fsencode(line_format.null_marker)).to_numpy(False)
        if is_marker.any():
            at = int(np.flatnonzero(is_marker)[0])
            problems.append(BadLine(int(lines[at]), "a header's key cannot be null"))
    pieces = pa.StructArray.from_arrays(
        [_text(names), values], fields=list(HEADERS_TYPE.value_type)
    )
    mask = pairs.is_null() if pairs.null_count else None
    return pa.ListArray.from_arrays(pairs.offsets, pieces, HEADERS_TYPE, mask=mask), problems


def _text(names: pa.Array) -> pa.Array:
    """Return bytes as text; bytes that are not UTF-8 are replaced, as in Kafka."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()])


def _null_where_marked(texts: pa.Array, line_format: LineFormat) -> pa.Array:
    if not line_format.null_marker:
        return texts
    is_marker = pc.equal(texts, os.fsencode(line_format.null_marker))
    return pc.if_else(is_marker, pa.scalar(None, pa.binary()), texts)


def _missing(
    lines: pa.Array, cut: _Cut, line_format: LineFormat, property_name: str
) -> list[BadLine]:
    if line_format.ignore_error or cut.is_found.all():
        return []
    at = int(np.flatnonzero(~cut.is_found)[0])
    separator = getattr(line_format, property_name.replace(".", "_"))
    shown = _shown(lines[at].as_py())
    return [BadLine(at, f"no {property_name} {separator!r} in the line {shown}")]


def _shown(text: bytes) -> str:
    cut = text[:_SHOWN_BYTES].decode("utf-8", "replace")
    return repr(cut if len(text) <= _SHOWN_BYTES else f"{cut}…")
