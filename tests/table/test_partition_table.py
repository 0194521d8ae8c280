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


def actions_of(before, after, partition=1, tags=lambda name: {}):
    files = {
        name: DataFile(parquet_path(DIRECTORY, name), 5, 10, tags=tags(name))
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


class TestDataChange:
    """Delta's ``dataChange``: false if the rows of a file are those of files on the other side."""

    before = PartitionTable(SETTING, 0, 20, (A, B))

    def changes(self, before, after, tags=lambda name: {}):
        """Return the flag of each file that is added or removed."""
        found = {}
        for action in actions_of(before, after, tags=tags):
            for kind in ("add", "remove"):
                if kind in action:
                    path = action[kind]["path"].removeprefix(f"{DIRECTORY}/")
                    found[SegmentName.parse(path)] = action[kind]["dataChange"]
        return found

    def test_a_merge_that_replaces_merges_changes_no_row(self):
        found = self.changes(self.before, PartitionTable(SETTING, 0, 20, (WIDE,)))
        assert found == {A: False, B: False, WIDE: False}

    def test_a_file_behind_the_end_has_new_rows_and_the_merge_beside_it_has_none(self):
        last = SegmentName(20, 29, 2, True)
        found = self.changes(self.before, PartitionTable(SETTING, 0, 30, (WIDE, last)))
        assert found == {A: False, B: False, WIDE: False, last: True}

    def test_a_merge_that_goes_on_behind_the_end_has_new_rows(self):
        longer = SegmentName(10, 29, 3, True)
        found = self.changes(self.before, PartitionTable(SETTING, 0, 30, (A, longer)))
        assert found == {B: True, longer: True}

    def test_files_before_the_start_are_deleted_and_the_merge_behind_them_is_none(self):
        behind = SegmentName(10, 19, 3, True)
        found = self.changes(self.before, PartitionTable(SETTING, 10, 20, (behind,)))
        assert found == {A: True, B: False, behind: False}

    def test_a_merge_that_has_rows_from_before_the_start_changes_them(self):
        cut = PartitionTable(SETTING, 12, 20, (B,))
        found = self.changes(cut, PartitionTable(SETTING, 12, 20, (WIDE,)))
        assert found == {B: True, WIDE: True}

    def test_a_compaction_leaves_rows_out(self):
        compacted = SegmentName(0, 19, 1_000_001, True)
        found = self.changes(self.before, PartitionTable(SETTING, 0, 20, (compacted,)))
        assert found == {A: True, B: True, compacted: True}

    def test_a_merge_with_other_typed_columns_changes_rows(self):
        tags = {A: {"sparkLog.columns": "a"}, B: {"sparkLog.columns": "a"}}
        merged = PartitionTable(SETTING, 0, 20, (WIDE,))
        for columns, is_change in (("a", False), ("b", True)):
            tags[WIDE] = {"sparkLog.columns": columns}
            found = self.changes(self.before, merged, tags.get)
            assert set(found.values()) == {is_change}


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
