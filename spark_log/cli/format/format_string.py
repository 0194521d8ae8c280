r"""kcat's format strings: ``%t/%p@%o: %s\n`` prints topic, partition, offset and value.

A record is printed exactly as the format string says: no line break is added. A null key or value
is printed as nothing; its length is -1.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_log.cli.format.deserializers import STRING, FieldDeserializer
from spark_log.cli.format.record_format import escape, headers_text
from spark_log.errors import InvalidConfigurationError
from spark_log.log import FetchedRecords

TOKENS: Final = {
    "s": "value",
    "S": "its length in bytes as stored, -1 for null",
    "R": "that length as 4 bytes, big-endian",
    "k": "key",
    "K": "its length",
    "T": "timestamp in ms",
    "h": "headers",
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "%": "a percent sign",
}
"""The letter after a percent sign → the part of a record that it stands for."""

_OF_OTHERS: Final = "sRkht"
"""Tokens whose bytes the writer of a record chose. A terminal could interpret them as commands."""

_ESCAPED: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}
# kcat divides the text at percent signs first: a backslash before one is no escape.
_PART: Final = re.compile(
    r"%(?P<token>.?)"
    r"|\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|(?P<octal>0[0-7]{0,3})|(?P<decimal>[1-9][0-9]{0,2})"
    r"|(?P<escaped>[^%]))"
    r"|(?P<text>[^%\\]+|\\)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class FormatString:
    """A parsed format string.

    Attributes:
        parts: keys of `TOKENS`, and the bytes between them.
    """

    parts: tuple[str | bytes, ...]

    @classmethod
    def parse(cls, text: str) -> FormatString:
        r"""Return a parsed format string.

        Args:
            text: the format string, with `TOKENS` after percent signs. ``\n``, ``\r``, ``\t`` and
                ``\xNN`` stand for one byte, and so does a backslash with a number: octal after a
                zero, otherwise decimal. A backslash before another character stands for that
                character.

        Raises:
            InvalidConfigurationError: a token is unknown, a number is no byte, or the text is
                empty.
        """
        if not text:
            raise _refused("is empty")
        parts: list[str | bytes] = []
        for found in _PART.finditer(text):
            token = found["token"]
            if token is None or token == "%":
                parts.append(_literal(found))
            elif token in TOKENS:
                parts.append(token)
            else:
                raise _refused(
                    f"has the unknown token '%{token}'" if token else "ends with a single %"
                )
        return cls(tuple(parts))

    def text(
        self,
        topic: str,
        records: FetchedRecords,
        key: FieldDeserializer = STRING,
        value: FieldDeserializer = STRING,
        *,
        for_terminal: bool = False,
    ) -> bytes:
        """Return records in the form of this format string, one after another.

        Args:
            topic: the records' topic.
            records: the records.
            key: the deserializer of keys.
            value: the deserializer of values.
            for_terminal: whether to escape control characters, except line breaks and tabs, in
                bytes that the writer of a record chose. If false, no bytes are changed.

        Raises:
            SerializationError: a deserializer refused a key or value.
        """
        columns: list[Sequence[bytes]] = []
        for part in self.parts:
            if isinstance(part, bytes):
                columns.append([part] * len(records))
                continue
            column = _column(part, topic, records, key, value)
            columns.append(
                list(map(escape, column)) if for_terminal and part in _OF_OTHERS else column
            )
        return b"".join(map(b"".join, zip(*columns, strict=True)))


def _literal(found: re.Match[str]) -> bytes:
    if found["hex"]:
        return bytes([int(found["hex"], 16)])
    if number := found["octal"] or found["decimal"]:
        code = int(number, 8 if found["octal"] else 10)
        if code > 0xFF:
            raise _refused(rf"has \{number}, which is more than a byte")
        return bytes([code])
    if found["escaped"]:
        return _ESCAPED.get(found["escaped"]) or os.fsencode(found["escaped"])
    return os.fsencode(found["text"] or "%")


def _refused(problem: str) -> InvalidConfigurationError:
    known = ", ".join(f"%{token} {meaning}" for token, meaning in TOKENS.items())
    return InvalidConfigurationError(f"--format {problem}; it takes {known}", key="format")


def _column(
    token: str,
    topic: str,
    records: FetchedRecords,
    key: FieldDeserializer,
    value: FieldDeserializer,
) -> list[bytes]:
    """Return the bytes of a token for each record."""
    match token:
        case "s":
            return value.texts(records, "value", b"")
        case "k":
            return key.texts(records, "key", b"")
        case "h":
            headers = records.records.column("headers").to_pylist()
            return [headers_text(each, b",", b"NULL", b"=") for each in headers]
        case "t":
            return [topic.encode()] * len(records)
        case "R":
            return [struct.pack(">i", length) for length in _lengths(records, "value")]
    numbers = {
        "S": lambda: _lengths(records, "value"),
        "K": lambda: _lengths(records, "key"),
        "T": (records.timestamps_us // 1000).tolist,
        "o": records.offsets.tolist,
        "p": lambda: [records.partition] * len(records),
    }
    return [b"%d" % number for number in numbers[token]()]


def _lengths(records: FetchedRecords, name: str) -> list[int]:
    column = records.records.column(name).to_pylist()
    return [-1 if data is None else len(data) for data in column]
