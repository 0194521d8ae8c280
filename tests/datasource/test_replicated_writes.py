"""Writes of tasks to partitions with several replicas, without Spark: what ``acks`` waits for."""

import shutil

import pytest

from spark_log.datasource.options.write_options import parse_write_options
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidOptionError,
    NotEnoughReplicasError,
)
from spark_log.metadata import Cluster
from tests.datasource.sink_support import attempt, numbers, rows
from tests.metadata.replicas import leave, replica_of, replicated_cluster, state


@pytest.fixture
def cluster(tmp_path):
    return replicated_cluster(tmp_path, min_insync_replicas=2)


def ends(cluster, brokers=(0, 1, 2)):
    return [replica_of(cluster, each).log_end_offset() for each in brokers]


@pytest.mark.parametrize("acks", [{}, {"acks": "all"}, {"kafka.acks": "-1"}, {"acks": "1"}])
def test_all_replicas_have_the_records_of_a_task_that_ended(cluster, acks):
    attempt(cluster.root, [rows([1, 2, 3])], **acks)
    assert ends(cluster) == [3, 3, 3]
    assert numbers(cluster.root) == [[1, 2, 3]]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_too_few_replicas_in_sync_stop_only_who_waits_for_all(cluster, acks):
    leave(cluster, 1, 2)
    with pytest.raises(NotEnoughReplicasError):
        attempt(cluster.root, [rows([1])])
    attempt(cluster.root, [rows([1])], acks=acks)
    assert numbers(cluster.root) == [[1]]


def test_a_replica_that_cannot_catch_up_fails_no_task_that_waits_for_the_leader(cluster, tmp_path):
    shutil.move(tmp_path / "r2", tmp_path / "lost")
    attempt(cluster.root, [rows([1])], **{"kafka.acks": "1"})
    assert numbers(cluster.root) == [[1]]


def test_an_attempt_that_is_repeated_after_the_loss_of_the_leader_writes_once(cluster, tmp_path):
    for _ in range(2):
        attempt(cluster.root, [rows([1, 2, 3])])
        leader = state(cluster).leader
        leave(cluster, leader)
        cluster = Cluster(cluster.root)
        assert state(cluster).leader != leader
    assert numbers(cluster.root) == [[1, 2, 3]]


@pytest.mark.parametrize("option", ["idempotent", "transactional"])
def test_a_write_that_is_written_once_waits_for_all(option):
    with pytest.raises(InvalidOptionError, match=f"'{option}=true' needs acks=all"):
        parse_write_options({"path": "/r", "kafka.acks": "1", option: "true"})


def test_waiting_for_the_leader_alone_is_not_idempotent():
    assert parse_write_options({"path": "/r"}).idempotent
    assert not parse_write_options({"path": "/r", "acks": "0"}).idempotent


def test_an_unknown_value_is_refused():
    with pytest.raises(InvalidConfigurationError, match="acks"):
        parse_write_options({"path": "/r", "acks": "2"})
