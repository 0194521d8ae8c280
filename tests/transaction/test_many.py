"""Transactions of many partitions, and many transactions that are open at the same time."""

import os
from uuid import uuid4

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.record import ProducerAppend
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCleaner,
    TransactionCoordinator,
    TransactionStateLog,
)
from tests.record.samples import numbered
from tests.waiting import wait_until

OPEN = int(os.environ.get("OPEN_TRANSACTIONS", "2000"))
PARTITIONS = 4
TIMEOUT_MS = 900_000


@pytest.fixture
def root(tmp_path):
    """A root in memory: on a disk most of the time would go to syncs.

    A listing there takes as long as the root has files, so many transactions get a directory.
    """
    return str(tmp_path / "root") if OPEN > 5000 else f"memory://{uuid4().hex}"


def committed_counts(root, partitions):
    """Return the number of committed records of each partition."""
    cluster = Cluster(root)
    topic = cluster.topic("t")
    return [
        sum(
            batch.records.num_rows
            for batch in cluster.partition_log(topic, each).scan(
                0, isolation_level="read_committed"
            )
        )
        for each in range(partitions)
    ]


@pytest.mark.long
def test_a_transaction_of_a_thousand_partitions_is_registered_at_once_and_seen_whole(root):
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", 1000)])
    with Producer(root, transactional_id="id", linger_ms=100_000) as producer:
        producer.init_transactions()
        for is_committed in (True, False):
            producer.begin_transaction()
            for partition in range(1000):
                producer.send("t", b"x", partition=partition)
            producer.flush()
            if is_committed:
                assert committed_counts(root, 3) == [0, 0, 0]
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    assert committed_counts(root, 1000) == [1] * 1000
    cluster = Cluster(root)
    state_log = TransactionStateLog(cluster.store, "id", cluster.clock)
    assert state_log.replay() == 1
    changes = len(list(cluster.store.list(state_log.directory)))
    assert changes == 6, "initialize; register and decide, twice; complete"


@pytest.mark.long
def test_thousands_of_open_transactions_hold_readers_up_until_they_are_finished(root):
    """``OPEN_TRANSACTIONS=10000`` opens so many; ``--basetemp`` had better be in memory then."""
    admin = Admin(root)
    admin.create_topics([NewTopic("t", PARTITIONS)])
    cluster = Cluster(root)
    topic = cluster.topic("t")
    logs = {
        TopicIdPartition(topic.topic_id, each): cluster.partition_log(topic, each)
        for each in range(PARTITIONS)
    }
    places = list(logs)
    begun = []
    for number in range(OPEN):
        coordinator = TransactionCoordinator(
            cluster, f"id-{number}", open_log=logs.get, markers_at_once=1
        )
        owner = coordinator.initialize(TIMEOUT_MS)
        place = places[number % PARTITIONS]
        coordinator.register(owner, [place])
        identity = ProducerAppend(owner.producer_id, owner.producer_epoch, 0, is_transactional=True)
        logs[place].append(numbered(0, 1), producer=identity)
        begun.append((coordinator, owner))

    states = {each.state for each in admin.list_transactions()}
    assert states == {"Ongoing"}
    assert not list(TransactionCleaner(cluster).clean()), "their timeout has not passed"
    for partition in range(PARTITIONS):
        fresh = cluster.partition_log(topic, partition)
        found = fresh.transactions().open
        assert len(found) == OPEN // PARTITIONS
        fresh.replica.snapshots.write()
        assert cluster.partition_log(topic, partition).transactions().open == found

    reader = Consumer(
        root=root,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    reader.assign([TopicPartition("t", each) for each in range(PARTITIONS)])
    assert reader.poll_table(timeout_ms=100).num_rows == 0
    for number, (coordinator, owner) in enumerate(begun):
        if number % 8 < PARTITIONS:
            coordinator.commit(owner)
        else:
            coordinator.abort(owner)
    seen = 0

    def read():
        nonlocal seen
        seen += reader.poll_table(timeout_ms=1000).num_rows
        return seen == OPEN // 2

    wait_until(read, "the reader has not returned what was committed")
    reader.close()
    assert committed_counts(root, PARTITIONS) == [OPEN // 2 // PARTITIONS] * PARTITIONS
    assert {each.state for each in admin.list_transactions()} == {"CompleteCommit", "CompleteAbort"}
