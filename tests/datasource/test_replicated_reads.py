"""Reads of partitions with several replicas, as in a task, without Spark."""

import shutil

import pytest

from spark_log import Admin, CorruptRecordError, NewTopic, OffsetOutOfRangeError, TopicPartition
from spark_log.cluster import register_broker
from spark_log.datasource.read.split_reader import read_split
from tests.datasource.reading import options_of, plan
from tests.metadata.replicas import append, leave, log_of, replica_of, replicated_cluster, state
from tests.record.samples import numbered


@pytest.fixture
def cluster(tmp_path):
    """A cluster whose topic ``t`` has replicas on the brokers 0, 1 and 2, and 6 records."""
    cluster = replicated_cluster(tmp_path)
    for first in (0, 3):
        append(log_of(cluster), numbered(first, 3))
    return cluster


def offsets(cluster, split, **options):
    batches = read_split(split, ("offset",), options_of(cluster.root, **options))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def brokers(cluster, **options):
    (split,) = plan(cluster.root, **options)
    return [replica.broker_id for replica in split.replicas]


class TestPlanned:
    def test_the_last_replica_in_sync_comes_first(self, cluster):
        assert brokers(cluster) == [2, 1, 0]
        leave(cluster, 2)
        assert brokers(cluster) == [1, 0]

    def test_one_in_the_rack_of_the_client_comes_before_it(self, tmp_path):
        cluster = replicated_cluster(tmp_path, brokers=2)
        register_broker(cluster, 2, tmp_path / "r2", rack="a")
        Admin(cluster.root).create_topics([NewTopic("u", replica_assignment={0: [2, 0, 1]})])
        log = cluster.partition_log(cluster.topic("u"), 0)
        append(log, numbered(0, 3))
        assert brokers(cluster, subscribe="u") == [1, 0, 2]
        assert brokers(cluster, subscribe="u", **{"client.rack": "a"}) == [2, 1, 0]
        assert brokers(cluster, subscribe="u", **{"kafka.client.rack": "b"}) == [1, 0, 2]

    def test_a_partition_in_the_root_alone_has_none(self, tmp_path):
        cluster = replicated_cluster(tmp_path, brokers=1)
        append(log_of(cluster), numbered(0, 3))
        assert brokers(cluster) == []
        (split,) = plan(cluster.root)
        assert offsets(cluster, split) == [0, 1, 2]

    def test_a_partition_that_is_not_in_the_root(self, tmp_path):
        cluster = replicated_cluster(tmp_path, brokers=2)
        Admin(cluster.root).create_topics([NewTopic("u", replica_assignment={0: [1]})])
        append(cluster.partition_log(cluster.topic("u"), 0), numbered(0, 3))
        assert brokers(cluster, subscribe="u") == [1]
        (split,) = plan(cluster.root, subscribe="u")
        assert offsets(cluster, split, subscribe="u") == [0, 1, 2]


class TestRead:
    def test_only_what_all_have_is_planned(self, cluster):
        append(log_of(cluster), numbered(6, 3), acks=1)
        (split,) = plan(cluster.root)
        assert offsets(cluster, split) == [0, 1, 2, 3, 4, 5]

    def test_any_replica_serves_when_others_are_lost_after_the_plan(self, cluster, tmp_path):
        (split,) = plan(cluster.root)
        for broker_id in (2, 1):
            shutil.move(tmp_path / f"r{broker_id}", tmp_path / f"lost{broker_id}")
            assert offsets(cluster, split) == [0, 1, 2, 3, 4, 5]

    def test_a_replica_that_is_damaged_amid_the_read_is_continued_in_another(self, cluster):
        (split,) = plan(cluster.root)
        files = replica_of(cluster, 2).files
        (_, second) = files.observe().live.segments
        path = f"{files.store.url}/{second.file.path}"
        with open(path, "r+b") as file:
            file.truncate(100)
        assert offsets(cluster, split) == [0, 1, 2, 3, 4, 5]

    def test_if_none_can_be_read_the_first_error_is_told(self, cluster):
        (split,) = plan(cluster.root)
        for broker_id in (0, 1, 2):
            files = replica_of(cluster, broker_id).files
            for segment in files.observe().live.segments:
                with open(f"{files.store.url}/{segment.file.path}", "r+b") as file:
                    file.truncate(100)
        with pytest.raises(CorruptRecordError, match="t-0"):
            offsets(cluster, split)

    def test_deleted_records_are_told_or_passed_over(self, cluster):
        (split,) = plan(cluster.root)
        Admin(cluster.root).delete_records({TopicPartition("t", 0): 4})
        with pytest.raises(OffsetOutOfRangeError):
            offsets(cluster, split)
        assert offsets(cluster, split, failOnDataLoss="false") == [4, 5]

    def test_a_replica_that_still_has_deleted_records_is_found(self, cluster):
        (split,) = plan(cluster.root)
        leave(cluster, 0)
        Admin(cluster.root).delete_records({TopicPartition("t", 0): 4})
        assert offsets(cluster, split) == [0, 1, 2, 3, 4, 5]

    def test_lost_roots_are_no_empty_logs(self, cluster, tmp_path):
        (split,) = plan(cluster.root)
        assert state(cluster).isr == (0, 1, 2)
        for broker_id in (1, 2):
            shutil.move(tmp_path / f"r{broker_id}", tmp_path / f"lost{broker_id}")
        files = replica_of(cluster, 0).files
        for segment in files.observe().live.segments:
            with open(f"{files.store.url}/{segment.file.path}", "r+b") as file:
                file.truncate(100)
        with pytest.raises(CorruptRecordError, match="t-0"):
            offsets(cluster, split, failOnDataLoss="false")
