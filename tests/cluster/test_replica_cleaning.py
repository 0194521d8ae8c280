"""Cleaning and deleting records of partitions with several replicas: nothing that may yet be lost
or be needed by another replica is touched, and deleted records do not come back."""

import shutil

import pytest

from spark_log import Admin, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.errors import OffsetOutOfRangeError, StorageUnavailableError
from spark_log.jobs.task import CleaningTask
from tests.metadata.replicas import (
    append,
    come_back,
    leave,
    log_of,
    replica_of,
    replicated_cluster,
    state,
)
from tests.record.samples import numbered, record_batch, row

BROKERS = (0, 1, 2)
TP = TopicPartition("t", 0)


def keyed(*pairs):
    return record_batch([row(value, key) for key, value in pairs])


def names(cluster, broker_id):
    """Return the names of the live segments of a replica."""
    live = replica_of(cluster, broker_id).observe().live
    return [segment.name for segment in live.segments]


def starts(cluster, brokers=BROKERS):
    return [replica_of(cluster, each).observe().log_start_offset for each in brokers]


def values(log):
    return [
        value
        for batch in log.scan(log.observe().log_start_offset)
        for value in batch.records.column("value").to_pylist()
    ]


def clean(cluster):
    """Clean the root; return the errors by broker."""
    return {each.broker_id: each.error for each in ClusterCleaner(cluster).clean()}


def lose(cluster, broker_id):
    """Move a broker's root away, and return where it is."""
    root = cluster.broker_store(broker_id).url
    shutil.move(root, f"{root}-lost")
    return f"{root}-lost"


class TestClean:
    def test_each_replica_is_merged_by_itself(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        log = log_of(cluster)
        for first in range(0, 24, 3):
            append(log, numbered(first, 3))
        assert clean(cluster) == dict.fromkeys(BROKERS)
        for broker_id in BROKERS:
            assert [name.generation for name in names(cluster, broker_id)] == [1]
        assert len(values(log_of(cluster))) == 24

    def test_each_replica_is_retained_by_itself(self, tmp_path):
        cluster = replicated_cluster(tmp_path, retention_bytes=1)
        append(log_of(cluster), numbered(0, 3))
        append(log_of(cluster), numbered(3, 3))
        clean(cluster)
        assert starts(cluster) == [3, 3, 3]

    def test_nothing_behind_the_high_watermark_is_merged_or_expires(self, tmp_path):
        cluster = replicated_cluster(tmp_path, retention_bytes=1)
        log = log_of(cluster)
        append(log, numbered(0, 3))
        for first in range(3, 30, 3):
            append(log, numbered(first, 3), acks=1)
        clean(cluster)
        assert starts(cluster) == [3, 0, 0]  # the leader's log is the only one that is too large
        assert all(not name.generation for name in names(cluster, 0))
        log.catch_up()
        assert [replica_of(cluster, each).observe().log_end_offset for each in BROKERS] == [
            30,
            30,
            30,
        ]

    def test_a_record_behind_the_high_watermark_replaces_no_other(self, tmp_path):
        cluster = replicated_cluster(tmp_path, cleanup_policy="compact")
        log = log_of(cluster)
        append(log, keyed((b"a", b"1"), (b"b", b"1")))
        append(log, keyed((b"a", b"2")))
        append(log, keyed((b"c", b"1")))
        for value in (b"3", b"4"):
            append(log, keyed((b"a", value), (b"b", value)), acks=1)
        clean(cluster)
        assert values(replica_of(cluster, 0))[:3] == [b"1", b"2", b"1"]  # b, a, c
        leave(cluster, 0)
        assert values(log_of(cluster)) == [b"1", b"2", b"1"]

    def test_what_was_never_acknowledged_replaces_no_record_on_a_replica_that_diverged(
        self, tmp_path
    ):
        cluster = replicated_cluster(tmp_path, cleanup_policy="compact")
        append(log_of(cluster), keyed((b"a", b"1")))
        log = log_of(cluster)
        for _ in range(2):
            append(log, keyed((b"a", b"lost")), acks=1)
        leave(cluster, 0)
        for _ in range(4):
            append(log_of(cluster), keyed((b"b", b"2")))
        clean(cluster)
        assert values(replica_of(cluster, 0)) == [b"1", b"lost", b"lost"]

    def test_a_replica_that_lags_is_cleaned_as_far_as_it_is_the_same(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        log = log_of(cluster)
        for first in range(0, 24, 3):
            append(log, numbered(first, 3))
        leave(cluster, 2)
        append(log_of(cluster), numbered(24, 3))
        clean(cluster)
        assert [name.last_offset for name in names(cluster, 2)] == [23]

    def test_a_broker_that_is_away_is_told_and_the_others_are_cleaned(self, tmp_path):
        cluster = replicated_cluster(tmp_path, retention_bytes=1)
        for first in (0, 3):
            append(log_of(cluster), numbered(first, 3))
        lose(cluster, 2)
        cluster = Cluster(cluster.root)
        errors = clean(cluster)
        assert (errors[0], errors[1]) == (None, None)
        assert isinstance(errors[2], StorageUnavailableError)
        assert starts(cluster, (0, 1)) == [6, 6]  # where the barrier is
        assert not (tmp_path / "r2").exists()

    def test_a_partition_without_a_replica_that_can_be_read_is_told(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        leave(cluster, 0, 1)
        lose(cluster, 2)
        ((broker_id, error),) = clean(Cluster(cluster.root)).items()
        assert broker_id is None
        assert error is not None

    def test_a_spark_task_cleans_all_replicas_and_adds_up(self, tmp_path):
        cluster = replicated_cluster(tmp_path, retention_bytes=1)
        for first in (0, 3):
            append(log_of(cluster), numbered(first, 3))
        lose(cluster, 2)
        task = CleaningTask(str(cluster.root), {}, {}, 1 << 20)
        assert task.plan(TP)["expired_segments"] == 4
        done = task.clean(TP)
        assert (done["expired_segments"], done["log_start_offset"]) == (4, 6)
        assert done["error"].startswith("broker 2: ")
        assert task.plan(TP)["dirt_bytes"] == 0


class TestDeleteRecords:
    def delete(self, cluster, offset):
        answer = Admin(cluster.root).delete_records({TP: offset})
        return answer[TP].low_watermark

    def test_every_replica_in_sync_begins_there_when_it_returns(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 6))
        assert self.delete(cluster, 4) == 4
        assert starts(cluster) == [4, 4, 4]
        assert self.delete(cluster, -1) == 6

    def test_only_records_that_all_have_can_be_deleted(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        log = log_of(cluster)
        append(log, numbered(0, 3))
        append(log, numbered(3, 3), acks=1)
        with pytest.raises(OffsetOutOfRangeError):
            self.delete(cluster, 4)
        assert self.delete(cluster, -1) == 3
        assert starts(cluster) == [3, 3, 3]

    def test_a_replica_that_fails_leaves_the_ones_in_sync(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 6))
        lose(cluster, 1)
        assert self.delete(cluster, 4) == 4
        assert state(cluster).isr == (0, 2)
        assert starts(cluster, (0, 2)) == [4, 4]

    def test_they_do_not_come_back_with_a_replica_that_was_away(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 6))
        lost = lose(cluster, 2)
        self.delete(cluster, 4)
        shutil.move(lost, tmp_path / "r2")
        cluster = Cluster(cluster.root)
        come_back(cluster, 2)
        assert starts(cluster) == [4, 4, 4]
        assert log_of(cluster).observe().log_start_offset == 4

    def test_nor_with_one_that_has_none_of_the_records_that_are_left(self, tmp_path):
        cluster = replicated_cluster(tmp_path)
        append(log_of(cluster), numbered(0, 3))
        leave(cluster, 2)
        append(log_of(cluster), numbered(3, 6))
        self.delete(cluster, 6)
        come_back(cluster, 2, number=1)
        assert log_of(cluster).observe().log_start_offset == 6
        assert len(values(log_of(cluster))) == len(values(replica_of(cluster, 0)))
