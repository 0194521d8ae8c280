"""The names and tombstones that the table needs are kept."""

import math

import pytest

from spark_log.log.files import SegmentName
from spark_log.table import PartitionTable, first_version_needed, is_needed, tombstone_limit
from spark_log.table.partition_table import CleanupPolicy, TableSetting

DELETE = TableSetting(CleanupPolicy.DELETE, 0)
NAME, WIDER, NEXT = SegmentName(0, 9, 2), SegmentName(0, 19, 3), SegmentName(20, 29, 2)
OLD = PartitionTable(DELETE, 0, 10, (NAME,))
NEW = PartitionTable(DELETE, 0, 20, (WIDER,))


class TestNames:
    def test_one_that_the_newest_version_has_is_needed(self):
        assert is_needed(WIDER, [NEW])

    def test_one_that_an_older_version_has_is_needed_for_its_readers(self):
        assert is_needed(NAME, [OLD, NEW])
        assert not is_needed(NAME, [NEW])

    def test_one_that_the_next_version_could_add_is_needed(self):
        assert is_needed(NEXT, [NEW])
        assert is_needed(WIDER, [OLD])

    def test_what_an_older_version_could_have_added_is_not(self):
        ended = PartitionTable(TableSetting(CleanupPolicy.NONE, 1), 0, 0)
        assert not is_needed(NEXT, [NEW, ended])
        assert is_needed(WIDER, [NEW, ended])

    def test_without_a_table_none_is_needed(self):
        assert not is_needed(NAME, [])


@pytest.mark.parametrize(
    ("before_us", "first"), [(5, 0), (10, 0), (19, 0), (20, 1), (29, 1), (30, 2), (99, 2)]
)
def test_the_first_version_needed_is_the_newest_one_of_that_time(before_us, first):
    assert first_version_needed({0: 10, 1: 20, 2: 30}, before_us) == first


def test_a_version_whose_time_is_later_than_the_nexts_is_needed():
    assert first_version_needed({0: 10, 1: 40, 2: 30}, 35) == 0


def test_a_version_that_was_deleted_is_told():
    assert first_version_needed({7: 20, 8: 30}, 15) == -1
    assert first_version_needed({7: 20, 8: 30}, 25) == 7


def test_without_versions_none_is_needed():
    assert first_version_needed({}, 5) == -1


def test_tombstones_stay_from_the_lowest_end_on():
    assert tombstone_limit([OLD, NEW]) == 10
    assert tombstone_limit([NEW]) == 20


def test_tombstones_of_a_table_without_files_all_stay():
    assert tombstone_limit([PartitionTable(DELETE, 7, 7)]) == 7


def test_without_a_table_no_tombstone_stays():
    assert tombstone_limit([]) == math.inf
    assert tombstone_limit([PartitionTable()]) == math.inf
