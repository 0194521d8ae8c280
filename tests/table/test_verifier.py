"""Each difference between a table and its log is found when it is planted."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from spark_log.delta import parse_version
from spark_log.errors import InvalidConfigurationError
from spark_log.log.files import SegmentName
from spark_log.table import (
    TABLE_PROTOCOL,
    TableFindingKind,
    TopicTable,
    read_data_file,
    rebuild_table,
    verify_partition,
    verify_table,
)
from tests.table.test_committer import COMPACT


def planted(root, change):
    """Append a version with these changed lines of actions; return its differences."""
    table = root.table
    version = table.refresh()
    body = "".join(f"{json.dumps(each)}\n" for each in change(table, version))
    parse_version("t", version.number + 1, body.encode(), TABLE_PROTOCOL)
    path = root.directory / "_delta_log" / f"{version.number + 1:020}.json"
    path.write_text(body)
    return root.findings()


def transaction(table, what, version):
    return {"txn": {"appId": f"spark_log/{table.topic.topic_id}/0/{what}", "version": version}}


@pytest.fixture
def filled(root):
    """A root whose table has three files of ten records each, and a log that goes on."""
    for at in range(3):
        root.fill(5, start=10 * at)
        root.clean()
    root.fill(2, start=50)
    partition = root.partition()
    assert [(name.base_offset, name.last_offset) for name in partition.files] == [
        (0, 9),
        (10, 19),
        (20, 29),
    ]
    return root


def kinds(findings):
    return {(each.kind, each.offset) for each in findings}


class TestDifferences:
    def test_none(self, filled):
        assert filled.findings() == []

    def test_a_gap(self, filled):
        def without_the_second(table, version):
            name = version.partitions[0].files[1]
            yield version.file_of(0, name).to_remove(0, is_change=True)

        found = kinds(planted(filled, without_the_second))
        assert (
            found == {(TableFindingKind.GAP, 10), (TableFindingKind.GAP, 20)}
            or (
                TableFindingKind.GAP,
                10,
            )
            in found
        )

    def test_a_record_twice(self, filled):
        def with_an_overlapping_file(table, version):
            first = filled.directory / version.path_of(0, version.partitions[0].files[0])
            name = SegmentName(0, 9, 9, is_parquet=True)
            (first.parent / name.file_name).write_bytes(first.read_bytes())
            file = version.file_of(0, version.partitions[0].files[0])
            yield replace(file, path=f"t-0/{name.file_name}").to_add(0)

        assert (TableFindingKind.DUPLICATE, 0) in kinds(planted(filled, with_an_overlapping_file))

    def test_a_table_that_is_ahead_of_the_log(self, filled):
        def with_a_later_end(table, version):
            yield transaction(table, "end", 99)

        found = kinds(planted(filled, with_a_later_end))
        assert (TableFindingKind.AHEAD, 99) in found
        assert (TableFindingKind.GAP, 30) in found

    def test_a_missing_file(self, filled):
        version = filled.newest
        (filled.directory / version.path_of(0, version.partitions[0].files[1])).unlink()
        (found,) = filled.findings()
        assert found.kind == TableFindingKind.FILE
        assert "10-" in found.message

    def test_a_damaged_file(self, filled):
        version = filled.newest
        path = filled.directory / version.path_of(0, version.partitions[0].files[1])
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
        (found,) = filled.findings()
        assert (found.kind, found.offset) == (TableFindingKind.FILE, 10)

    @pytest.mark.parametrize("keeps", ["true", "false"])
    def test_damaged_rows(self, opened, keeps):
        root = opened(table_value_format="json", table_schema="n INT", table_keep_value=keeps)
        root.append(*((b"%d" % n, b'{"n":%d}' % n) for n in range(50)))
        root.clean()
        (name,) = root.partition().files
        path = root.directory / root.newest.path_of(0, name)
        content = bytearray(path.read_bytes())
        content[4] ^= 0xFF
        path.write_bytes(content)
        (found,) = root.findings()
        assert found.kind == TableFindingKind.FILE
        assert name.file_name in found.message
        assert "\n" not in found.message

    def test_wrong_statistics(self, filled):
        def says_less_rows(table, version):
            yield replace(version.file_of(0, version.partitions[0].files[0]), num_rows=9).to_add(0)

        (found,) = planted(filled, says_less_rows)
        assert (found.kind, found.offset) == (TableFindingKind.FILE, 0)

    def test_another_record(self, filled):
        """The log has other records at these offsets: those of another log were put there."""
        version = filled.newest
        table = filled.table
        other = filled.directory / version.path_of(0, version.partitions[0].files[2])

        class OtherLog:
            def __getattr__(self, name):
                return getattr(filled.log(), name)

            def scan(self, start, end, **options):
                for batch in filled.log().scan(start, end, **options):
                    wrong = batch.records.set_column(
                        1, batch.records.schema.field(1), batch.records.column(0)
                    )
                    yield replace(batch, content=wrong) if batch.base_offset == 20 else batch

        found = list(verify_partition(table, table.refresh(), 0, cast(Any, OtherLog())))
        assert other.exists()
        assert kinds(found[:1]) == {(TableFindingKind.MISMATCH, 20)}

    def test_a_file_of_another_program(self, filled):
        def with_another_file(table, version):
            yield {
                "add": {
                    "path": "part-0.parquet",
                    "size": 1,
                    "partitionValues": {"partition": "0"},
                    "modificationTime": 0,
                    "dataChange": True,
                }
            }

        planted(filled, with_another_file)
        (found,) = verify_table(filled.newest)
        assert "part-0.parquet" in found.message


class TestCompacted:
    @pytest.fixture
    def compacted(self, opened):
        root = opened(**COMPACT)
        root.fill(20)
        root.clean()
        root.fill(3, start=70)
        assert root.findings() == []
        return root

    def test_a_key_that_the_table_lacks(self, compacted):
        """A file has been exchanged by one without some keys."""

        class OtherLog:
            def __getattr__(self, name):
                return getattr(compacted.log(), name)

            def scan(self, start, end, **options):
                for batch in compacted.log().scan(start, end, **options):
                    yield batch
                    keys = batch.records.set_column(
                        0, batch.records.schema.field(0), batch.records.column(1)
                    )
                    if batch.base_offset < compacted.partition().end:
                        yield replace(batch, content=keys)

        table = compacted.table
        found = list(verify_partition(table, table.refresh(), 0, cast(Any, OtherLog())))
        assert {each.kind for each in found} == {TableFindingKind.MISSING_KEY}

    def test_a_key_that_the_log_has_lost(self, compacted):
        class OtherLog:
            def __getattr__(self, name):
                return getattr(compacted.log(), name)

            def scan(self, start, end, **options):
                return iter(list(compacted.log().scan(start, end, **options))[2:])

        table = compacted.table
        found = list(verify_partition(table, table.refresh(), 0, cast(Any, OtherLog())))
        assert {each.kind for each in found} == {TableFindingKind.MISSING_KEY}
        assert all("the log has neither" in each.message for each in found)


class TestRebuild:
    def rebuilt(self, root):
        return rebuild_table(root.table, root.cluster.image().offset)

    def test_a_damaged_version(self, filled):
        rows = filled.table_rows()
        path = filled.directory / "_delta_log" / f"{2:020}.json"
        path.write_bytes(b"{" + path.read_bytes()[1:-30])
        assert "spark-log table rebuild" in str(filled.errors()[-1])
        done = self.rebuilt(filled)
        assert done.ends() == {0: 30}
        assert filled.table_rows() == rows
        assert filled.findings() == []
        filled.clean()
        assert filled.table_rows() == filled.log_rows()

    def test_a_missing_version(self, filled):
        (filled.directory / "_delta_log" / f"{1:020}.json").unlink()
        self.rebuilt(filled)
        assert filled.findings() == []
        filled.clean()
        assert filled.table_rows() == filled.log_rows()

    def test_a_lost_delta_log(self, filled):
        for path in (filled.directory / "_delta_log").iterdir():
            path.unlink()
        self.rebuilt(filled)
        assert filled.findings() == []

    def test_a_file_of_another_program(self, filled):
        TestDifferences().test_a_file_of_another_program(filled)
        self.rebuilt(filled)
        assert filled.newest.foreign_paths == ()
        assert filled.findings() == []

    def test_a_sound_one_is_read_on(self, filled):
        follows = filled.table
        follows.refresh()
        delta = filled.delta_rs()
        self.rebuilt(filled)
        assert follows.refresh() == filled.newest
        delta.update_incremental()
        assert delta.to_pyarrow_table().num_rows == 30

    def test_a_damaged_one_frees_nothing_and_is_cleaned(self, opened):
        root = opened(table_deleted_file_retention_ms="600000")
        for at in range(8):
            root.fill(1, start=at)
            root.clean()
        before = len(list(root.directory.glob("t-0/*.parquet")))
        assert before > 1
        path = root.directory / "_delta_log" / f"{3:020}.json"
        path.write_bytes(b"{")
        self.rebuilt(root)
        root.clock.advance_ms(300_000)
        root.clean()
        assert len(list(root.directory.glob("t-0/*.parquet"))) == before
        root.clock.advance_ms(3_600_000)
        root.clean()
        assert len(list(root.directory.glob("t-0/*.parquet"))) == 1

    def test_a_topic_without_a_table(self, opened):
        root = opened(table_format="none")
        with pytest.raises(InvalidConfigurationError, match="has no table to rebuild"):
            self.rebuilt(root)

    def test_a_compacted_topic(self, opened):
        root = opened(**COMPACT)
        root.fill(20)
        root.clean()
        rows = root.table_rows()
        for path in (root.directory / "_delta_log").iterdir():
            path.unlink()
        self.rebuilt(root)
        assert root.table_rows() == rows
        assert root.findings() == []


def test_the_statistics_of_a_file_are_those_of_its_rows(root):
    root.fill(3)
    root.clean()
    table = TopicTable(root.cluster.store, root.topic, root.clock)
    (name,) = table.refresh().partitions[0].files
    file = read_data_file(table, 0, "t-0", name)
    assert file == table.known.file_of(0, name)
    assert (file.num_rows, file.min_values["offset"], file.max_values["offset"]) == (6, 0, 5)
    assert file.min_values["timestamp"] == file.max_values["timestamp"]
    assert file.min_values["timestamp"].endswith("Z")
