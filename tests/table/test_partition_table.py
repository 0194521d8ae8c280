"""The content of a version for one partition, and the actions that contain it."""

import json

from spark_log.delta import DataFile, TableState
from spark_log.delta.parse import parse_version
from spark_log.log.files import SegmentName
from spark_log.table import (
    PartitionTable,
    changes,
    parquet_path,
    parse_partition,
    parse_setting,
    read_of_both,
)
from spark_log.table.partition_table import SETTING_PROPERTY, CleanupPolicy, TableSetting

TOPIC_ID, DIRECTORY = "BAmGwfbUQVSsLzdzBSFxhA", "_p/flights-1"
SETTING = TableSetting(CleanupPolicy.COMPACT, 17)
A, B, WIDE = (
    SegmentName(0, 9, 2, True),
    SegmentName(10, 19, 2, True),
    SegmentName(0, 19, 3, True),
)


def actions_of(before, after, partition=1):
    files = {
        name: DataFile(parquet_path(DIRECTORY, name), 5, 10)
        for name in (*before.files, *after.files)
    }
    return changes(
        before,
        after,
        topic_id=TOPIC_ID,
        partition=partition,
        directory=DIRECTORY,
        data_files=files,
        time_ms=0,
    )


def apply(state, actions):
    metadata = {"id": "x", "configuration": {SETTING_PROPERTY: SETTING.to_property()}}
    body = "\n".join(json.dumps(each) for each in [{"metaData": metadata}, *actions])
    state.apply(parse_version("t", state.version + 1, body.encode()))


def test_what_a_version_says_is_read_back():
    state = TableState()
    first = PartitionTable(SETTING, 3, 20, (A, B))
    second = PartitionTable(SETTING, 3, 20, (WIDE,), 1_000_001)
    for before, after in ((PartitionTable(), first), (first, second)):
        apply(state, actions_of(before, after))
        assert parse_partition(state, TOPIC_ID, 1, DIRECTORY) == after


def test_partitions_do_not_mix():
    state = TableState()
    apply(state, actions_of(PartitionTable(), PartitionTable(SETTING, 3, 20, (A, B))))
    other = parse_partition(state, TOPIC_ID, 11, "_p/flights-11")
    assert other == PartitionTable(SETTING)


def test_files_of_others_are_no_segments():
    state = TableState()
    other = DataFile(f"{DIRECTORY}/part-0001.parquet", 5, 1)
    apply(state, [other.to_add(0)])
    assert parse_partition(state, TOPIC_ID, 1, DIRECTORY).files == ()


def test_without_a_version_there_is_no_table():
    assert parse_setting(TableState()) == TableSetting(CleanupPolicy.NONE, -1)


def is_change(before, after):
    kinds = ("add", "remove")
    found = [each[kind] for each in actions_of(before, after) for kind in kinds if kind in each]
    return {each["dataChange"] for each in found}


def test_a_merge_that_replaces_merges_changes_no_row():
    before = PartitionTable(SETTING, 0, 20, (A, B))
    assert is_change(before, PartitionTable(SETTING, 0, 20, (WIDE,))) == {False}


def test_a_compaction_and_a_longer_table_do():
    before = PartitionTable(SETTING, 0, 20, (A, B))
    compacted = SegmentName(0, 19, 1_000_001, True)
    assert is_change(before, PartitionTable(SETTING, 0, 20, (compacted,))) == {True}
    longer = PartitionTable(SETTING, 0, 30, (A, B, SegmentName(20, 29, 2, True)))
    assert is_change(before, longer) == {True}


class TestReadOfBoth:
    table = PartitionTable(SETTING, 3, 20, (A, B))

    def test_the_log_is_read_from_the_tables_end_on(self):
        plan = read_of_both(self.table, 0)
        assert (plan.start, plan.files, plan.log_start) == (3, (A, B), 20)

    def test_it_begins_at_the_higher_start(self):
        plan = read_of_both(self.table, 12)
        assert (plan.start, plan.files, plan.log_start) == (12, (B,), 20)

    def test_a_log_that_starts_behind_the_table_is_read_alone(self):
        plan = read_of_both(self.table, 25)
        assert (plan.start, plan.files, plan.log_start) == (25, (), 25)
