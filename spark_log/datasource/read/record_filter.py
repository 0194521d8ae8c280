"""Filters that Spark pushes down, for partitions, offsets and timestamps.

All records of a partition have the same topic and partition, so any filter on these columns is
evaluated once per partition. Filters on offsets and timestamps become bounds. Spark does not check
an accepted filter again, so the bounds have to be exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_log.types import TopicPartition

_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN: Final = -(2**63)
_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Range of integers from ``low`` (inclusive) to ``high`` (exclusive)."""

    low: int = _MIN
    high: int = _MAX

    @property
    def is_everything(self) -> bool:
        """Whether the range excludes nothing."""
        return self.low == _MIN and self.high == _MAX

    def intersect(self, low: int = _MIN, high: int = _MAX) -> Bounds:
        """Return the intersection with another range."""
        return Bounds(max(self.low, low), min(self.high, high))


ANY: Final = Bounds()
"""Bounds that exclude no number."""


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The records that a query needs, by its pushed-down filters.

    Attributes:
        partition_filters: filters on ``topic`` and ``partition``.
        offsets: bounds of the offsets.
        times_us: bounds of the timestamps, in microseconds since the epoch.
    """

    partition_filters: tuple[Filter, ...] = ()
    offsets: Bounds = ANY
    times_us: Bounds = ANY

    @classmethod
    def from_filters(cls, filters: Iterable[Filter]) -> tuple[Self, list[Filter]]:
        """Accept as many filters as possible.

        Returns:
            The record filter, and the filters that Spark has to apply because the record filter
            does not apply them exactly.
        """
        partition_filters: list[Filter] = []
        bounds = {"offset": ANY, "timestamp": ANY}
        left: list[Filter] = []
        for each in filters:
            column = _column(each)
            is_exact = False
            if isinstance(each, IsNotNull):
                is_exact = column in _NEVER_NULL
            elif column in ("topic", "partition"):
                is_exact = _decide(each) is not None
                partition_filters += [each] if is_exact else []
            elif column in bounds:
                narrowed, is_exact = _narrow(each, bounds[column])
                bounds[column] = narrowed
            if not is_exact:
                left.append(each)
        return cls(tuple(partition_filters), bounds["offset"], bounds["timestamp"]), left

    def may_match(self, tp: TopicPartition) -> bool:
        """Return whether records of a partition may match."""
        values = tp._asdict()
        return all(_decided(each, values[str(_column(each))]) for each in self.partition_filters)


EVERYTHING: Final = RecordFilter()
"""A filter that matches every record."""


def _column(each: Filter) -> str | None:
    inner = each.child if isinstance(each, Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _decided(each: Filter, value: object) -> bool:
    decide = _decide(each)
    return decide is None or decide(value)


def _decide(each: Filter) -> Callable[[object], bool] | None:
    """Return a predicate for a filter on a column that is never null; None if it is unsupported."""
    if isinstance(each, Not):
        child = _decide(each.child)
        return None if child is None else lambda value: not child(value)
    wanted = getattr(each, "value", None)
    if wanted is None or (isinstance(each, In) and None in each.value):
        return None  # comparison with null has special rules in SQL
    compare: dict[type[Filter], Callable[..., bool]] = {
        EqualTo: lambda value: value == wanted,
        EqualNullSafe: lambda value: value == wanted,
        GreaterThan: lambda value: value > wanted,
        GreaterThanOrEqual: lambda value: value >= wanted,
        LessThan: lambda value: value < wanted,
        LessThanOrEqual: lambda value: value <= wanted,
        In: lambda value: value in wanted,
        StringStartsWith: lambda value: value.startswith(wanted),
        StringEndsWith: lambda value: value.endswith(wanted),
        StringContains: lambda value: wanted in value,
    }
    return compare.get(type(each))


def _narrow(each: Filter, bounds: Bounds) -> tuple[Bounds, bool]:
    """Return bounds narrowed by a filter, and whether the bounds are exact."""
    wanted = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    values = [_number(value) for value in wanted]
    numbers = [number for number in values if number is not None]
    if not numbers or len(numbers) < len(values):
        return bounds, False
    least, greatest = min(numbers), max(numbers)
    match each:
        case EqualTo() | EqualNullSafe() | In():
            return bounds.intersect(least, greatest + 1), least == greatest
        case GreaterThan() | GreaterThanOrEqual():
            return bounds.intersect(low=least + isinstance(each, GreaterThan)), True
        case LessThan() | LessThanOrEqual():
            return bounds.intersect(high=least + isinstance(each, LessThanOrEqual)), True
    return bounds, False


def _number(value: object) -> int | None:
    """Return an offset unchanged, a time as microseconds since the epoch, else None."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
