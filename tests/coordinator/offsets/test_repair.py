"""Repair of a damaged offsets table: what is saved, what is lost, and how it is reported."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.offsets.repair import OffsetsRepair
from spark_log.errors import IllegalGenerationError, LogTruncatedError, StorageError
from spark_log.util.clock import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fresh(cluster):
    return OffsetsTable(Cluster(cluster.root, clock=ManualClock(cluster.clock.time_us())))


def positions(cluster, group):
    return {tp: committed.offset for tp, committed in fresh(cluster).fetch(group).items()}


def version_file(table, number):
    return Path(table.url, "_delta_log", f"{number:020}.json")


@pytest.fixture
def table(cluster):
    """Versions 1 to 3: g commits 5, then 6; h commits 7."""
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=2)
    table.commit("g", {P0: OffsetAndMetadata(6)}, generation=3)
    table.commit("h", {P1: OffsetAndMetadata(7)})
    return table


def test_a_sound_table_is_left_as_it_is(cluster, table):
    report = OffsetsRepair(cluster).run(execute=True)
    assert report.is_sound
    assert not report.is_repaired
    assert DeltaTable(table.url).version() == 3


def test_without_execute_nothing_is_changed(cluster, table):
    version_file(table, 2).unlink()
    before = sorted(Path(table.url).rglob("*"))
    report = OffsetsRepair(cluster).run()
    assert (report.is_sound, report.is_repaired) == (False, False)
    assert sorted(Path(table.url).rglob("*")) == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_a_lost_version_is_named_and_the_others_are_saved(cluster, table, damage):
    damage(version_file(table, 2))
    with pytest.raises(StorageError, match="groups repair"):
        positions(cluster, "g")

    report = OffsetsRepair(cluster).run(execute=True)

    assert (report.lost_versions, report.lost_files, report.rows) == ([2], [], 2)
    assert len(report.unnamed_files) == 1
    assert report.groups == ["g", "h"]
    assert positions(cluster, "g") == {P0: 5}
    assert positions(cluster, "h") == {P1: 7}
    assert DeltaTable(table.url).to_pyarrow_dataset().count_rows() == 2
    with pytest.raises(IllegalGenerationError):
        fresh(cluster).commit("g", {P0: OffsetAndMetadata(1)}, generation=1)
    fresh(cluster).commit("g", {P0: OffsetAndMetadata(9)}, generation=3)
    assert positions(cluster, "g") == {P0: 9}
    assert OffsetsRepair(cluster).run().is_sound


def test_a_file_that_no_version_names_is_saved_on_request_alone(cluster, table):
    version_file(table, 2).unlink()
    report = OffsetsRepair(cluster).run(execute=True, with_unnamed=True)
    assert report.rows == 3
    assert positions(cluster, "g") == {P0: 6}
    assert fresh(cluster).generation("g") == 3


def test_a_lost_data_file_is_named_with_whose_rows_it_had(cluster, table):
    named = version_file(table, 3).read_text()
    (path,) = [path for path in Path(table.url).glob("*.parquet") if path.name in named]
    path.unlink()
    report = OffsetsRepair(cluster).run(execute=True)
    (lost,) = report.lost_files
    assert (lost.path, lost.reason, lost.num_rows) == (path.name, "missing", 1)
    assert (lost.min_group, lost.max_group) == ("h", "h")
    assert positions(cluster, "g") == {P0: 6}
    assert positions(cluster, "h") == {}


def test_what_a_lost_compacted_file_held_is_saved_from_the_files_before_it(cluster, table):
    before = set(Path(table.url).glob("*.parquet"))
    table.maintain()
    (compacted,) = set(Path(table.url).glob("*.parquet")) - before
    compacted.write_bytes(b"PAR1")
    report = OffsetsRepair(cluster).run(execute=True)
    assert [each.reason for each in report.lost_files] == ["unreadable"]
    assert positions(cluster, "g") == {P0: 6}
    assert positions(cluster, "h") == {P1: 7}


def test_a_table_that_is_gone_begins_anew_only_when_told_to(cluster, table):
    member = GroupCoordinator(cluster, "g")
    generation = member.join(["t"]).generation
    shutil.rmtree(table.url)
    report = OffsetsRepair(cluster).run()
    assert "is gone" in report.problem
    assert not Path(table.url).exists()

    report = OffsetsRepair(cluster).run(execute=True)

    assert (report.is_repaired, report.rows) == (True, 0)
    assert positions(cluster, "g") == {}
    assert fresh(cluster).generation("g") == generation  # read from the group's log
    fresh(cluster).commit("g", {P0: OffsetAndMetadata(1)}, generation=generation)


def test_a_group_whose_log_is_lost_goes_on_above_its_fence(cluster, table):
    member = GroupCoordinator(cluster, "g")
    member.join(["t"])
    shutil.rmtree(Path(cluster.store.directory_url(GroupLog.directory_of("g"))))
    with pytest.raises(LogTruncatedError, match="groups repair --execute"):
        GroupCoordinator(cluster, "g").join(["t"])  # in generation 1, below the fence of 3

    report = OffsetsRepair(cluster).run()
    assert report.lagging_groups == {"g": 3}
    OffsetsRepair(cluster).run(execute=True)

    assert GroupCoordinator(cluster, "g").describe().generation >= 3
    assert OffsetsRepair(cluster).run().is_sound
    assert positions(cluster, "g") == {P0: 6}


def test_when_positions_with_wrong_stamps_were_committed_is_saved_too(cluster, table, clock):
    """Otherwise they would expire at once: their timestamps are a week old."""
    week_ms = 7 * 24 * 3_600_000
    behind = ManualClock(clock.time_us() - 8 * 24 * 3_600_000_000)
    OffsetsTable(Cluster(cluster.root, clock=behind)).commit("w", {P0: OffsetAndMetadata(8)})
    version_file(table, 2).unlink()
    assert OffsetsRepair(cluster).run(execute=True).is_repaired
    clock.advance_ms(week_ms - 1)
    fresh(cluster).maintain()
    assert positions(cluster, "w") == {P0: 8}
    clock.advance_ms(2)
    fresh(cluster).maintain()
    assert positions(cluster, "w") == {}
