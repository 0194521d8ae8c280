"""Statistics of typed columns as Delta has them in an ``add`` action.

Programs skip a file by them, so a bound that is too tight loses rows. A value that Delta's JSON
cannot say exactly gets a bound beyond it, or none:

- a timestamp has milliseconds: the smallest is rounded down, the largest up;
- a string is cut after 32 characters, as Delta does; the largest gets a last character that is
  larger than all others;
- NaN is larger than all numbers in Spark and in Delta, and Parquet leaves it out: a column that has
  one gets no largest value;
- BINARY, ARRAY and MAP have no bounds. A STRUCT has those of its fields.

BOOLEAN has bounds, which Spark does not use: the pyarrow dataset of delta-rs 1.6 takes a missing
bound for one that no value fits, if a file has bounds of other columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from spark_log.log import ColumnStatistics

_STRING_CHARACTERS: Final = 32
"""Maximum number of characters of a string (``StatisticsCollection`` of Delta, the default of
``spark.databricks.delta.stats.skipping.stringPrefixLength``)."""

_LAST_CHARACTER: Final = "\U0010ffff"
_WIDE: Final = Context(prec=40)
"""Digits of any decimal."""

_EPOCH: Final = date(1970, 1, 1)


def typed_statistics(
    columns: Iterable[ColumnStatistics],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return ``minValues``, ``maxValues`` and ``nullCount`` of columns; fields of a STRUCT nested.

    Args:
        columns: the statistics of all columns in the file.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for column in columns:
        _put(nulls, column.path, column.null_count)
        low, high = _bounds(column)
        if low is None or high is None:
            continue
        _put(least, column.path, low)
        if not column.has_nan:
            _put(most, column.path, high)
    return least, most, nulls


def _put(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _bounds(column: ColumnStatistics) -> tuple[Any, Any]:
    """Return the smallest and the largest value in JSON; None for one that it cannot say."""
    kind, least, most = column.kind, column.least, column.most
    if isinstance(least, bytes) and isinstance(most, bytes):
        return least.decode()[:_STRING_CHARACTERS], _cut_above(most.decode())
    if isinstance(least, int) and isinstance(most, int):
        if pa.types.is_timestamp(kind):
            return time_text(least // 1000), time_text(-(-most // 1000))
        if pa.types.is_decimal(kind):
            return _decimal(kind, least), _decimal(kind, most)
        return (_date_text(least), _date_text(most)) if pa.types.is_date(kind) else (least, most)
    if (
        isinstance(least, float)
        and isinstance(most, float)
        and all(map(math.isfinite, (least, most)))
    ):
        return _number(least), _number(most)
    return None, None


def _cut_above(text: str) -> str:
    """Return a string of few characters that is not smaller than another, by its UTF-8 bytes."""
    end = _STRING_CHARACTERS
    if len(text) <= end:
        return text
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if end >= len(text) else text[:end] + _LAST_CHARACTER


def _decimal(kind: pa.Decimal128Type, digits: int) -> Decimal:
    return Decimal(digits).scaleb(-kind.scale, _WIDE)


def _number(value: float) -> Decimal:
    """Return a float as it is written."""
    return Decimal(repr(value))


def time_text(time_ms: int) -> str | None:
    """Return a time as Delta's statistics have it; None if no calendar has it."""
    try:
        time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _date_text(days: int) -> str | None:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        return None
