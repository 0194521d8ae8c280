"""Committed offsets in the Delta table ``__consumer_offsets``."""

import multiprocessing
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_log import (
    Admin,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
    UnknownTopicOrPartitionError,
    UnsupportedStoreError,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets import table as offsets_table
from spark_log.delta.files import DataFiles
from spark_log.errors import IllegalGenerationError
from spark_log.util.clock import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def positions(table: OffsetsTable, group: str) -> dict[TopicPartition, int]:
    return {tp: committed.offset for tp, committed in table.fetch(group).items()}


def test_a_group_that_never_committed_stands_nowhere(cluster: Cluster) -> None:
    assert OffsetsTable(cluster).fetch("g") == {}


def test_what_was_committed_is_fetched(cluster: Cluster, clock: ManualClock) -> None:
    table = OffsetsTable(cluster)

    table.commit("g", {P0: OffsetAndMetadata(7, "note", 3)}, generation=2, member_id="m")

    (committed,) = table.fetch("g").values()
    assert (committed.offset, committed.metadata, committed.leader_epoch) == (7, "note", 3)
    assert (committed.generation, committed.member_id) == (2, "m")
    assert committed.commit_timestamp_us == clock.time_us()


def test_the_latest_commit_of_each_partition_counts(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)  # the clock stands still: order must not need it
    table.commit("g", {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(50)})
    table.commit("g", {P0: OffsetAndMetadata(9)})
    table.commit("g", {P0: OffsetAndMetadata(6)})

    assert positions(table, "g") == {P0: 6, P1: 50}


def test_a_zombies_commit_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(20)}, generation=2)
    with pytest.raises(
        IllegalGenerationError, match="generation 1 of group 'g' has ended"
    ) as refused:
        table.commit("g", {P0: OffsetAndMetadata(10)}, generation=1)

    assert (refused.value.generation, refused.value.current) == (1, 2)
    assert positions(table, "g") == {P0: 20}
    assert table.history("g").num_rows == 1


def test_a_fence_refuses_lower_generations_before_anything_is_committed(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    table.fence("g", 3)

    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(10)}, generation=2)
    with pytest.raises(IllegalGenerationError):
        table.fence("g", 2)
    table.fence("g", 3)
    table.commit("g", {P0: OffsetAndMetadata(10)}, generation=3)
    table.commit("other", {P0: OffsetAndMetadata(1)}, generation=1)
    assert (table.generation("g"), table.generation("other")) == (3, 1)
    assert positions(table, "g") == {P0: 10}


def test_the_later_commit_counts_also_when_its_clock_is_behind(
    cluster: Cluster, clock: ManualClock
) -> None:
    ahead = ManualClock(clock.time_us() + 3_600_000_000)
    OffsetsTable(Cluster(cluster.root, clock=ahead)).commit("g", {P0: OffsetAndMetadata(5)})

    OffsetsTable(cluster).commit("g", {P0: OffsetAndMetadata(1)})

    assert positions(OffsetsTable(Cluster(cluster.root)), "g") == {P0: 1}


def test_groups_do_not_see_each_other(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    table.commit("a", {P0: OffsetAndMetadata(1)})
    table.commit("b", {P0: OffsetAndMetadata(2)})

    assert positions(table, "a") == {P0: 1}
    assert positions(table, "b") == {P0: 2}


def test_all_groups_are_read_at_once_and_as_one_by_one(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    assert table.all_committed_offsets() == {}
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(10)})
    table.commit("h", {P0: OffsetAndMetadata(2)})
    assert table.all_committed_offsets() == {
        group: table.committed_offsets(group) for group in ("g", "h")
    }

    table.commit("g", {P0: OffsetAndMetadata(5)})
    table.commit("i", {P1: OffsetAndMetadata(3)})
    found = table.all_committed_offsets()
    assert {
        group: {key.partition: each.offset for key, each in committed.items()}
        for group, committed in found.items()
    } == {"g": {0: 5, 1: 10}, "h": {0: 2}, "i": {1: 3}}


def test_all_groups_are_read_although_the_cache_is_too_small(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_log.coordinator.offsets.store._MAX_CACHED_OFFSETS", 2)
    table = OffsetsTable(cluster)
    for number in range(5):
        table.commit(f"g{number}", {P0: OffsetAndMetadata(number), P1: OffsetAndMetadata(number)})
    parts = create_autospec(DataFiles.parts, side_effect=DataFiles.parts)
    monkeypatch.setattr(DataFiles, "parts", parts)
    for _ in range(2):
        parts.reset_mock()
        assert {
            group: [each.offset for each in committed.values()]
            for group, committed in table.all_committed_offsets().items()
        } == {f"g{number}": [number, number] for number in range(5)}
    assert parts.call_count == 4, "one group is cached, the others are read again"


def test_offsets_of_a_topic_that_was_created_again_do_not_count(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)})
    Admin(cluster.root).delete_topics(["t"])
    assert table.fetch("g") == {}
    Admin(cluster.root).create_topics([NewTopic("t", num_partitions=4)])

    assert table.fetch("g") == {}


def test_an_unknown_topic_commits_nothing(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    with pytest.raises(UnknownTopicOrPartitionError):
        table.commit(
            "g", {P0: OffsetAndMetadata(5), TopicPartition("nope", 0): OffsetAndMetadata(1)}
        )

    assert table.fetch("g") == {}


def test_committing_nothing_makes_no_table(cluster: Cluster) -> None:
    table = OffsetsTable(cluster)
    table.commit("g", {})
    assert not Path(table.url).exists()


def test_memory_has_no_place_for_a_delta_table() -> None:
    Admin("memory://offsets").create_topics([NewTopic("t")])
    with pytest.raises(UnsupportedStoreError, match="use a directory as the root"):
        OffsetsTable(Cluster("memory://offsets"))


def _commit_many(root: str, group: str, count: int) -> None:
    table = OffsetsTable(Cluster(root))
    for offset in range(1, count + 1):
        table.commit(group, {P0: OffsetAndMetadata(offset)})


def test_processes_commit_at_once_and_nothing_is_lost(cluster: Cluster) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_commit_many, args=(cluster.root, f"g{number}", 15))
        for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    table = OffsetsTable(cluster)
    assert [positions(table, f"g{number}") for number in range(4)] == [{P0: 15}] * 4
    assert DeltaTable(table.url).to_pyarrow_dataset().count_rows() == 4 * 15


@pytest.mark.long
@pytest.mark.spark
def test_sql_reads_the_table_and_its_documented_query_finds_the_position(
    cluster: Cluster, spark: SparkSession
) -> None:
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(7)})
    table.commit("g", {P0: OffsetAndMetadata(6)})
    documented = (offsets_table.__doc__ or "").split("::\n")[1].split("\n\n")[0]

    rows = spark.sql(documented.replace("<root>", cluster.root)).collect()

    assert sorted((row.topic, row.partition, row.offset) for row in rows) == [
        ("t", 0, 6),
        ("t", 1, 7),
    ]
    history = spark.sql(f"SELECT count(*) FROM delta.`{table.url}` VERSION AS OF 1").collect()
    assert history[0][0] == 2
