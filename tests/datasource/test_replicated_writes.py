"""Writes of tasks to partitions with several replicas, without Spark: what ``acks`` waits for."""

import shutil

import pyarrow as pa
import pytest

from spark_log.admin import Admin
from spark_log.cluster import Cluster
from spark_log.datasource.options import parse_write_options
from spark_log.datasource.write.target_topic import prepare_topic
from spark_log.errors import (
    AuthorizationError,
    InvalidConfigurationError,
    InvalidOptionError,
    NotEnoughReplicasError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import PartitionDirectory
from spark_log.types import NewTopic
from tests.datasource.sink_support import attempt, numbers, rows
from tests.metadata.replicas import come_back, leave, replica_of, replicated_cluster, state


@pytest.fixture
def cluster(tmp_path):
    return replicated_cluster(tmp_path, min_insync_replicas=2)


def ends(cluster, brokers=(0, 1, 2)):
    return [replica_of(cluster, each).observe().log_end_offset for each in brokers]


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
    assert numbers(cluster.root) == [[]], "an election may take it back until two replicas have it"
    come_back(cluster, 1)
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


def test_a_replica_that_cannot_be_read_after_the_append_fails_no_task(cluster, monkeypatch):
    """The writer looks whether what an earlier try put is its own, or another attempt's."""
    attempt(cluster.root, [rows([1, 2, 3])])
    open_segment = PartitionDirectory.open
    denied: list[object] = []

    def deny_first(files, name, *what):
        if not denied and files.path.endswith("/t-0"):
            denied.append(name)
            raise AuthorizationError("denied")
        return open_segment(files, name, *what)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionDirectory, "open", deny_first)
        attempt(cluster.root, [rows([1, 2, 3])])
    assert denied
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


class TestAcksByTopic:
    def test_each_topic_has_its_own(self, cluster):
        Admin(cluster.root).create_topics([NewTopic("alone")])
        by_topic = '{"t": "1", "alone": -1}'
        options = parse_write_options({"path": cluster.root, "acksByTopic": by_topic})
        assert [options.acks_of(topic) for topic in ("t", "alone", "other")] == ["1", "all", "all"]
        leave(cluster, 1, 2)
        both = rows([1, 2]).append_column("topic", pa.array(["t", "alone"]))
        with pytest.raises(NotEnoughReplicasError):
            attempt(cluster.root, [both], topic=None)
        for _ in range(2):
            attempt(cluster.root, [both], topic=None, acksByTopic=by_topic)
        come_back(cluster, 1)
        assert numbers(cluster.root) == [[1, 1]], "acks=1 is not idempotent"
        assert numbers(cluster.root, "alone") == [[2]]

    def test_it_goes_before_the_acks_of_all(self):
        given = {"path": "/r", "topic": "t", "acks": "1", "acksByTopic": '{"t": "all"}'}
        assert parse_write_options(given).acks_of("t") == "all"
        assert parse_write_options(given | {"transactional": "true"}).transactional
        with pytest.raises(InvalidOptionError, match="needs acks=all, but acks is 1"):
            parse_write_options(given | {"transactional": "true", "acksByTopic": '{"t": 1}'})

    @pytest.mark.parametrize(
        "text",
        ["{", "1", "[]", '{"t": 2}', '{"t": "some"}', '{"t": true}', '{"t": null}', '{"t": {}}'],
    )
    def test_any_other_value_is_refused(self, text):
        with pytest.raises(InvalidOptionError, match=r"'acksByTopic' is .*expected all, 1 or 0"):
            parse_write_options({"path": "/r", "acksByTopic": text})

    def test_a_topic_that_gets_no_record_is_refused(self, cluster):
        with pytest.raises(InvalidOptionError, match="has no effect on topic 'u'"):
            parse_write_options({"path": "/r", "topic": "t", "acksByTopic": '{"u": "1"}'})
        options = parse_write_options({"path": cluster.root, "acksByTopic": '{"T": "1"}'})
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean"):
            prepare_topic(options)
