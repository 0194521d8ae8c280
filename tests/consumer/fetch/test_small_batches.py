"""Rows of few records, whose buffers are known, are those of an Arrow batch of them."""

import numpy as np
import pytest

from spark_log.consumer.fetch.completed_fetch import CompletedFetch
from spark_log.consumer.record_factory import RecordFactory
from spark_log.log import LogBatch
from spark_log.record import SmallBatch
from spark_log.types import TopicPartition

TP = TopicPartition("flights", 3)


def small_batch():
    made = SmallBatch.of_records([None] * 5, [b"a", b"", b"ccc", b"d", b"e"], [7, 6_000, 5, 4, 3])
    assert made is not None
    return made


SMALL = small_batch()


def batch_of(content):
    return LogBatch(100, content, 1, 9, False, 90, 64)


def fetched(content):
    return CompletedFetch(TP, batch_of(content), 105)


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 1, 1, 1, 1), (9,)])
def test_records_are_the_same(sizes):
    small, by_arrow = fetched(SMALL), fetched(SMALL.records())
    pairs = []
    for size in sizes:
        of_small, of_arrow = small.take(size), by_arrow.take(size)
        made, error = RecordFactory().records(of_small)
        assert (made, error) == RecordFactory().records(of_arrow)
        assert (of_small.next_offset, of_small.count) == (of_arrow.next_offset, of_arrow.count)
        assert isinstance(of_small.batch.content, SmallBatch), "no Arrow batch was made"
        pairs.append((of_small, of_arrow))
    for of_small, of_arrow in pairs:
        assert of_small.column("value").equals(of_arrow.column("value"))
    assert small.rows_left == by_arrow.rows_left == 0


def test_what_a_batch_says_of_its_rows_is_the_same():
    small, by_arrow = batch_of(SMALL), batch_of(SMALL.records())
    for each in (small, by_arrow):
        assert (each.num_rows, each.end_offset, each.has_gaps) == (5, 105, False)
        np.testing.assert_array_equal(each.offsets(), [100, 101, 102, 103, 104])
    assert small.size_bytes > 0
    assert small.records.equals(by_arrow.records)
    assert small.records is small.records, "it is made once"
