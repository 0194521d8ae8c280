"""Division of offset ranges into the pieces that tasks read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log import TopicPartition
from spark_log.datasource.read.offset_ranges import MAX_SKEW, OffsetRange, SegmentMark, split_ranges

A, B, C = (TopicPartition(name, 1) for name in ("a", "b", "c"))


def split(*wanted, least=None, most=None):
    """Split ``(partition, start, end[, segments])``; returns ``(partition, start, end)`` of
    pieces.
    """
    ranges = [OffsetRange(tp, start, end, *segments) for tp, start, end, *segments in wanted]
    pieces = split_ranges(ranges, min_partitions=least, max_records_per_partition=most)
    return [(piece.topic_partition, piece.start, piece.end) for piece in pieces]


def sizes(pieces):
    return [end - start for _, start, end in pieces]


def evenly(count, records, size_bytes=1000):
    """Return marks of segments with the same number of records and bytes."""
    return tuple(SegmentMark(number * records, size_bytes) for number in range(count))


class TestWithoutAMinimum:
    def test_each_range_is_one_piece(self):
        assert split((A, 1, 2), (B, 0, 900)) == [(A, 1, 2), (B, 0, 900)]

    def test_empty_ranges_are_left_out(self):
        assert split((A, 1, 2), (B, 1, 1), (C, 5, 3)) == [(A, 1, 2)]

    def test_nothing_to_read_gives_nothing(self):
        assert split(least=4) == split((A, 3, 3), least=4, most=1) == []


class TestMinPartitions:
    def test_as_many_ranges_as_wanted_stay_whole(self):
        wanted = [(A, 1, 2), (B, 1, 2), (C, 1, 2)]
        assert split(*wanted, least=3) == wanted

    def test_more_ranges_than_wanted_stay_whole(self):
        wanted = [(A, 1, 5), (B, 1, 21)]
        assert split(*wanted, least=1) == wanted

    def test_one_range_is_cut_evenly(self):
        assert split((A, 1, 5), least=4) == [(A, 1, 2), (A, 2, 3), (A, 3, 4), (A, 4, 5)]

    def test_what_does_not_divide_evenly_differs_by_one(self):
        assert split((A, 1, 11), least=3) == [(A, 1, 4), (A, 4, 7), (A, 7, 11)]

    def test_a_skewed_range_is_cut_and_a_small_one_is_not(self):
        assert split((A, 1, 5), (B, 1, 21), least=4) == [
            (A, 1, 5),
            (B, 1, 7),
            (B, 7, 14),
            (B, 14, 21),
        ]

    def test_a_very_skewed_range_takes_all_cuts(self):
        assert split((A, 1, 2), (B, 1, 1001), least=4) == [
            (A, 1, 2),
            (B, 1, 334),
            (B, 334, 667),
            (B, 667, 1001),
        ]

    def test_empty_ranges_do_not_count(self):
        assert split((A, 1, 1), (B, 1, 21), least=4) == [
            (B, 1, 6),
            (B, 6, 11),
            (B, 11, 16),
            (B, 16, 21),
        ]
        assert len(split((A, 1, 5), (B, 1, 21), (C, 1, 1), least=4)) == 4

    def test_no_offset_is_dropped(self):
        pieces = split((A, 0, 10), (B, 0, 10), (C, 0, 1), least=6)
        assert sum(sizes(pieces)) == 21
        assert len(pieces) == 6

    def test_large_ranges_get_cuts_by_their_size(self):
        pieces = split((A, 0, 10_000), (B, 0, 15_000), (C, 0, 20_000), least=9)
        assert sizes(pieces) == [5000] * 9

    def test_one_small_and_two_large_ranges(self):
        assert split((A, 0, 500), (B, 0, 12_000), (C, 0, 15_001), least=6) == [
            (A, 0, 500),
            (B, 0, 6000),
            (B, 6000, 12_000),
            (C, 0, 5000),
            (C, 5000, 10_000),
            (C, 10_000, 15_001),
        ]

    def test_two_small_and_one_large_range(self):
        pieces = split((A, 0, 1), (B, 0, 1), (C, 0, 10_000), least=6)
        assert sizes(pieces) == [1, 1, 2500, 2500, 2500, 2500]

    def test_more_pieces_than_offsets_are_not_to_be_had(self):
        assert sizes(split((A, 0, 3), (B, 0, 1), least=100)) == [1, 1, 1, 1]

    def test_more_than_the_minimum_where_else_one_would_be_skewed(self):
        wanted = [(TopicPartition("t", number), 0, 10) for number in range(50)]
        pieces = split(*wanted, (A, 0, 10_000), least=52)
        assert max(sizes(pieces)) <= MAX_SKEW * sum(sizes(pieces)) / len(pieces) + 1


class TestMaxRecordsPerPartition:
    def test_no_piece_has_more(self):
        assert split((A, 0, 10), (B, 5, 8), most=4) == [
            (A, 0, 3),
            (A, 3, 6),
            (A, 6, 10),
            (B, 5, 8),
        ]

    def test_goes_before_the_minimum(self):
        pieces = split((A, 0, 10), (B, 0, 2), most=5, least=6)
        assert len(pieces) == 6
        assert max(sizes(pieces)) <= 5

    def test_is_enough_where_it_makes_enough_pieces(self):
        assert len(split((A, 0, 10), most=2, least=3)) == 5


class TestSegments:
    def test_cuts_fall_where_segments_begin(self):
        pieces = split((A, 0, 1000, evenly(10, 100)), least=3)
        assert pieces == [(A, 0, 300), (A, 300, 700), (A, 700, 1000)]

    def test_but_not_where_that_would_make_a_piece_too_large(self):
        marks = (SegmentMark(0, 700), SegmentMark(700, 300))
        assert split((A, 0, 1000, marks), least=2) == [(A, 0, 500), (A, 500, 1000)]

    def test_bytes_count_and_not_offsets(self):
        marks = (SegmentMark(0, 9000), SegmentMark(100, 1000))
        pieces = split((A, 0, 1000, marks), least=10)
        assert [end <= 100 for _, _, end in pieces].count(True) == 9

    def test_a_range_may_begin_and_end_within_a_segment(self):
        pieces = split((A, 50, 950, evenly(10, 100)), least=2)
        assert pieces == [(A, 50, 500), (A, 500, 950)]

    def test_maximum_is_kept_where_cuts_move(self):
        marks = tuple(SegmentMark(start, 1) for start in (0, 116, 244, 368))
        pieces = split((A, 0, 480, marks), most=130)
        assert pieces == [(A, 0, 116), (A, 116, 244), (A, 244, 360), (A, 360, 480)]

    def test_segments_without_bytes_count_by_offsets(self):
        assert sizes(split((A, 0, 100, evenly(2, 50, 0)), least=4)) == [25] * 4


@st.composite
def _ranges(draw):
    wanted = []
    for number in range(draw(st.integers(0, 6))):
        records = draw(st.lists(st.integers(1, 300), min_size=1, max_size=8))
        start = draw(st.integers(0, records[0] - 1))
        marks, base = [], 0
        for count in records:
            marks.append(SegmentMark(base, count * draw(st.integers(1, 9))))
            base += count
        wanted.append((TopicPartition("t", number), start, base, tuple(marks)))
    return wanted


@given(
    _ranges(),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 200),
    st.booleans(),
)
def test_pieces_are_the_ranges_whatever_is_asked_for(wanted, least, most, with_segments):
    if not with_segments:
        wanted = [(tp, start, end) for tp, start, end, _ in wanted]
    pieces = split(*wanted, least=least, most=most)

    joined: list[tuple[TopicPartition, int, int]] = []
    for tp, start, end in pieces:
        assert start < end
        if joined and joined[-1][0] == tp:
            assert joined[-1][2] == start
            joined[-1] = (tp, joined[-1][1], end)
        else:
            joined.append((tp, start, end))
    assert joined == [(tp, start, end) for tp, start, end, *_ in wanted]
    if most is not None:
        assert all(size <= most for size in sizes(pieces))
    if least is not None and not with_segments:
        assert len(pieces) >= min(least, sum(sizes(pieces)))


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 60))
def test_no_piece_is_skewed(counts, least):
    wanted = [(TopicPartition("t", number), 0, count) for number, count in enumerate(counts)]
    pieces = split(*wanted, least=least)
    if len(pieces) > len(counts):
        mean = sum(counts) / len(pieces)
        assert max(sizes(pieces)) <= max(1, MAX_SKEW * mean + 1)


@pytest.mark.parametrize("least", [1, 7, 1000])
def test_many_ranges_are_cut_quickly(least):
    """The work is bounded: one step for each piece."""
    wanted = [(TopicPartition("t", number), 0, number + 1) for number in range(500)]
    assert len(split(*wanted, least=least)) >= min(least, 500)
