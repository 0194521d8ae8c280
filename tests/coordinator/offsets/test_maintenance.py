"""The offsets table stays small: compaction, checkpoints, expiry, and what they keep."""

import json
import os
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.offsets import maintenance
from spark_log.coordinator.offsets.commit_queue import CommitQueue, CommitRequest
from spark_log.coordinator.offsets.compaction import FILES_PER_TIER
from spark_log.coordinator.offsets.rows import OFFSETS_SCHEMA, PartitionKey, Row
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta.cleanup import DeltaCleanup, interval_us
from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.files import DataFiles
from spark_log.delta.parse import parse_version
from spark_log.errors import ClockSkewError
from spark_log.storage import OFFSETS_TABLE
from spark_log.util.clock import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MINUTE_MS = 60_000
"""By so much a stamp may be wrong."""

DAY_MS = 24 * 3600 * 1000
DAY_US = DAY_MS * 1000
MAINTENANCE_EVERY = CommitQueue.maintenance_every
WEEK_MS = 7 * DAY_MS


def positions(table, group):
    return {tp: committed.offset for tp, committed in table.fetch(group).items()}


def other_process(cluster):
    return OffsetsTable(Cluster(cluster.root, clock=ManualClock(cluster.clock.time_us())))


def live_files(table):
    return len(DeltaTable(table.url).file_uris())


def wait_for_maintenance():
    """Wait until no maintenance is running in the background of commits."""
    for thread in threading.enumerate():
        if thread.name == "spark-log-offsets-maintenance":
            thread.join(60)


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


def test_small_files_become_few_in_the_background_of_commits(cluster, table):
    for offset in range(3 * FILES_PER_TIER):
        table.commit(f"g{offset % 3}", {P0: OffsetAndMetadata(offset)}, generation=1)
    wait_for_maintenance()

    # Compacted files, and too few others to be compacted.
    assert live_files(table) < FILES_PER_TIER + 3
    delta = DeltaTable(table.url)
    assert delta.to_pyarrow_dataset().count_rows() == 3 * FILES_PER_TIER
    assert "OPTIMIZE" in {each["operation"] for each in delta.history()}
    for reader in (table, other_process(cluster)):
        assert [positions(reader, f"g{number}") for number in range(3)] == [
            {P0: 93},
            {P0: 94},
            {P0: 95},
        ]


def test_compaction_goes_on_while_others_commit_and_loses_nothing(cluster, table, monkeypatch):
    for offset in range(MAINTENANCE_EVERY - 2):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    other = other_process(cluster)
    write = DataFiles.write

    def write_while_others_commit(files, parts, **how):
        written = write(files, parts, **how)
        monkeypatch.setattr(DataFiles, "write", write)
        other.commit("g", {P1: OffsetAndMetadata(1)})
        other.commit("h", {P0: OffsetAndMetadata(2)})
        return written

    monkeypatch.setattr(DataFiles, "write", write_while_others_commit)
    table.maintain()

    assert positions(other_process(cluster), "g") == {P0: MAINTENANCE_EVERY - 3, P1: 1}
    assert positions(table, "h") == {P0: 2}


def test_two_that_compact_the_same_files_do_not_double_them(cluster, table, monkeypatch):
    for offset in range(5):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    other = other_process(cluster)
    write = DataFiles.write

    def write_while_another_compacts(files, parts, **how):
        written = write(files, parts, **how)
        monkeypatch.setattr(DataFiles, "write", write)
        other.maintain()
        return written

    monkeypatch.setattr(DataFiles, "write", write_while_another_compacts)
    table.maintain()

    assert table.history("g").num_rows == 5
    assert live_files(table) == 1


def test_of_a_large_table_little_is_read_for_one_group(cluster, table, monkeypatch):
    monkeypatch.setattr("spark_log.delta.files.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("spark_log.coordinator.offsets.compaction._RANGE_ROWS", 250)
    commits = CommitQueue(OffsetsStore(cluster.store, cluster.clock))
    for first in range(0, 500, 100):
        commits.submit_all([_request(cluster, number) for number in range(first, first + 100)])
    table.maintain()
    fresh = other_process(cluster)
    read = []
    parts = DataFiles.parts

    def counted(*given):
        for part in parts(*given):
            read.append(part.num_rows)
            yield part

    monkeypatch.setattr(DataFiles, "parts", counted)
    assert positions(fresh, "g321") == {TopicPartition("t", at): 321 for at in range(4)}
    assert live_files(table) > 1
    assert sum(read) <= 200  # of 2000


def _request(cluster, number):
    topic_id = cluster.topic("t").topic_id
    rows = tuple(Row(PartitionKey("t", topic_id, partition), number) for partition in range(4))
    return CommitRequest(f"g{number:03}", 0, "", lambda _: rows, float("inf"), rows)


def test_a_checkpoint_comes_every_so_many_versions_and_keeps_fences(cluster, table):
    table.fence("fenced", 7)
    for offset in range(100 + MAINTENANCE_EVERY):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    wait_for_maintenance()

    folder = Path(table.url, "_delta_log")
    newest = json.loads((folder / "_last_checkpoint").read_text())["version"]
    for version in range(newest):
        (folder / f"{version:020}.json").unlink()
    fresh = other_process(cluster)  # which has to open it from the checkpoint
    assert positions(fresh, "g") == {P0: 100 + MAINTENANCE_EVERY - 1}
    assert fresh.generation("fenced") == 7


def test_a_checkpoint_of_another_process_is_enough_for_a_while(cluster, table, monkeypatch):
    monkeypatch.setattr(maintenance.OffsetsMaintenance, "checkpoint_pause_ms", float("inf"))
    other = other_process(cluster)

    def commit(by, count):
        for offset in range(count):
            by.commit("g", {P0: OffsetAndMetadata(offset)})
        wait_for_maintenance()

    commit(other, MAINTENANCE_EVERY)  # it looks for a checkpoint, and sees none
    commit(table, 100 + MAINTENANCE_EVERY)
    last = Path(table.url, "_delta_log", "_last_checkpoint")
    written = last.read_text()
    commit(other, 100 + 2 * MAINTENANCE_EVERY)
    assert last.read_text() == written


def test_the_times_of_commits_cost_no_listing_of_all_files_ever_written(
    cluster, table, monkeypatch
):
    table.commit("g", {P0: OffsetAndMetadata(0)})
    table.maintain()  # expiry of offsets and removal of files, which are not due again
    listed = []
    list_files = cluster.store.list

    def noted(directory, *rest):
        listed.append(directory)
        return list_files(directory, *rest)

    monkeypatch.setattr(cluster.store, "list", noted)
    for offset in range(2 * MAINTENANCE_EVERY):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    wait_for_maintenance()
    assert live_files(table) <= MAINTENANCE_EVERY + 2  # some were compacted
    assert OFFSETS_TABLE not in listed


def test_superseded_positions_are_kept_for_the_retention_time(table, clock):
    for offset in range(3):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
        clock.advance_ms(DAY_MS)
    then_us = clock.time_us()
    clock.advance_ms(WEEK_MS - 2 * DAY_MS)
    table.commit("g", {P0: OffsetAndMetadata(9)})
    table.maintain()

    rows = table.history("g")
    assert sorted(rows["offset"].to_pylist()) == [1, 2, 9]  # 1 was the committed offset a week ago
    (at,) = table.committed_offsets_at("g", then_us).values()
    assert at.offset == 2


def test_positions_of_a_group_without_members_expire_a_week_after_their_commit(table, clock):
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
    clock.advance_ms(DAY_MS)
    table.commit("g", {P1: OffsetAndMetadata(2)})
    clock.advance_ms(WEEK_MS - DAY_MS + MINUTE_MS)
    table.maintain()
    assert positions(table, "g") == {P0: 1, P1: 2}
    clock.advance_ms(1)
    table.maintain()
    assert positions(table, "g") == {P1: 2}


def test_positions_of_a_group_with_members_stay_and_expire_a_week_after_the_last_left(
    cluster, table, clock
):
    member = GroupCoordinator(cluster, "g")
    generation = member.join(["t"]).generation
    table.commit("g", {P0: OffsetAndMetadata(1)}, generation=generation)
    clock.advance_ms(2 * WEEK_MS)
    table.maintain()
    assert positions(table, "g") == {P0: 1}
    member.leave()
    clock.advance_ms(WEEK_MS)
    table.maintain()
    assert positions(table, "g") == {P0: 1}
    clock.advance_ms(1)
    table.maintain()
    assert positions(table, "g") == {}
    assert table.generation("g") > generation  # the fence stays


def test_positions_in_topics_that_members_left_expire_by_their_commit(cluster, table, clock):
    Admin(cluster.root).create_topics([NewTopic("other")])
    member = GroupCoordinator(cluster, "g")
    generation = member.join(["t"]).generation
    other = TopicPartition("other", 0)
    table.commit(
        "g", {P0: OffsetAndMetadata(1), other: OffsetAndMetadata(1)}, generation=generation
    )
    clock.advance_ms(WEEK_MS + MINUTE_MS + 1)
    table.maintain()
    assert positions(table, "g") == {P0: 1}


def test_who_joins_while_positions_expire_keeps_them(cluster, table, clock, monkeypatch):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    clock.advance_ms(WEEK_MS + MINUTE_MS + 1)

    look = GroupLog.view

    def join_after_the_look(*given):
        view = look(*given)
        other = OffsetsTable(Cluster(cluster.root))
        other.fence("g", GroupCoordinator(cluster, "g").join(["t"]).generation)
        return view

    monkeypatch.setattr(GroupLog, "view", join_after_the_look)
    table.maintain()
    assert positions(table, "g") == {P0: 1}


def test_positions_in_a_deleted_topic_are_forgotten_and_later_their_tombstones(
    cluster, table, clock
):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    Admin(cluster.root).delete_topics(["t"])
    table.maintain()
    assert table.committed_offsets("g") == {}
    clock.advance_ms(WEEK_MS + MINUTE_MS + 1)
    table.maintain()
    assert table.history("g").num_rows == 0


def test_the_tables_own_retention_counts(table, clock):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    DeltaTable(table.url).alter.set_table_properties(
        {"offsets.retention.minutes": "60"}, raise_if_not_exists=False
    )
    assert table.retention_us() == 3_600_000_000
    clock.advance_ms(3_600_001 + MINUTE_MS)
    table.maintain()
    assert positions(table, "g") == {}


def test_an_old_version_can_still_be_read_after_compaction(table):
    for offset in range(5):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    table.maintain()
    then = DeltaTable(table.url, version=3).to_pyarrow_dataset().to_table()
    assert sorted(then["offset"].to_pylist()) == [0, 1, 2]


class WallClock(ManualClock):
    """A clock that can be set wrong. Its monotonic time continues."""

    wrong_by_us = 0

    def time_us(self):
        return super().time_us() + self.wrong_by_us


class TestWrongClocks:
    """Files and offsets are deleted only by the storage's time."""

    HOUR_MS = 3_600_000

    @pytest.fixture
    def clock(self):
        return WallClock()

    @pytest.fixture
    def storage_clock(self):
        """The storage's clock; ``clock`` is that of a process, which a test sets wrong."""
        return ManualClock()

    @pytest.fixture
    def right(self, cluster, storage_clock):
        """Another process, with a right clock."""
        return OffsetsTable(Cluster(cluster.root, clock=storage_clock))

    @staticmethod
    def set_wrong(clock, by_ms):
        clock.wrong_by_us += by_ms * 1000

    def versions(self, table):
        return sorted(
            int(path.stem)
            for path in Path(table.url, "_delta_log").glob("*.json")
            if path.stem.isdigit()
        )

    @pytest.mark.parametrize("by_ms", [25 * HOUR_MS, 8 * DAY_MS, -8 * DAY_MS])
    def test_who_tidies_up_with_one_refuses(self, cluster, table, right, clock, by_ms, caplog):
        for offset in range(5):
            right.commit("idle", {P0: OffsetAndMetadata(offset)})
        self.set_wrong(clock, by_ms)
        for offset in range(2 * MAINTENANCE_EVERY):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        wait_for_maintenance()
        with pytest.raises(ClockSkewError, match=r"max\.clock\.skew\.ms"):
            table.maintain()
        assert self.versions(right) == list(range(self.versions(right)[-1] + 1))
        assert positions(right, "idle") == {P0: 4}
        assert positions(right, "g") == {P0: 2 * MAINTENANCE_EVERY - 1}
        told = [each for each in caplog.messages if "is not maintained by this process" in each]
        assert len(told) == 1

    def test_the_difference_that_is_allowed_is_a_setting(self, cluster, table, clock):
        self.set_wrong(clock, self.HOUR_MS)
        table.commit("g", {P0: OffsetAndMetadata(1)})
        allowed = {"max.clock.skew.ms": "3600000"}
        Admin(cluster.root).alter_configs([ConfigResource(ConfigResourceType.BROKER, "", allowed)])
        table.maintain()
        self.set_wrong(clock, 1)
        with pytest.raises(ClockSkewError):
            table.maintain()

    @pytest.mark.parametrize("by_ms", [-8 * DAY_MS, 8 * DAY_MS])
    @pytest.mark.parametrize("is_compacted", [False, True])
    def test_a_position_with_a_wrong_stamp_expires_a_week_after_its_commit(
        self, table, right, clock, storage_clock, by_ms, is_compacted
    ):
        right.commit("g", {P1: OffsetAndMetadata(7)})
        self.set_wrong(clock, by_ms)
        table.commit("g", {P0: OffsetAndMetadata(1)})
        table.commit("h", {P0: OffsetAndMetadata(2)})
        for _ in range(7):
            if is_compacted:
                right.maintain()
            storage_clock.advance_ms(DAY_MS)
        assert (live_files(right) == 1) == is_compacted
        right.maintain()
        assert positions(right, "g") == {P0: 1, P1: 7}
        assert positions(right, "h") == {P0: 2}
        storage_clock.advance_ms(1)
        right.maintain()
        assert positions(right, "h") == {}
        storage_clock.advance_ms(MINUTE_MS)  # right timestamps may differ by this much
        right.maintain()
        assert positions(right, "g") == {}

    def test_a_position_that_is_committed_while_others_expire_stays(
        self, table, right, clock, storage_clock, monkeypatch
    ):
        """Its timestamp is old, and its commit time has not been read."""
        right.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
        self.set_wrong(clock, -8 * DAY_MS)
        storage_clock.advance_ms(WEEK_MS + MINUTE_MS + 1)

        look = GroupLog.view

        def commit_after_the_look(*given):
            view = look(*given)
            table.commit("g", {P0: OffsetAndMetadata(2)})
            return view

        with monkeypatch.context() as patch:
            patch.setattr(GroupLog, "view", commit_after_the_look)
            right.maintain()
        assert positions(right, "g")[P0] == 2
        right.maintain()
        assert positions(right, "g") == {P0: 2}

    def test_a_group_is_empty_since_the_storage_saw_it(self, cluster, right, clock, storage_clock):
        self.set_wrong(clock, -8 * DAY_MS)
        member = GroupCoordinator(cluster, "g")
        generation = member.join(["t"]).generation
        right.commit("g", {P0: OffsetAndMetadata(1)}, generation=generation)
        storage_clock.advance_ms(WEEK_MS)
        member.leave()
        storage_clock.advance_ms(WEEK_MS)
        right.maintain()
        assert positions(right, "g") == {P0: 1}
        storage_clock.advance_ms(1)
        right.maintain()
        assert positions(right, "g") == {}

    def test_a_commit_behind_names_that_another_program_freed_is_seen_by_all(
        self, cluster, table, clock, storage_clock
    ):
        """delta-rs cleans up, by a clock that is a day ahead."""
        table.commit("a", {P0: OffsetAndMetadata(1)})
        other = other_process(cluster)
        for offset in range(8):
            other.commit("b", {P0: OffsetAndMetadata(offset)})
        storage_clock.advance_ms(60_000)
        clock.advance_ms(60_000)
        folder = Path(table.url, "_delta_log")
        for path in folder.glob("*.json"):  # by this machine's clock all files are a day old
            os.utime(path, (path.stat().st_mtime - 25 * 3600,) * 2)
        delta = DeltaTable(table.url)
        delta.create_checkpoint()
        delta.cleanup_metadata()
        assert len(self.versions(table)) == 1

        table.commit("a", {P0: OffsetAndMetadata(2)})

        for reader in (other, other_process(cluster), table):
            assert positions(reader, "a") == {P0: 2}
            assert positions(reader, "b") == {P0: 7}
        other.commit("a", {P0: OffsetAndMetadata(3)})
        assert positions(table, "a") == {P0: 3}


def cleanup(cluster):
    return DeltaCleanup(cluster.store, OFFSETS_TABLE, cluster.clock)


class TestFreeing:
    def test_versions_are_freed_a_day_after_others_made_them_needless(self, cluster, table, clock):
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        table.maintain()  # a checkpoint
        folder = Path(table.url, "_delta_log")
        (first,) = folder.glob("*.checkpoint.parquet")
        clock.advance_ms(DAY_MS - 1)
        table.commit("g", {P0: OffsetAndMetadata(3)})
        table.maintain()
        assert (folder / f"{0:020}.json").exists()
        clock.advance_ms(2)
        table.commit("g", {P0: OffsetAndMetadata(4)})
        table.maintain()
        kept = int(first.name[:20])
        assert not (folder / f"{kept - 1:020}.json").exists()
        assert first.exists()  # it is needed to read the table as of a day ago
        assert len(list(folder.glob("*.checkpoint.parquet"))) == 3
        clock.advance_ms(DAY_MS)
        table.commit("g", {P0: OffsetAndMetadata(5)})
        table.maintain()
        assert not first.exists()
        assert positions(other_process(cluster), "g") == {P0: 5}
        assert DeltaTable(table.url).to_pyarrow_dataset().count_rows() > 0

    def test_what_another_program_freed_too_early_frees_nothing_else(self, cluster, table, clock):
        """The time of the version before the oldest existing one is not known."""
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        old = set(Path(table.url).glob("*.parquet"))
        clock.advance_ms(2 * DAY_MS)
        table.maintain()  # compacts them
        table.commit("g", {P1: OffsetAndMetadata(0)})
        DeltaTable(table.url).create_checkpoint()
        for number in TestWrongClocks().versions(table)[:-1]:
            Path(table.url, "_delta_log", f"{number:020}.json").unlink()
        cleanup(cluster).delete_data_files(clock.time_us() - DAY_US)
        assert old <= set(Path(table.url).glob("*.parquet"))

    def test_a_damaged_checkpoint_frees_nothing(self, cluster, table, clock):
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        table.maintain()
        clock.advance_ms(2 * DAY_MS)
        folder = Path(table.url, "_delta_log")
        (checkpoint,) = folder.glob("*.checkpoint.parquet")
        checkpoint.write_bytes(b"PAR1")
        cleanup(cluster).delete_versions(clock.time_us() - DAY_US)
        assert (folder / f"{0:020}.json").exists()
        assert positions(other_process(cluster), "g") == {P0: 2}

    def test_data_files_are_freed_a_day_after_they_were_compacted(self, cluster, table, clock):
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        old = set(Path(table.url).glob("*.parquet"))
        clock.advance_ms(3 * DAY_MS)
        table.maintain()
        clock.advance_ms(DAY_MS - 1)
        table.commit("g", {P1: OffsetAndMetadata(0)})
        cleanup(cluster).delete_data_files(clock.time_us() - DAY_US)
        assert old <= set(Path(table.url).glob("*.parquet"))
        clock.advance_ms(2 * TestWrongClocks.HOUR_MS)
        table.commit("g", {P1: OffsetAndMetadata(1)})
        cleanup(cluster).delete_data_files(clock.time_us() - DAY_US)
        assert not old & set(Path(table.url).glob("*.parquet"))
        assert positions(other_process(cluster), "g") == {P0: 2, P1: 1}

    def test_a_data_file_that_no_version_names_stays_until_one_is_an_hour_younger(
        self, cluster, table, clock
    ):
        table.commit("g", {P0: OffsetAndMetadata(1)})
        lost = DataFiles(cluster.store, OFFSETS_TABLE, OFFSETS_SCHEMA).write([table.history("g")])
        path = Path(table.url, lost.path)
        clock.advance_ms(3 * DAY_MS)
        cleanup(cluster).delete_data_files(clock.time_us() - DAY_US)
        assert path.exists()  # its writer may stand still just before its commit
        table.commit("g", {P0: OffsetAndMetadata(2)})
        cleanup(cluster).delete_data_files(clock.time_us() - DAY_US)
        assert not path.exists()

    def test_a_commit_names_no_file_that_was_written_long_ago(
        self, cluster, table, clock, monkeypatch
    ):
        """Its writer stood still and lost the race: its file may be deleted already."""
        table.commit("g", {P0: OffsetAndMetadata(0)})
        other = other_process(cluster)
        append = DeltaLog.append_staged
        named: list[str] = []

        def stand_still(log, staged):
            named.extend(file.path for file in parse_version("t", 0, staged.body).added)
            if len(named) == 1:
                clock.advance_ms(31 * 60_000)
                monkeypatch.setattr(DeltaLog, "append_staged", append)
                other.commit("other", {P0: OffsetAndMetadata(1)})
                monkeypatch.setattr(DeltaLog, "append_staged", stand_still)
            return append(log, staged)

        monkeypatch.setattr(DeltaLog, "append_staged", stand_still)
        table.commit("g", {P0: OffsetAndMetadata(1)})
        assert len(set(named)) == 2
        assert positions(other, "g") == {P0: 1}

    def test_a_compaction_that_stood_still_is_given_up(self, cluster, table, clock, monkeypatch):
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        write = DataFiles.write

        def stand_still(*given, **how):
            written = write(*given, **how)
            clock.advance_ms(31 * 60_000)
            return written

        monkeypatch.setattr(DataFiles, "write", stand_still)
        table.maintain()
        assert live_files(table) == 3
        assert len(list(Path(table.url).glob("*.parquet"))) == 3

    def test_a_checkpoint_keeps_fences_whatever_the_table_says(self, cluster, table):
        table.fence("fenced", 7)
        DeltaTable(table.url).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 1 hours"}, raise_if_not_exists=False
        )
        table.commit("g", {P0: OffsetAndMetadata(1)})
        table.maintain()
        assert list(Path(table.url, "_delta_log").glob("*.checkpoint.parquet"))
        for version in Path(table.url, "_delta_log").glob("*.json"):
            if version.stem != max(each.stem for each in version.parent.glob("*.json")):
                version.unlink()
        assert other_process(cluster).generation("fenced") == 7

    @pytest.mark.parametrize(
        ("text", "expected_us"),
        [
            ("interval 1 days", 24 * 3_600_000_000),
            ("INTERVAL 2 WEEKS", 14 * 24 * 3_600_000_000),
            ("36 hours", 36 * 3_600_000_000),
            ("interval 1 seconds", 3_600_000_000),
            ("interval one day", None),
            ("interval 1 months", None),
        ],
    )
    def test_intervals_are_read_and_an_hour_is_the_least(self, text, expected_us):
        assert interval_us(text) == expected_us
