"""Parses untrusted JSON: files and records of a root, which any writer of the root can forge.

Python's own parser accepts more than JSON: ``NaN`` and ``Infinity``, duplicate names (it takes the
last value, other parsers the first), and integers of thousands of digits. For ``[[[[…`` it raises
`RecursionError`, which callers do not expect. `parse_json` raises `ValueError` for all of these,
and for a document that is too large.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

import pyarrow as pa

MAX_BYTES: Final = 64 << 20
"""Maximum size of a document. A group of 10,000 partitions and 1,000 members is below 2 MiB."""

MAX_DIGITS: Final = 20
"""Maximum length of an integer with its sign. All integers of 64 bits are allowed."""


def parse_json(
    data: bytes | str | pa.Buffer, *, max_bytes: int = MAX_BYTES, decimals: bool = False
) -> Any:
    """Return the value of a JSON document.

    Args:
        data: the document, in UTF-8 if it is bytes.
        max_bytes: a longer document is refused before it is copied or parsed.
        decimals: whether a number with a fraction or an exponent becomes a `Decimal`, so that all
            its digits are kept; else a float.

    Returns:
        The result of `json.loads`; all numbers are finite, all integers have little more than 64
        bits at most.

    Raises:
        ValueError: the document is no JSON, or is too large, nested too deep, or ambiguous.
    """
    size = data.size if isinstance(data, pa.Buffer) else len(data)
    if size > max_bytes:
        raise ValueError(f"it has {size} bytes, more than {max_bytes}")
    document = data.to_pybytes() if isinstance(data, pa.Buffer) else data
    if isinstance(document, bytes):
        document = document.decode(json.detect_encoding(document), "surrogatepass")
    elif document.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark")
    try:
        return (_DECIMAL_DECODER if decimals else _DECODER).decode(document)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"it has the name {twice!r:.100} twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.30} is no finite number")
    return number


def _finite_decimal(text: str) -> Decimal:
    _finite(text)
    return Decimal(text)


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _decoder(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    """Return a decoder. `json.loads` would make one with each call, which takes a third of it."""
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=_refuse_constant,
        parse_float=parse_float,
        parse_int=_integer,
    )


_DECODER: Final = _decoder(_finite)
_DECIMAL_DECODER: Final = _decoder(_finite_decimal)
