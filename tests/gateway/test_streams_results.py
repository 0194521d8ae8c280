"""The checks of what Kafka Streams has computed find what is lost, doubled or mixed up."""

import pytest

from tests.gateway.suites.kafka_streams.results import (
    check_stream_join,
    check_table_join,
    check_windows,
    check_word_count,
    session_windows,
    tumbling_windows,
)

LINES = ["a b", "b c", "b"]
COUNTS = [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1"), ("b", "3")]
LEFT = [("k", "l0"), ("k", "l1"), ("only", "l0")]
RIGHT = [("k", "r0"), ("k", "r1")]
JOINED = [("k", "l0+r0"), ("k", "l0+r1"), ("k", "l1+r1")]


def test_counts_that_are_right():
    assert check_word_count(LINES, COUNTS) == []
    assert check_word_count(LINES, COUNTS, exactly_once=False) == []


@pytest.mark.parametrize("at", range(len(COUNTS)))
def test_a_count_that_is_lost_or_doubled(at):
    assert check_word_count(LINES, COUNTS[:at] + COUNTS[at + 1 :])
    assert check_word_count(LINES, [*COUNTS[: at + 1], *COUNTS[at:]])


def test_a_word_that_nobody_used():
    assert check_word_count(LINES, [*COUNTS, ("d", "1")])
    assert check_word_count(LINES, [*COUNTS, ("d", "1")], exactly_once=False)


def test_at_least_once_may_count_twice_but_not_too_little():
    assert check_word_count(LINES, [*COUNTS, ("b", "3"), ("b", "4")], exactly_once=False) == []
    assert check_word_count(LINES, COUNTS[:-1], exactly_once=False)
    assert check_word_count(LINES, COUNTS[1:], exactly_once=False)


def test_a_join_of_tables_has_each_change():
    assert check_table_join(LEFT, RIGHT, JOINED) == []
    assert check_table_join(LEFT, RIGHT, JOINED[:-1])
    assert check_table_join(LEFT, RIGHT, [JOINED[0], JOINED[2]])
    assert check_table_join(LEFT, RIGHT, [*JOINED, JOINED[2]])
    right_last = [("k", "l1+r0"), ("k", "l1+r1")]
    assert check_table_join(LEFT, RIGHT, right_last) == []
    assert check_table_join(LEFT, RIGHT, right_last[1:])
    assert check_table_join(LEFT, RIGHT, [])
    assert check_table_join(LEFT, RIGHT, [*JOINED, ("only", "l0+r0")])


def test_a_join_of_a_stream_has_each_record_once():
    stream, table = [("1", "k i0"), ("2", "k i1")], [("k", "old"), ("k", "new")]
    joined = [("k", "i0+new"), ("k", "i1+new")]
    assert check_stream_join(stream, table, joined) == []
    assert check_stream_join(stream, table, joined[:1])
    assert check_stream_join(stream, table, [*joined, joined[0]])
    assert check_stream_join(stream, table, [joined[0], ("k", "i1+old")])


def test_windows():
    records = [("k", 10_001), ("k", 19_999), ("k", 20_000), ("m", 3)]
    windows = tumbling_windows(records)
    assert windows == {"k@10000": 2, "k@20000": 1, "m@0": 1}
    output = [(name, str(count)) for name, count in windows.items()]
    assert check_windows(windows, output) == []
    assert check_windows(windows, output[1:])
    assert check_windows(windows, [*output, output[0]])


def test_sessions_end_after_a_pause_that_is_longer_than_the_gap():
    records = [("k", 0), ("k", 10_001), ("k", 5_000), ("m", 7)]
    assert session_windows(records) == {"k@0-5000": 2, "k@10001-10001": 1, "m@7-7": 1}
