"""The files that the next version of a table may have (protocol B1, B2, B7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.files import MAX_MERGE_GENERATION, SegmentName
from spark_log.table.listing import Compaction, LogFiles
from spark_log.table.next_version import (
    could_add,
    next_partition,
    with_files,
    with_setting,
    with_start,
)
from spark_log.table.partition_table import CleanupPolicy, PartitionTable, TableSetting, end_offset

NONE, DELETE, COMPACT = (
    TableSetting(policy, 3)
    for policy in (CleanupPolicy.NONE, CleanupPolicy.DELETE, CleanupPolicy.COMPACT)
)
C1, C2, C3 = (MAX_MERGE_GENERATION + number for number in (1, 2, 3))


def segment(base, end, generation=2):
    return SegmentName(base, end - 1, generation)


def table(*files, start=None, setting=DELETE, compaction=0):
    begin = files[0].base_offset if files else 0
    start = begin if start is None else start
    return PartitionTable(
        setting, start, end_offset(files[-1]) if files else start, files, compaction
    )


def added(before, *offered, log_start=0):
    """Return the ranges of the files after a commit with these segments on offer."""
    after = with_files(before, LogFiles(log_start, offered))
    return [(name.base_offset, end_offset(name)) for name in after.files]


class TestSegments:
    def test_the_first_begins_at_the_start(self):
        assert added(table(), segment(0, 10)) == [(0, 10)]
        assert added(table(), segment(1, 10)) == []

    def test_the_next_begins_at_the_end(self):
        before = table(segment(0, 10))
        assert added(before, segment(10, 20), segment(20, 25)) == [(0, 10), (10, 20), (20, 25)]
        assert added(before, segment(11, 20)) == [(0, 10)]
        assert added(before, segment(5, 20)) == [(0, 10)]

    def test_of_several_the_widest_is_taken(self):
        assert added(table(), segment(0, 5), segment(0, 20), segment(5, 10)) == [(0, 20)]

    def test_whole_files_are_replaced(self):
        before = table(segment(0, 10), segment(10, 20), segment(20, 30))
        assert added(before, segment(0, 20)) == [(0, 20), (20, 30)]
        assert added(before, segment(10, 25)) == [(0, 10), (10, 20), (20, 30)]
        assert added(before, segment(15, 30)) == [(0, 10), (10, 20), (20, 30)]

    def test_a_wide_merge_may_go_on_beyond_the_end(self):
        """Its inputs may not be Parquet, and then no other file begins at the table's end."""
        assert added(table(segment(0, 10), segment(10, 20)), segment(10, 90)) == [(0, 10), (10, 90)]

    def test_a_rebuilt_table_begins_with_the_segments_of_a_log_that_it_could_not_follow(self):
        """A compaction replaced a part of the table's last file (protocol B16)."""
        offered = segment(0, 8, C1), segment(8, 20, 9)
        assert added(table(segment(0, 10)), *offered) == [(0, 10)]
        assert added(table(), *offered) == [(0, 8), (8, 20)]

    def test_of_one_range_the_higher_generation_is_taken(self):
        before = table(segment(0, 10, 5))
        for generation, expected in ((4, 5), (5, 5), (6, 6)):
            offered = LogFiles(0, (segment(0, 10, generation),))
            assert with_files(before, offered).files[0].generation == expected

    def test_a_wider_merge_needs_no_higher_generation(self):
        before = table(segment(0, 10, 5), segment(10, 20, 5))
        assert added(before, segment(0, 20, 2)) == [(0, 20)]

    def test_before_the_start_nothing_counts(self):
        before = table(segment(0, 10, 2), segment(10, 20), start=7)
        assert added(before, segment(5, 20)) == [(5, 20)]
        assert added(before, segment(0, 7, 9)) == [(0, 10), (10, 20)]
        assert added(before, segment(5, 10, 3)) == [(5, 10), (10, 20)]

    def test_a_merge_replaces_no_file_of_a_compaction(self):
        """A topic that is no longer compacted: the merge has what the compaction left out."""
        before = table(segment(0, 10, C1))
        assert added(before, segment(0, 10), segment(0, 20)) == [(0, 10)]
        assert added(before, segment(10, 20)) == [(0, 10), (10, 20)]


class TestStart:
    def test_files_before_it_are_removed(self):
        before = table(segment(0, 10), segment(10, 20))
        after = with_start(before, 10)
        assert (after.start, after.end, after.files) == (10, 20, (segment(10, 20),))

    def test_the_file_that_it_cuts_stays(self):
        after = with_start(table(segment(0, 10), segment(10, 20)), 9)
        assert (after.start, len(after.files)) == (9, 2)

    def test_it_may_pass_the_end(self):
        after = with_start(table(segment(0, 10)), 50)
        assert (after.start, after.end, after.files) == (50, 50, ())
        assert added(after, segment(40, 60)) == [(40, 60)]

    def test_it_never_goes_back(self):
        before = table(segment(0, 10), start=5)
        assert with_start(before, 3) is before

    def test_it_follows_the_log(self):
        before = table(segment(0, 10), segment(10, 20))
        assert added(before, log_start=12) == [(10, 20)]


class TestCompactions:
    whole = Compaction(C2, 30, (segment(0, 10, C2), segment(10, 30, C2)))

    def commit(self, before, found):
        return with_files(before, LogFiles(0, (segment(0, 90),), found))

    def test_all_files_of_it_are_added_and_no_merge(self):
        after = self.commit(table(setting=COMPACT), self.whole)
        assert after == PartitionTable(COMPACT, 0, 30, self.whole.files, C2)

    def test_without_one_nothing_is_added(self):
        before = table(setting=COMPACT)
        assert self.commit(before, None) is before

    def test_a_later_one_replaces_it(self):
        before = self.commit(table(setting=COMPACT), self.whole)
        later = Compaction(C3, 40, (segment(0, 40, C3),))
        assert self.commit(before, later).files == later.files

    @pytest.mark.parametrize("generation", [C1, C2])
    def test_an_earlier_one_does_not(self, generation):
        before = self.commit(table(setting=COMPACT), self.whole)
        earlier = Compaction(generation, 40, (segment(0, 40, generation),))
        assert self.commit(before, earlier) is before

    def test_the_end_does_not_go_back(self):
        before = self.commit(table(setting=COMPACT), self.whole)
        shorter = Compaction(C3, 20, (segment(0, 20, C3),))
        assert self.commit(before, shorter) is before

    def test_the_first_after_a_change_of_the_policy_replaces_all(self):
        before = table(segment(0, 50), segment(50, 90, C1), setting=COMPACT)
        after = self.commit(before, self.whole)
        assert (after.files, after.end, after.compaction) == (self.whole.files, 30, C2)

    def test_it_has_to_begin_at_the_start(self):
        late = Compaction(C2, 30, (segment(10, 30, C2),))
        before = table(setting=COMPACT)
        assert self.commit(before, late) is before

    def test_what_lies_before_the_start_is_left_out(self):
        after = self.commit(table(setting=COMPACT, start=12), self.whole)
        assert (after.files, after.start, after.end) == (self.whole.files[1:], 12, 30)


class TestSettings:
    log = LogFiles(4, (segment(4, 10),))

    def test_a_change_adds_no_file(self):
        off = PartitionTable()
        on = next_partition(off, DELETE, self.log)
        assert on == PartitionTable(DELETE, 4, 4)
        assert next_partition(on, DELETE, self.log).files == (segment(4, 10),)

    def test_the_table_is_ended_without_files(self):
        after = with_setting(table(segment(0, 10)), TableSetting(CleanupPolicy.NONE, 4), 0)
        assert (after.files, after.end) == ((), 0)

    def test_without_a_table_nothing_changes(self):
        before = PartitionTable(NONE, 7, 7)
        assert next_partition(before, NONE, self.log) == before

    def test_another_policy_keeps_the_files(self):
        before = table(segment(0, 10, C1), setting=COMPACT, compaction=C1)
        after = with_setting(before, TableSetting(CleanupPolicy.DELETE, 4), 0)
        assert (after.files, after.end, after.compaction) == (before.files, 10, 0)

    @pytest.mark.parametrize("metadata_offset", [2, 3])
    def test_an_older_one_changes_nothing(self, metadata_offset):
        before = table(segment(0, 10))
        assert with_setting(before, TableSetting(CleanupPolicy.NONE, metadata_offset), 0) is before


class TestFilesThatCouldBeAdded:
    before = table(segment(0, 10), segment(10, 20, 4), start=3)

    @pytest.mark.parametrize(
        "name",
        [segment(20, 30), segment(25, 30), segment(10, 30), segment(0, 20), segment(10, 20, 5)],
    )
    def test_yes(self, name):
        assert could_add(self.before, name)

    @pytest.mark.parametrize(
        "name",
        [segment(0, 3), segment(0, 5), segment(10, 15), segment(10, 20, 3), segment(5, 30)],
    )
    def test_no(self, name):
        assert not could_add(self.before, name)

    def test_none_without_a_table(self):
        assert not could_add(table(setting=NONE), segment(0, 10))

    def test_of_a_compacted_topic_only_what_later_compactions_wrote(self):
        before = table(segment(0, 10, C2), setting=COMPACT, compaction=C2)
        names = [segment(0, 10, generation) for generation in (5, C1, C2, C3)]
        assert [could_add(before, name) for name in names] == [False, False, False, True]


ranges = st.tuples(st.integers(0, 30), st.integers(1, 15), st.integers(2, 4))
segments = st.lists(
    ranges.map(lambda pair: segment(pair[0], pair[0] + pair[1], pair[2])), max_size=8
)


@given(st.lists(st.tuples(st.integers(0, 40), segments), max_size=6))
def test_whatever_is_on_offer_files_follow_each_other(listings):
    now = PartitionTable(DELETE)
    for log_start, offered in listings:
        before, now = now, with_files(now, LogFiles(log_start, tuple(offered)))
        assert now.start == max(before.start, log_start)
        assert now.end >= before.end
        position = now.start
        for index, name in enumerate(now.files):
            assert name.base_offset == position or (index == 0 and name.base_offset < position)
            assert end_offset(name) > position
            position = end_offset(name)
        assert position == now.end
        assert with_files(now, LogFiles(log_start, tuple(offered))) == now


@given(segments, segments)
def test_what_could_not_be_added_is_not_added(first, second):
    now = with_files(PartitionTable(DELETE), LogFiles(0, tuple(first)))
    refused = [name for name in second if not could_add(now, name) and name not in now.files]
    assert with_files(now, LogFiles(0, tuple(refused))) == now
