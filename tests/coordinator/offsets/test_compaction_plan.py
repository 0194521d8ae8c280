"""Processes that compact the table at the same time take different files."""

from spark_log.coordinator.offsets.compaction import FILES_PER_TIER, Plan, plan
from spark_log.delta import DataFile

LARGE = DataFile("large", 1, FILES_PER_TIER)


def small(count, first=0):
    return [DataFile(f"small-{number}", 1, 4) for number in range(first, first + count)]


def test_a_tier_that_is_not_full_stays():
    assert plan([LARGE, *small(FILES_PER_TIER - 1)]) is None


def test_the_first_files_of_a_full_tier_are_merged():
    files = small(FILES_PER_TIER + 3)
    assert plan([LARGE, *files]) == Plan(tuple(files[:FILES_PER_TIER]), False)


def test_the_highest_tier_is_merged_with_all_files():
    files = small(FILES_PER_TIER + 3)
    assert plan(files) == Plan(tuple(files), True)


def test_no_file_is_taken_twice_while_earlier_ones_are_merged():
    taken: list[DataFile] = []
    for times in (1, 2, 3):
        found = plan([LARGE, *small(times * FILES_PER_TIER + times)])
        assert found is not None
        assert not found.is_full
        taken += found.inputs
    assert taken == small(3 * FILES_PER_TIER)


def test_files_that_others_left_are_merged_together():
    files = small(4 * FILES_PER_TIER + 1)
    assert plan([LARGE, *files]) == Plan(tuple(files), False)
