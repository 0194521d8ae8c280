"""The debug log tells each step of a transaction, and who ended it."""

import logging

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.log import OpenTransaction
from spark_log.transaction import TopicIdPartition, TransactionCoordinator, TransactionObserver
from spark_log.transaction.markers import put_markers
from tests.cli.support import begin_transaction

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
STATE_LOG = "__transaction_state/ids/t"


@pytest.fixture
def root(tmp_path):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("orders", 2)])
    return tmp_path / "root"


@pytest.fixture
def story(caplog):
    caplog.set_level(logging.DEBUG, "spark_log.transaction")
    caplog.set_level(logging.DEBUG, "spark_log.log.state_log")
    return caplog


def partition_directory(root, partition):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic("orders"), partition).directory


@pytest.mark.partition_logs_only("markers of a stripe have a line together")
def test_each_change_and_each_marker_is_told(root, story):
    coordinator, producer = begin_transaction(root, "t", P0, P1)
    p = producer.producer_id
    coordinator.commit(producer)
    assert [
        each for each in story.messages if each.startswith((STATE_LOG, "transactional id"))
    ] == [
        f"{STATE_LOG}: appended at offset 0: transaction 0 is Empty by initialize: "
        f"producer {p}:0, 0 participants, 0 partitions",
        f"transactional id 't': its producer is {p}, epoch 0, with a timeout of 60000 ms",
        f"{STATE_LOG}: appended at offset 1: transaction 1 is Ongoing by register: "
        f"producer {p}:0, 1 participants, 2 partitions",
        f"{STATE_LOG}: appended at offset 2: transaction 1 is PrepareCommit by commit: "
        f"producer {p}:1, 1 participants, 2 partitions, 0 offsets",
        "transactional id 't': transaction 1 has its markers in 2 partitions, and 0 offsets",
        f"{STATE_LOG}: appended at offset 3: transaction 1 is CompleteCommit by complete: "
        f"producer {p}:1, 1 participants, 2 partitions, 0 offsets",
    ]
    for partition in (0, 1):
        assert (
            f"{partition_directory(root, partition)}: commit marker of producer {p}:1 of "
            "transaction 1 of 't': put at offset 1"
        ) in story.messages


@pytest.mark.partition_logs_only("markers of a stripe have a line together")
def test_a_marker_that_is_in_the_log_is_told(root, story):
    coordinator, producer = begin_transaction(root, "t", P0)
    coordinator.abort(producer)
    story.clear()
    put_markers(Cluster(root), coordinator.state)
    assert story.messages == [
        f"{partition_directory(root, 0)}: abort marker of producer {producer.producer_id}:1 of "
        "transaction 1 of 't': in the log already"
    ]


def aborts(story):
    told = (each for each in story.records if "has aborted" in each.getMessage())
    return [(each.levelname, each.getMessage()) for each in told]


def test_a_reader_that_ends_a_transaction_says_how_long_it_waited(root, story, clock):
    _, producer = begin_transaction(root, "t", P0)
    cluster = Cluster(root, clock=clock)
    topic = cluster.topic("orders")
    log, partition = cluster.partition_log(topic, 0), TopicIdPartition(topic.topic_id, 0)
    blocking = OpenTransaction(producer.producer_id, producer.producer_epoch, 0)
    observer = TransactionObserver(cluster, clock=clock)
    while not observer.resolve(blocking, log, partition):
        clock.advance_ms(20_000)
    assert (
        f"{log.directory}: the transaction of producer {producer.producer_id}:0 has blocked a "
        "reader for 40000 ms"
    ) in story.messages
    assert aborts(story) == [
        (
            "INFO",
            "transactional id 't': this process has aborted transaction 1: a reader saw it open "
            "for 60000 ms, and its timeout is 60000 ms",
        )
    ]


def test_a_producer_that_takes_over_says_so(root, story):
    begin_transaction(root, "t", P0)
    TransactionCoordinator(Cluster(root), "t").initialize(60_000)
    assert aborts(story) == [
        (
            "INFO",
            "transactional id 't': this process has aborted transaction 1: another producer takes "
            "over",
        )
    ]
