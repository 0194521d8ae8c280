"""Offset syncs: exact, both ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import CorruptRecordError
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.offsets.offset_syncs import (
    OffsetSyncs,
    OffsetSyncStore,
    find_runs,
    sync_record,
)

FLIGHTS = MirroredPartition("flights", "kafka.flights", 3)


def offset_syncs(*runs, to=Side.LOG):
    made = OffsetSyncs()
    made.add(np.array(runs, np.int64), to)
    return made


def test_records_without_gaps_are_one_run():
    assert find_runs(np.arange(5, 9), np.arange(100, 104)).tolist() == [[5, 100, 4]]


def test_a_gap_on_either_side_begins_a_run():
    kafka, log = np.array([0, 1, 3, 4, 5]), np.array([7, 8, 9, 10, 12])
    assert find_runs(kafka, log).tolist() == [[0, 7, 2], [3, 9, 2], [5, 12, 1]]


def test_an_offset_in_a_run_is_found_on_the_other_side():
    runs = offset_syncs([10, 0, 5], [20, 6, 5])
    assert [runs.translate(each, Side.KAFKA) for each in (10, 14, 20, 22)] == [0, 4, 6, 8]
    assert [runs.translate(each, Side.LOG) for each in (0, 4, 6, 8)] == [10, 14, 20, 22]


def test_an_offset_between_two_runs_is_followed_by_the_second_one():
    runs = offset_syncs([10, 0, 5], [20, 6, 5])
    assert runs.translate(17, Side.KAFKA) == 5  # 5 is the marker: the next record is 6
    assert runs.translate(5, Side.LOG) == 15


def test_offsets_before_the_first_run_are_translated_to_its_start():
    assert offset_syncs([10, 0, 5]).translate(3, Side.KAFKA) == 0


def test_the_end_is_translated_and_what_lies_behind_is_not_mirrored_yet():
    runs = offset_syncs([0, 0, 5])
    assert runs.translate(5, Side.KAFKA) == 5
    assert runs.translate(6, Side.KAFKA) is None
    assert OffsetSyncs().translate(0, Side.KAFKA) is None


def test_a_reader_behind_the_marker_of_the_mirror_has_read_everything():
    assert offset_syncs([0, 0, 5]).translate(6, Side.LOG) == 5
    assert offset_syncs([0, 0, 5]).translate(7, Side.LOG) is None
    assert offset_syncs([0, 0, 5], to=Side.KAFKA).translate(6, Side.KAFKA) == 5
    assert offset_syncs([0, 0, 5], to=Side.KAFKA).translate(6, Side.LOG) is None


def test_a_run_of_no_records_says_how_far_the_source_was_read():
    runs = offset_syncs([0, 0, 5], [8, 5, 0])
    assert runs.translate(8, Side.KAFKA) == 5
    assert runs.translate(9, Side.KAFKA) is None
    assert runs.end(Side.KAFKA) == 8
    assert runs.end(Side.LOG) == 5


def test_a_map_without_records_says_where_what_comes_next_begins():
    runs = offset_syncs([100, 3, 0])  # Kafka's partition was emptied, the log's had 3 records
    assert [runs.translate(each, Side.KAFKA) for each in (7, 100, 101)] == [3, 3, None]
    assert runs.end(Side.KAFKA) == 100
    assert runs.end(Side.LOG) is None, "the way back does not pass these 3"
    runs.add(np.array([[100, 5, 2]], np.int64), Side.LOG)
    assert [runs.translate(each, Side.KAFKA) for each in (7, 100, 101)] == [3, 5, 6]


@pytest.mark.parametrize(
    ("passed", "records", "to"),
    [
        ([100, 3, 0], [100, 0, 3], Side.LOG),
        ([100, 3, 0], [105, 0, 3], Side.LOG),
        ([3, 100, 0], [0, 100, 3], Side.KAFKA),
    ],
)
@pytest.mark.parametrize("is_replayed_first", [True, False])
def test_what_the_other_direction_has_mirrored_since_is_exact(
    passed, records, to, is_replayed_first
):
    """Records that the target had before the mirror began are mirrored on the way back."""
    added = [([passed], to), ([records], to.other)]
    runs = OffsetSyncs()
    for each, side in added if is_replayed_first else reversed(added):
        runs.add(np.array(each, np.int64), side)
    kafka, log, count = records
    for number in range(count + 1):
        assert runs.translate(kafka + number, Side.KAFKA) == log + number
        assert runs.translate(log + number, Side.LOG) == kafka + number
    assert len(runs) == 1


def test_the_runs_of_two_directions_are_one_map():
    runs = offset_syncs([5, 6, 10], to=Side.KAFKA)  # read from Kafka's topic first
    runs.add(np.array([[0, 0, 5]], np.int64), Side.LOG)
    assert [runs.translate(each, Side.LOG) for each in (2, 5, 6, 15, 16)] == [2, 5, 5, 14, 15]
    assert runs.end(Side.LOG) == 16


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=50))
def test_every_mirrored_record_is_found_both_ways(gaps):
    steps = np.array(gaps, np.int64) + 1
    kafka, log = np.cumsum(steps[:, 0]), np.cumsum(steps[:, 1])
    runs = OffsetSyncs()
    for part in np.array_split(np.arange(len(kafka)), 3):
        if len(part):
            runs.add(find_runs(kafka[part], log[part]), Side.LOG)
    assert [runs.translate(int(each), Side.KAFKA) for each in kafka] == log.tolist()
    assert [runs.translate(int(each), Side.LOG) for each in log] == kafka.tolist()
    assert runs.end(Side.KAFKA) == kafka[-1] + 1


def test_runs_come_back_from_their_record():
    runs = np.array([[0, 0, 5], [7, 5, 1]], np.int64)
    offset_syncs = OffsetSyncStore()
    offset_syncs.replay(*sync_record(FLIGHTS, runs), Side.LOG)
    assert offset_syncs[FLIGHTS].translate(7, Side.KAFKA) == 5
    assert offset_syncs.of_topic("flights", Side.KAFKA) == {3: [FLIGHTS]}
    assert offset_syncs.of_topic("flights", Side.LOG) == {}


def test_no_two_records_of_a_map_have_the_same_key():
    passed, following = np.array([[8, 5, 0]]), np.array([[8, 6, 1]])
    assert sync_record(FLIGHTS, passed)[0] != sync_record(FLIGHTS, following)[0]


def pruned(*earliest):
    """Prune a map of three records: 10-14 and 20-21, 22-26, and 30-32 of Kafka."""
    offset_syncs = OffsetSyncStore()
    for runs in ([[10, 0, 5], [20, 6, 2]], [[22, 9, 5]], [[30, 15, 3]]):
        offset_syncs.replay(*sync_record(FLIGHTS, np.array(runs, np.int64)), Side.LOG)
    return offset_syncs[FLIGHTS], offset_syncs[FLIGHTS].prune(earliest, Side.LOG).tolist()


@pytest.mark.parametrize(
    ("earliest", "forgotten"),
    [
        ((21, 8), []),  # Kafka still has offset 21
        ((22, 7), []),
        ((22, 8), [[10, 0, 5]]),
        ((26, 14), [[10, 0, 5]]),
        ((27, 14), [[10, 0, 5], [22, 9, 5]]),
        ((40, 40), [[10, 0, 5], [22, 9, 5]]),  # the mirror goes on behind the last one
    ],
)
def test_records_that_neither_side_has_any_more_are_pruned(earliest, forgotten):
    runs, found = pruned(*earliest)
    assert found == forgotten
    first = [(10, 0), (22, 9), (30, 15)][len(forgotten)]
    assert runs.translate(0, Side.KAFKA) == first[1]
    assert runs.translate(0, Side.LOG) == first[0]
    assert runs.translate(31, Side.KAFKA) == 16
    assert runs.end(Side.KAFKA) == 33
    assert runs.prune(earliest, Side.LOG).tolist() == []


def test_a_pruned_map_comes_back_as_it_was_before_and_after_compaction():
    records = [
        sync_record(FLIGHTS, np.array(runs, np.int64))
        for runs in ([[0, 0, 5]], [[8, 5, 0]], [[8, 6, 2]], [[10, 9, 4]])
    ]
    removed = [(key, None) for key, _ in records[:2]]
    for kept in (records, records[2:]):
        offset_syncs = OffsetSyncStore()
        for key, value in [*kept, *removed]:
            offset_syncs.replay(key, value, Side.LOG)
        assert offset_syncs[FLIGHTS].translate(0, Side.KAFKA) == 6
        assert offset_syncs[FLIGHTS].translate(9, Side.KAFKA) == 7
        assert len(offset_syncs[FLIGHTS]) == 2


def test_runs_of_the_other_direction_stay():
    runs = offset_syncs([0, 0, 5], to=Side.KAFKA)
    for first in (5, 10, 15):
        runs.add(np.array([[first, first + 1, 5]]), Side.LOG)
    assert runs.prune((100, 100), Side.LOG).tolist() == [[5, 6, 5], [10, 11, 5]]
    assert [runs.translate(each, Side.KAFKA) for each in (3, 15, 18)] == [3, 16, 19]
    assert runs.prune((100, 100), Side.KAFKA).tolist() == []


@pytest.mark.parametrize(("key", "value"), [(b"no", b""), (b"{}", b""), (b"[]", b"123")])
def test_what_is_no_map_is_damage(key, value):
    with pytest.raises(CorruptRecordError, match="holds no offset syncs"):
        OffsetSyncStore().replay(key, value, Side.LOG)
