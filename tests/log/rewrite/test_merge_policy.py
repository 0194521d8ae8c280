"""The merge policy: each byte is rewritten a logarithmic number of times, few segments remain."""

from dataclasses import replace

import pytest

from spark_log.config import TopicConfig
from spark_log.log.files.file_names import SegmentName
from spark_log.log.rewrite.merge_policy import (
    MergeCandidate,
    MergePolicy,
    candidates_of_summaries,
    candidates_of_view,
    segment_span_us,
)
from spark_log.log.segment.summary import SegmentSummary
from tests.log.support import open_log
from tests.record.samples import numbered

MB = 1_048_576
DAY_US = 86_400_000_000
POLICY = MergePolicy(segment_bytes=64 * MB, segment_us=7 * DAY_US, fan_in=4)


def candidates(*segments, every_us=1):
    """Return neighbours of these generations and sizes, with increasing times."""
    return [
        MergeCandidate(generation, size, at, at + 1, at * every_us, at * every_us)
        for at, (generation, size) in enumerate(segments)
    ]


def lists(runs):
    return [list(run) for run in runs]


def merged(found, run):
    """Return the candidates after a run was merged."""
    first, last = found[run[0]], found[run[-1]]
    made = MergeCandidate(
        1 + max(found[index].generation for index in run),
        sum(found[index].size_bytes for index in run),
        first.base_offset,
        last.end_offset,
        first.first_us,
        last.last_us,
    )
    return [*found[: run[0]], made, *found[run[-1] + 1 :]]


def settle(policy, found):
    """Merge until there are no more runs; return the candidates and the bytes written."""
    written = 0
    while runs := policy.runs(found):
        run = runs[-1]
        written += sum(found[index].size_bytes for index in run)
        found = merged(found, run)
    return found, written


class TestRuns:
    def test_fan_in_segments_of_one_generation_are_merged_and_fewer_are_not(self):
        assert lists(POLICY.runs(candidates(*[(0, 1)] * 4))) == [[0, 1, 2, 3]]
        assert POLICY.runs(candidates(*[(0, 1)] * 3)) == []

    def test_the_lowest_generation_comes_first(self):
        found = candidates(*[(1, 100)] * 4, *[(0, 1)] * 5)
        assert lists(POLICY.runs(found)) == [[4, 5, 6, 7, 8]]

    def test_lower_generations_are_merged_with_a_higher_one(self):
        found = candidates((1, 9), (0, 1), (1, 9), (1, 9), (1, 9))
        assert lists(POLICY.runs(found)) == [[0, 1, 2, 3, 4]]

    def test_a_lower_generation_counts_as_a_fraction_of_a_higher_one(self):
        """Otherwise a large segment would be rewritten after every few appends."""
        assert POLICY.runs(candidates((1, 9), (1, 9), (0, 1), (0, 1), (0, 1))) == []
        found = candidates((1, 9), (1, 9), (1, 9), *[(0, 1)] * 3, (1, 9))
        assert lists(POLICY.runs(found)) == [[0, 1, 2, 3, 4, 5, 6]]

    def test_only_neighbours_are_merged(self):
        found = candidates((0, 1), (0, 1), (2, 9), (0, 1), (0, 1))
        assert POLICY.runs(found) == []
        found = candidates((0, 1), (0, 1), (0, 40 * MB), (0, 1), (0, 1), (0, 1))
        assert lists(POLICY.runs(found)) == [[0, 1]], "nothing will be added to these"
        assert lists(replace(POLICY, finishes=False).runs(found)) == []

    def test_a_half_full_segment_is_done(self):
        assert POLICY.runs(candidates(*[(0, 32 * MB)] * 10)) == []

    def test_two_segments_that_fill_one_are_merged(self):
        assert lists(POLICY.runs(candidates((1, 20 * MB), (1, 20 * MB)))) == [[0, 1]]
        assert POLICY.runs(candidates((1, 15 * MB), (1, 15 * MB))) == []

    def test_no_merge_exceeds_segment_bytes(self):
        found, _ = settle(POLICY, candidates(*[(0, 9 * MB)] * 50))
        assert max(each.size_bytes for each in found) <= 64 * MB
        assert [each.size_bytes for each in found[:-1]] == [63 * MB] * 7

    def test_no_merge_has_too_many_offsets(self):
        large = [MergeCandidate(0, 1, at * 2**30, (at + 1) * 2**30, 0, 0) for at in range(8)]
        policy = replace(POLICY, fan_in=1)
        assert all(len(run) < 2 for run in policy.runs(large))

    def test_a_merge_has_a_limited_number_of_segments(self):
        runs = POLICY.runs(candidates(*[(0, 1)] * 2500))
        assert [len(run) for run in runs] == [1000, 1000, 500]

    def test_an_appender_merges_no_more_bytes_than_it_may_wait_for(self):
        policy = replace(POLICY, most_bytes=8 * MB, finishes=False)
        assert policy.runs(candidates(*[(0, 3 * MB)] * 100)) == []
        assert lists(policy.runs(candidates(*[(0, 2 * MB)] * 8))) == [[0, 1, 2, 3], [4, 5, 6, 7]]


class TestTime:
    def test_a_segment_spans_no_more_than_segment_ms(self):
        found, _ = settle(POLICY, candidates(*[(0, 2 * MB)] * 30, every_us=DAY_US))
        assert [each.last_us - each.first_us for each in found[:-1]] == [7 * DAY_US] * 3
        assert max(each.last_us - each.first_us for each in found) <= 7 * DAY_US

    def test_without_retention_by_time_a_segment_spans_any_time(self):
        config = TopicConfig.parse({"retention.ms": "-1", "segment.ms": "1000"})
        assert segment_span_us(config) is None
        assert segment_span_us(TopicConfig.parse({"segment.ms": "1000"})) == 1_000_000
        policy = replace(POLICY, segment_us=None)
        found, _ = settle(policy, candidates(*[(0, 2 * MB)] * 30, every_us=DAY_US))
        assert max(each.size_bytes for each in found) > 16 * MB

    def test_small_segments_are_merged_in_spite_of_segment_ms(self):
        """Otherwise old records that are replayed one by one would never be merged."""
        found, _ = settle(POLICY, candidates(*[(0, 1000)] * 900, every_us=30 * DAY_US))
        assert len(found) < 2 * POLICY.fan_in

    def test_a_missing_smallest_timestamp_is_taken_from_the_summary_before(self):
        summaries = [
            SegmentSummary(SegmentName(0), 1, 1, 10, 3, 5),
            SegmentSummary(SegmentName(1), 2, 1, 10, None, 9),
            SegmentSummary(SegmentName(2), 3, 1, 10, None, 7),
        ]
        found = candidates_of_summaries(summaries)
        assert [(each.first_us, each.last_us) for each in found] == [(3, 5), (5, 9), (7, 7)]


class TestCost:
    @pytest.mark.parametrize("fan_in", [2, 8, 32])
    def test_each_byte_is_rewritten_a_logarithmic_number_of_times(self, fan_in):
        policy, found, written = replace(POLICY, fan_in=fan_in), [], 0
        for offset in range(5000):
            found.append(MergeCandidate(0, 1000, offset, offset + 1, 0, 0))
            found, more = settle(policy, found)
            written += more
        levels = 1
        while fan_in**levels < 5000:
            levels += 1
        assert written <= levels * 5000 * 1000
        assert len(found) <= levels * (fan_in - 1)
        assert max(each.generation for each in found) <= levels

    def test_a_merged_log_needs_no_more_merges(self):
        found, _ = settle(POLICY, candidates(*[(0, MB)] * 300))
        assert settle(POLICY, found) == (found, 0)


def test_candidates_can_be_made_from_a_listing(memory_store):
    log = open_log(memory_store)
    for count in (2, 3):
        log.append(numbered(0, count))
    first, second = candidates_of_view(log.observe())
    assert (first.base_offset, first.end_offset, first.generation) == (0, 2, 0)
    assert (second.base_offset, second.end_offset) == (2, 5)
    assert first.size_bytes > 100
