"""Polls of several partitions: few rows come first, and no partition waits for ever."""

from collections import Counter

import pytest

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.completed_fetch import CompletedFetch
from spark_log.consumer.fetch.fetch_buffer import FetchBuffer
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.types import TopicPartition
from tests.log.support import open_log
from tests.record.samples import numbered

NOW_MS = 0.0


class Buffer:
    """A buffer of some partitions, which have the batches that a test gives them."""

    def __init__(self, store, clock, partitions, **settings):
        self.log = open_log(store, clock=clock)
        self.buffer = FetchBuffer(ConsumerConfig.parse(settings), lambda cursor: None)
        self.cursors = [
            FetchCursor(TopicPartition("t", number), self.log, 0) for number in range(partitions)
        ]

    def add(self, number, *rows):
        """Buffer batches of a partition; each of ``rows`` is the number of rows of a batch."""
        cursor = self.cursors[number]
        for count in rows:
            offset = self.log.append(numbered(0, count)).base_offset
            (batch,) = (each for each in self.log.scan(offset) if each.base_offset == offset)
            fetched = CompletedFetch(cursor.partition, batch, offset + count)
            self.buffer.add(cursor, [fetched], NOW_MS)

    def take(self, max_records=None):
        """Return the partitions and the numbers of rows that they give, in order."""
        fetch = self.buffer.take(max_records)
        assert fetch.failure is None
        return [(rows.partition.partition, rows.count) for rows in fetch.rows]


@pytest.fixture
def open_buffer(memory_store, clock):
    return lambda partitions, **settings: Buffer(memory_store, clock, partitions, **settings)


def test_a_quiet_partition_is_in_the_next_poll_whatever_busy_ones_have(open_buffer):
    buffer = open_buffer(5)
    for number in range(4):
        buffer.add(number, 40, 40)
    buffer.add(4, 1)
    assert (4, 1) in buffer.take(10)


def test_quiet_partitions_do_not_wait_for_each_other(open_buffer):
    buffer = open_buffer(4)
    buffer.add(0, 40)
    for number in (1, 2, 3):
        buffer.add(number, 1, 1)
    assert sorted(buffer.take(12)) == [(0, 6), (1, 1), (1, 1), (2, 1), (2, 1), (3, 1), (3, 1)]


def test_busy_partitions_get_at_least_a_share_beside_quiet_ones(open_buffer):
    buffer = open_buffer(4)
    buffer.add(0, 1_000)
    for _ in range(20):
        for number in (1, 2, 3):
            buffer.add(number, 10)
        taken: Counter[int] = Counter()
        for number, count in buffer.take(40):
            taken[number] += count
        assert taken == {0: 10, 1: 10, 2: 10, 3: 10}


@pytest.mark.parametrize("max_records", [1, 7, 30])
def test_each_of_n_partitions_is_in_one_of_n_polls(open_buffer, max_records):
    """Also with fewer records than partitions, and in the middle of a large batch."""
    buffer = open_buffer(6)
    for number in range(6):
        buffer.add(number, 300, 300)
    for _ in range(5):
        polls = [buffer.take(max_records) for _ in range(6)]
        assert {number for poll in polls for number, _ in poll} == set(range(6))


def test_a_partition_with_much_is_taken_by_whole_batches(open_buffer):
    """Small parts of many batches would cost more than they bring."""
    buffer = open_buffer(3)
    for number in range(3):
        buffer.add(number, 100, 100, 100)
    assert buffer.take(200) == [(0, 100), (1, 100)]
    assert buffer.take(200) == [(2, 100), (0, 100)]
    assert buffer.take(150) == [(1, 100), (2, 50)]


def test_rows_of_a_partition_stay_in_order_and_positions_follow_them(open_buffer):
    buffer = open_buffer(3)
    for _ in range(4):
        for number in range(3):
            buffer.add(number, 13, 5, 2, 29)
    seen: dict[int, list[int]] = {number: [] for number in range(3)}
    while fetch := buffer.buffer.take(7):
        for rows in fetch.rows:
            seen[rows.partition.partition] += rows.offsets().tolist()
        for partition, position in fetch.positions.items():
            assert position == seen[partition.partition][-1] + 1
    for offsets in seen.values():
        assert offsets == sorted(set(offsets))
        assert len(offsets) == 4 * 49
    assert buffer.buffer.held_bytes == buffer.buffer.waiting_bytes == 0
    assert [cursor.rows_left for cursor in buffer.cursors] == [0, 0, 0]


def test_a_paused_partition_gives_nothing_and_takes_no_share(open_buffer):
    buffer = open_buffer(2)
    buffer.add(0, 3)
    buffer.add(1, 50)
    buffer.buffer.pause(buffer.cursors[0])
    assert buffer.take(10) == [(1, 10)]
    buffer.buffer.resume(buffer.cursors[0])
    assert buffer.take(10) == [(0, 3), (1, 7)]


def test_an_error_is_reported_although_others_always_have_a_few_rows(open_buffer):
    buffer = open_buffer(3)
    buffer.cursors[0].on_failure(ValueError("damaged"))
    buffer.buffer.make_ready(buffer.cursors[0])
    for _ in range(3):
        buffer.add(1, 2)
        buffer.add(2, 50)
        fetch = buffer.buffer.take(30)
        if fetch.failure is not None:
            return
    pytest.fail("the error is overtaken by rows for ever")


def test_bytes_that_are_fewer_than_the_minimum_wait_from_when_they_were_read(open_buffer):
    buffer = open_buffer(2, fetch_min_bytes=1_000_000, fetch_max_wait_ms=500)
    buffer.add(0, 5)
    buffer.add(1, 1)
    assert sum(count for _, count in buffer.take(6)) == 6
    later_ms = NOW_MS + 10_000
    (batch,) = list(buffer.log.scan(0))[:1]
    cursor = buffer.cursors[0]
    buffer.buffer.add(cursor, [CompletedFetch(cursor.partition, batch, 10)], later_ms)
    assert buffer.buffer.hold_ms(later_ms) == 500
