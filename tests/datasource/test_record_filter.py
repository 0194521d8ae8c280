"""Filters that Spark pushes down."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_log import TopicPartition
from spark_log.datasource.read.record_filter import ANY, EVERYTHING, Bounds, RecordFilter

OFFSET, TIME = ("offset",), ("timestamp",)
NOON = datetime(2013, 7, 4, 12, tzinfo=UTC)
NOON_US = 1_372_939_200_000_000


def taken(*filters):
    """Return the record filter for filters, and check that it applies all of them exactly."""
    where, left = RecordFilter.from_filters(filters)
    assert left == []
    return where


def test_no_filter_leaves_nothing_out():
    assert taken() == EVERYTHING
    assert EVERYTHING.may_match(TopicPartition("t", 0))
    assert ANY.is_everything


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (EqualTo(("partition",), 1), [1]),
        (EqualNullSafe(("partition",), 1), [1]),
        (Not(EqualTo(("partition",), 1)), [0, 2, 3]),
        (In(("partition",), (0, 3, 9)), [0, 3]),
        (Not(In(("partition",), (0, 3))), [1, 2]),
        (GreaterThan(("partition",), 1), [2, 3]),
        (GreaterThanOrEqual(("partition",), 1), [1, 2, 3]),
        (LessThan(("partition",), 1), [0]),
        (LessThanOrEqual(("partition",), 1), [0, 1]),
    ],
)
def test_partitions_are_decided_by_any_filter(each, wanted):
    where = taken(each)
    assert [n for n in range(4) if where.may_match(TopicPartition("t", n))] == wanted


@pytest.mark.parametrize(
    ("each", "wanted"),
    [
        (EqualTo(("topic",), "ab"), ["ab"]),
        (StringStartsWith(("topic",), "a"), ["ab", "ac"]),
        (StringEndsWith(("topic",), "b"), ["ab", "bb"]),
        (StringContains(("topic",), "c"), ["ac"]),
        (Not(StringStartsWith(("topic",), "a")), ["bb"]),
        (GreaterThan(("topic",), "ab"), ["ac", "bb"]),
    ],
)
def test_topics_are_decided_by_any_filter(each, wanted):
    where = taken(each)
    assert [
        name for name in ("ab", "ac", "bb") if where.may_match(TopicPartition(name, 0))
    ] == wanted


@pytest.mark.parametrize(
    ("each", "low", "high"),
    [
        (EqualTo(OFFSET, 5), 5, 6),
        (EqualNullSafe(OFFSET, 5), 5, 6),
        (GreaterThan(OFFSET, 5), 6, ANY.high),
        (GreaterThanOrEqual(OFFSET, 5), 5, ANY.high),
        (LessThan(OFFSET, 5), ANY.low, 5),
        (LessThanOrEqual(OFFSET, 5), ANY.low, 6),
        (In(OFFSET, (5,)), 5, 6),
    ],
)
def test_offsets_are_bounds(each, low, high):
    assert taken(each).offsets == Bounds(low, high)


def test_bounds_narrow_each_other():
    where = taken(GreaterThan(OFFSET, 5), LessThan(OFFSET, 100), GreaterThanOrEqual(OFFSET, 3))
    assert where.offsets == Bounds(6, 100)


def test_times_are_bounds_in_microseconds_in_any_zone():
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    for instant in (NOON, elsewhere):
        where = taken(GreaterThanOrEqual(TIME, instant), LessThan(TIME, instant))
        assert where.times_us == Bounds(NOON_US, NOON_US)
    exactly = taken(EqualTo(TIME, NOON + timedelta(microseconds=1)))
    assert exactly.times_us == Bounds(NOON_US + 1, NOON_US + 2)


def test_a_list_of_offsets_prunes_and_is_left_to_spark():
    each = In(OFFSET, (5, 9, 7))
    where, left = RecordFilter.from_filters([each])
    assert where.offsets == Bounds(5, 10)
    assert left == [each]


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        IsNull(OFFSET),
        Not(EqualTo(OFFSET, 5)),
        Not(GreaterThan(TIME, NOON)),
        EqualTo(OFFSET, None),
        EqualTo(TIME, NOON.replace(tzinfo=None)),
        EqualTo(("topic",), None),
        In(("topic",), ("t", None)),
        Not(IsNull(("topic",))),
        In(OFFSET, ()),
        EqualTo(("headers", "key"), "offset"),
        EqualTo(("timestampType",), 0),
    ],
)
def test_what_is_not_held_exactly_is_left_to_spark_and_prunes_nothing(each):
    where, left = RecordFilter.from_filters([each])
    assert left == [each]
    assert where == EVERYTHING


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp", "timestampType"])
def test_columns_that_are_never_null_are_not_null(column):
    assert taken(IsNotNull((column,))) == EVERYTHING
