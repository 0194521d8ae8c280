"""The offsets table stays small: compaction, checkpoints, expiry; and what it keeps."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.clock import ManualClock
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group_coordinator import GroupCoordinator
from spark_log.coordinator.offset_commits import MAINTENANCE_EVERY
from spark_log.coordinator.offsets_compaction import FILES_PER_TIER
from spark_log.metadata import Cluster

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS


def positions(table, group):
    return {named: committed.offset for named, committed in table.fetch(group).items()}


def other_process(cluster):
    return OffsetsTable(Cluster(cluster.root, clock=ManualClock(cluster.clock.time_us())))


def live_files(table):
    return len(DeltaTable(table.url).file_uris())


@pytest.fixture
def table(cluster):
    return OffsetsTable(cluster)


def test_small_files_become_few_in_the_background_of_commits(cluster, table):
    for offset in range(3 * FILES_PER_TIER):
        table.commit(f"g{offset % 3}", {P0: OffsetAndMetadata(offset)}, generation=1)
    table._shared().maintenance.wait()

    assert live_files(table) < FILES_PER_TIER
    delta = DeltaTable(table.url)
    assert delta.to_pyarrow_dataset().count_rows() == 3 * FILES_PER_TIER
    assert "OPTIMIZE" in {each["operation"] for each in delta.history()}
    for reader in (table, other_process(cluster)):
        assert [positions(reader, f"g{number}") for number in range(3)] == [
            {P0: 93}, {P0: 94}, {P0: 95}
        ]  # fmt: skip


def test_compaction_goes_on_while_others_commit_and_loses_nothing(cluster, table, monkeypatch):
    for offset in range(MAINTENANCE_EVERY - 2):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    other = other_process(cluster)
    write = table._shared().table.files.write

    def write_while_others_commit(parts):
        written = write(parts)
        monkeypatch.undo()
        other.commit("g", {P1: OffsetAndMetadata(1)})
        other.commit("h", {P0: OffsetAndMetadata(2)})
        return written

    monkeypatch.setattr(table._shared().table.files, "write", write_while_others_commit)
    table.maintain()

    assert positions(other_process(cluster), "g") == {P0: MAINTENANCE_EVERY - 3, P1: 1}
    assert positions(table, "h") == {P0: 2}


def test_two_that_compact_the_same_files_do_not_double_them(cluster, table, monkeypatch):
    for offset in range(5):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    other = other_process(cluster)
    write = table._shared().table.files.write

    def write_while_another_compacts(parts):
        written = write(parts)
        monkeypatch.undo()
        other._shared().maintenance._compact(is_full=True)
        return written

    monkeypatch.setattr(table._shared().table.files, "write", write_while_another_compacts)
    table._shared().maintenance._compact(is_full=True)

    assert table.history("g").num_rows == 5
    assert live_files(table) == 1


def test_of_a_large_table_little_is_read_for_one_group(cluster, table, monkeypatch):
    monkeypatch.setattr("spark_log.coordinator.delta_files.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("spark_log.coordinator.offsets_compaction._RANGE_ROWS", 250)
    shared = table._shared()
    for first in range(0, 500, 100):
        table_of = {
            f"g{number:03}": {TopicPartition("t", at): OffsetAndMetadata(number) for at in range(4)}
            for number in range(first, first + 100)
        }
        for group, offsets in table_of.items():
            shared.commits._waiting.append(_request(table, group, offsets))
        with shared.table.lock:
            shared.commits._commit_waiting()
    table.maintain()
    fresh = other_process(cluster)
    files = fresh._shared().table.files
    read = []
    parts = files.parts

    def counted(*given):
        for part in parts(*given):
            read.append(part.num_rows)
            yield part

    monkeypatch.setattr(files, "parts", counted)
    assert positions(fresh, "g321") == {TopicPartition("t", at): 321 for at in range(4)}
    assert live_files(table) > 1
    assert sum(read) <= 200  # of 2000


def _request(table, group, offsets):
    from spark_log.coordinator.offset_commits import Request

    rows = table._rows(offsets, {})
    return Request(group, 0, "", lambda _: rows, float("inf"))


def test_a_checkpoint_comes_every_so_many_versions_and_keeps_fences(cluster, table):
    table.fence("fenced", 7)
    for offset in range(100 + MAINTENANCE_EVERY):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    table._shared().maintenance.wait()

    assert Path(table.url, "_delta_log", "_last_checkpoint").exists()
    fresh = other_process(cluster)
    assert positions(fresh, "g") == {P0: 100 + MAINTENANCE_EVERY - 1}
    assert fresh.generation("fenced") == 7
    assert fresh._shared().table.state.older is not None  # it was opened from the checkpoint


def test_superseded_positions_are_kept_for_the_retention_time(table, clock):
    for offset in range(3):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
        clock.advance_ms(DAY_MS)
    then_us = clock.time_us()
    clock.advance_ms(WEEK_MS - 2 * DAY_MS)
    table.commit("g", {P0: OffsetAndMetadata(9)})
    table.maintain()

    rows = table.history("g")
    assert sorted(rows["offset"].to_pylist()) == [1, 2, 9]  # 1 was the position a week ago
    (at,) = table.positions_at("g", then_us).values()
    assert at.offset == 2


def test_positions_of_a_group_without_members_expire_a_week_after_their_commit(table, clock):
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
    clock.advance_ms(DAY_MS)
    table.commit("g", {P1: OffsetAndMetadata(2)})
    clock.advance_ms(WEEK_MS - DAY_MS)
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
    clock.advance_ms(WEEK_MS + 1)
    table.maintain()
    assert positions(table, "g") == {P0: 1}


def test_who_joins_while_positions_expire_keeps_them(cluster, table, clock, monkeypatch):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    clock.advance_ms(WEEK_MS + 1)
    maintenance = table._shared().maintenance
    expiry = maintenance._expiry

    def join_after_the_look(group, before_us):
        request = expiry(group, before_us)
        other = OffsetsTable(Cluster(cluster.root))
        other.fence("g", GroupCoordinator(cluster, "g").join(["t"]).generation)
        return request

    monkeypatch.setattr(maintenance, "_expiry", join_after_the_look)
    table.maintain()
    assert positions(table, "g") == {P0: 1}


def test_positions_in_a_deleted_topic_are_forgotten_and_later_their_tombstones(
    cluster, table, clock
):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    Admin(cluster.root).delete_topics(["t"])
    table.maintain()
    assert table.positions("g") == {}
    clock.advance_ms(WEEK_MS + 1)
    table.maintain()
    assert table.history("g").num_rows == 0


def test_the_tables_own_retention_counts(table, clock):
    table.commit("g", {P0: OffsetAndMetadata(1)})
    DeltaTable(table.url).alter.set_table_properties(
        {"offsets.retention.minutes": "60"}, raise_if_not_exists=False
    )
    assert table.retention_us() == 3_600_000_000
    clock.advance_ms(3_600_001)
    table.maintain()
    assert positions(table, "g") == {}


def test_an_old_version_can_still_be_read_after_compaction(table):
    for offset in range(5):
        table.commit("g", {P0: OffsetAndMetadata(offset)})
    table.maintain()
    then = DeltaTable(table.url, version=3).to_pyarrow_dataset().to_table()
    assert sorted(then["offset"].to_pylist()) == [0, 1, 2]
