"""``spark-log verify`` compares the markers in partitions with what was decided."""

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.record import EndTransactionMarker
from spark_log.transaction import TransactionStateLog, TransactionVerifier, decisions
from tests.cli.support import begin_transaction, flip, partition_log

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def root(tmp_path):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("flights", 2)])
    return tmp_path / "root"


def findings(root):
    return [(each.kind, each.path) for each in TransactionVerifier(Cluster(root)).findings()]


def complete_without_markers(root, producer, *, is_committed):
    """Append to the state log what a coordinator would that forgets the markers."""
    log = TransactionStateLog(Cluster(root).store, "orders", Cluster(root).clock)
    if is_committed:
        log.commit(lambda state: decisions.commit(state, producer, [producer]))
    else:
        log.commit(lambda state: decisions.abort(state, producer))
    log.commit(lambda state: decisions.complete(state, 1))


def put_marker(root, producer, partition, *, is_committed):
    marker = EndTransactionMarker(producer.producer_id, producer.producer_epoch + 1, is_committed)
    log: PartitionLog = partition_log(root, partition.topic, partition.partition)
    log.append_markers([marker])
    return log


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_with_its_markers_is_sound(root, end):
    coordinator, producer = begin_transaction(root, "orders", P0, P1)
    assert findings(root) == []
    following = getattr(coordinator, end)(producer)
    assert findings(root) == []
    coordinator.register(following, [])
    assert findings(root) == []


def test_a_marker_that_is_missing_is_an_error(root):
    _, producer = begin_transaction(root, "orders", P0, P1)
    complete_without_markers(root, producer, is_committed=True)
    put_marker(root, producer, P0, is_committed=True)
    directory = partition_log(root, "flights", 1).directory
    assert findings(root) == [("missing-marker", directory)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_marker_of_the_wrong_type_is_an_error(root, is_committed):
    _, producer = begin_transaction(root, "orders", P0)
    complete_without_markers(root, producer, is_committed=is_committed)
    log = put_marker(root, producer, P0, is_committed=not is_committed)
    assert findings(root) == [("wrong-marker", log.directory)]
    (found,) = TransactionVerifier(Cluster(root)).findings()
    assert ("its marker here aborts it" in found.message) == is_committed


def test_a_deleted_topic_needs_no_marker(root):
    _, producer = begin_transaction(root, "orders", P0)
    complete_without_markers(root, producer, is_committed=True)
    with Admin(root) as admin:
        admin.delete_topics(["flights"])
    assert findings(root) == []


def test_a_damaged_state_log_is_an_error(root):
    begin_transaction(root, "orders", P0)
    directory = TransactionStateLog.directory_of("orders")
    newest = sorted((root / directory).glob("*.log"))[-1]
    for position in range(200, newest.stat().st_size, 7):
        flip(newest, position)
    assert findings(root) == [("unreadable", directory)]
