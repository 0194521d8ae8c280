"""The options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from spark_log import TopicPartition
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.stream.read_limits import (
    TriggerDelay,
    count_offsets,
    default_read_limit,
    limit_rate,
)

LONG_MAX = 2**63 - 1


def by_partition(*offsets):
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("most", "start", "end", "expected"),
    [
        # The example of the connector: 101, 11 and 1 records, 10 per batch.
        (10, (0, 0, 0), (101, 11, 1), (8, 1, 1)),
        (10, (8, 1, 1), (101, 11, 1), (17, 2, 1)),
        (30, (0, 0), (50, 20), (21, 8)),
        (100, (5, 7), (9, 8), (9, 8)),
        (1, (0, 0), (5, 5), (1, 1)),
        (LONG_MAX, (5,), (10,), (10,)),
        (5, (3, 3), (3, 3), (3, 3)),
        (5, (LONG_MAX - 3,), (LONG_MAX,), (LONG_MAX,)),
    ],
)
def test_the_most_is_shared_out_by_what_each_partition_has(most, start, end, expected):
    assert limit_rate(most, by_partition(*start), by_partition(*end)) == by_partition(*expected)


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**30)), min_size=1, max_size=50),
)
def test_a_share_is_never_too_much_and_never_nothing(most, partitions):
    start = by_partition(*(begin for begin, _ in partitions))
    end = by_partition(*(begin + size for begin, size in partitions))
    limited = limit_rate(most, start, end)
    taken = count_offsets(start, limited)
    assert taken <= most + len(partitions)
    for each, offset in end.items():
        assert start[each] <= limited[each] <= offset
        assert limited[each] > start[each] or offset == start[each], (
            "every partition makes progress"
        )


class TestTheLeast:
    def test_never_holds_back_a_first_batch(self, clock):
        assert not TriggerDelay(15, 5_000, clock).should_wait(0)

    def test_holds_back_until_there_are_enough(self, clock):
        delay = TriggerDelay(15, 5_000, clock)
        assert [delay.should_wait(count) for count in (16, 14, 15)] == [False, True, False]

    def test_holds_back_no_longer_than_the_delay_since_the_last_batch(self, clock):
        delay = TriggerDelay(15, 5_000, clock)
        delay.should_wait(16)
        clock.advance_ms(4_999)
        assert delay.should_wait(1)
        clock.advance_ms(1)
        assert not delay.should_wait(1)
        assert delay.should_wait(1), "and the delay starts again"

    def test_a_record_after_a_long_silence_does_not_wait_again(self, clock):
        delay = TriggerDelay(15, 5_000, clock)
        delay.should_wait(16)
        clock.advance_ms(60_000)
        assert delay.should_wait(0), "there are no new records"
        assert not delay.should_wait(1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
    ],
)
def test_spark_is_told_the_limit_that_it_can_be_told(tmp_path, options, expected):
    options = {"path": str(tmp_path), "subscribe": "t"} | options
    assert default_read_limit(parse_read_options(options, is_stream=True)) == expected
