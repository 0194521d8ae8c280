"""Spark's DDL of a schema without Spark: ``carrier STRING, origin STRUCT<airport: STRING>``.

Grammar, in which keywords have any case::

    columns  = column {"," column}
    column   = name [":"] type [COMMENT text]
    type     = simple | DECIMAL ["(" precision ["," scale] ")"]
             | ARRAY "<" type ">" | MAP "<" type "," type ">" | STRUCT "<" [columns] ">"

A name has letters, digits and ``_``, or is quoted in backticks. Comments are not kept.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import pyarrow as pa

from spark_log.errors import InvalidConfigurationError

_SIMPLE: Final = {
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "TINYINT": pa.int8(),
    "SHORT": pa.int16(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
}

_INSTEAD: Final = {
    "TIMESTAMP_NTZ": "use TIMESTAMP: readers of Delta tables need another feature for this type",
    "CHAR": "use STRING",
    "CHARACTER": "use STRING",
    "VARCHAR": "use STRING",
}
"""Types of Spark's that a table cannot have, and the advice."""

_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_MAX_PRECISION: Final = 38
_MAX_DEPTH: Final = 32

_TOKEN: Final = re.compile(
    r"\s*(?:(\w+)|`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\S))", re.S
)


def parse_ddl(text: str) -> pa.Schema:
    """Return the schema that a DDL describes; all fields are nullable.

    Args:
        text: the columns, as Spark's ``StructType.fromDDL`` takes them.

    Raises:
        InvalidConfigurationError: it does not parse, or has a type that a table cannot have. The
            message has the position, counted from 1, and what was expected.
    """
    parser = _Parser(text)
    fields = parser.columns(0)
    if parser.kind != "end":
        parser.fail("a comma or the end")
    return pa.schema(fields)


class _Parser:
    """A parser by recursive descent, one token ahead.

    Attributes:
        kind: the next token's kind: ``word``, ``quoted`` (in backticks), ``text``, ``sign`` or
            ``end``.
        token: the next token, without its backticks.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._behind = 0
        self._advance()

    def columns(self, depth: int) -> list[pa.Field]:
        fields = [self._column(depth)]
        while self._accept(","):
            fields.append(self._column(depth))
        return fields

    def fail(self, expected: str) -> NoReturn:
        """Raise the error of the next token."""
        found = repr(self.token) if self.kind != "end" else "the end"
        self._refuse(f"expected {expected}, found {found}")

    def _column(self, depth: int) -> pa.Field:
        if self.kind not in ("word", "quoted"):
            self.fail("the name of a column")
        name = self._take()
        self._accept(":")
        kind = self._type(depth)
        if self._accept("NOT"):
            self._refuse(
                "NOT NULL is not possible: a column is null in a row whose value does not decode"
            )
        if self._accept("COMMENT"):
            if self.kind != "text":
                self.fail("the comment as a quoted text")
            self._take()
        return pa.field(name, kind)

    def _type(self, depth: int) -> pa.DataType:
        if depth > _MAX_DEPTH:
            self._refuse(f"types are nested more than {_MAX_DEPTH} deep")
        word = self.token.upper()
        if self.kind != "word":
            self.fail("a type")
        if word in _INSTEAD:
            self._refuse(f"a table has no type {word}; {_INSTEAD[word]}")
        if word in _SIMPLE:
            self._take()
            return _SIMPLE[word]
        if word in _DECIMAL:
            self._take()
            return self._decimal()
        if word not in ("ARRAY", "MAP", "STRUCT"):
            self.fail("a type such as STRING, INT, BIGINT, DOUBLE, TIMESTAMP or ARRAY<STRING>")
        self._take()
        self._expect("<")
        kind: pa.DataType
        if word == "ARRAY":
            kind = pa.list_(self._type(depth + 1))
        elif word == "MAP":
            key = self._type(depth + 1)
            self._expect(",")
            kind = pa.map_(key, self._type(depth + 1))
        else:
            kind = pa.struct([] if self.token == ">" else self.columns(depth + 1))
        self._expect(">")
        return kind

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            if not 1 <= precision <= _MAX_PRECISION or scale > precision:
                self._refuse(
                    f"DECIMAL({precision},{scale}): the precision is 1 to {_MAX_PRECISION}, and "
                    f"the scale 0 to the precision"
                )
            self._expect(")")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self.kind != "word" or not re.fullmatch("[0-9]{1,4}", self.token):
            self.fail("a number")
        return int(self._take())

    # --- tokens ----------------------------------------------------------------------------------

    def _accept(self, token: str) -> bool:
        if self.kind in ("word", "sign") and self.token.upper() == token:
            self._advance()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self.fail(f"'{sign}'")

    def _take(self) -> str:
        token = self.token
        self._advance()
        return token

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._behind)
        if match is None:
            self.kind, self.token, self._start = "end", "", len(self._text.rstrip())
            return
        at = match.lastindex or 0
        self.kind = ("", "word", "quoted", "text", "sign")[at]
        self.token = match[at].replace("``", "`") if at == 2 else match[at]
        self._start = match.start(at) - (at == 2)
        self._behind = match.end()

    def _refuse(self, problem: str) -> NoReturn:
        raise InvalidConfigurationError(f"position {self._start + 1}: {problem}")
