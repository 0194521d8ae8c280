"""`TransactionCleaner`: it aborts what is dead, finishes what is decided, forgets what is old."""

import os

import pytest

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import ClockSkewError, ProducerFencedError
from spark_log.storage import local
from spark_log.transaction import (
    CleanedTransactionalId,
    TopicIdPartition,
    TransactionCleaner,
    TransactionCoordinator,
    TransactionStateLog,
    decisions,
    find_transactional_id,
)
from tests.log.support import ShiftedClock

WEEK_S = 7 * 86_400


@pytest.fixture(autouse=True)
def _times_may_be_set(monkeypatch):
    """A file appeared when ``os.utime`` says; else a file cannot be made older."""
    monkeypatch.setattr(local, "appeared_us", lambda status: status.st_mtime_ns // 1000)


@pytest.fixture
def root(tmp_path):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("orders", 2)])
    return tmp_path / "root"


@pytest.fixture
def cluster(root):
    return Cluster(root)


@pytest.fixture
def coordinator(cluster):
    return TransactionCoordinator(cluster, "t")


def partition(cluster, number=0):
    return TopicIdPartition(cluster.topic("orders").topic_id, number)


def age(root, seconds, transactional_id="t"):
    """Let a transactional id's log be this old, by the storage's time."""
    directory = root / TransactionStateLog.directory_of(transactional_id)
    for file in directory.iterdir():
        if file.is_file():
            time = file.stat().st_mtime - seconds
            os.utime(file, (time, time))


def cleaned(cluster, **options):
    return list(TransactionCleaner(cluster, **options).clean())


def state(cluster):
    return TransactionStateLog.view(cluster.store, "t", cluster.clock).state


def test_a_transaction_without_a_change_for_its_timeout_is_aborted(root, cluster, coordinator):
    owner = coordinator.initialize(60_000)
    coordinator.register(owner, [partition(cluster)])
    age(root, 50)
    assert cleaned(cluster) == []
    age(root, 20)
    assert cleaned(cluster, dry_run=True) == [CleanedTransactionalId("t", "abort")]
    assert state(cluster).state == "Ongoing"
    assert cleaned(cluster) == [CleanedTransactionalId("t", "abort")]
    assert state(cluster).state == "CompleteAbort"
    assert cleaned(cluster) == []


def test_a_decided_one_is_finished_at_once(cluster, coordinator):
    owner = coordinator.initialize(60_000)
    coordinator.register(owner, [partition(cluster)])
    log = TransactionStateLog(cluster.store, "t", cluster.clock)
    log.commit(lambda state: decisions.commit(state, owner, [owner]))
    assert cleaned(cluster) == [CleanedTransactionalId("t", "finish")]
    assert state(cluster).state == "CompleteCommit"


def test_an_old_id_is_forgotten_with_its_producers(root, cluster, coordinator):
    owner = coordinator.initialize(60_000)
    task = coordinator.join(owner, [partition(cluster)])
    following = coordinator.commit(owner, [task], batch_id=7)
    age(root, WEEK_S - 60)
    assert cleaned(cluster) == []
    age(root, 120)
    assert cleaned(cluster) == [CleanedTransactionalId("t", "expire")]
    for producer in (owner, task):
        assert find_transactional_id(cluster.store, producer.producer_id) is None
    assert cleaned(cluster) == [], "once"
    # A process that slept for a week is fenced, also when the id is used again.
    for late in (coordinator, TransactionCoordinator(cluster, "t")):
        with pytest.raises(ProducerFencedError):
            late.register(following, [partition(cluster)])
    fresh = TransactionCoordinator(cluster, "t")
    again = fresh.initialize(60_000)
    assert again.producer_id > max(owner.producer_id, task.producer_id)
    with pytest.raises(ProducerFencedError):
        coordinator.register(following, [partition(cluster)])
    with pytest.raises(Exception, match="micro-batch 7 is not above the last"):
        fresh.commit(again, (), batch_id=7)


def test_an_id_in_use_is_not_forgotten(root, cluster, coordinator):
    owner = coordinator.initialize(60_000)
    coordinator.register(owner, [partition(cluster)])
    with Admin(root) as admin:
        setting = {"transactional.id.expiration.ms": "1000"}
        admin.alter_configs([ConfigResource("broker", "", setting)])
    age(root, 10)
    assert cleaned(cluster) == []
    coordinator.commit(owner)
    age(root, 10)
    assert cleaned(cluster) == [CleanedTransactionalId("t", "expire")]


def test_what_changed_since_the_look_is_left_alone(root, cluster, coordinator):
    owner = coordinator.initialize(60_000)
    revision = coordinator.state.revision
    coordinator.register(owner, [partition(cluster)])
    assert not TransactionCoordinator(cluster, "t").forget(revision)
    coordinator.abort(owner)
    assert not TransactionCoordinator(cluster, "t").forget(revision)
    assert find_transactional_id(cluster.store, owner.producer_id) == "t"


def test_a_wrong_clock_cleans_nothing(root, cluster, coordinator):
    owner = coordinator.initialize(60_000)
    coordinator.register(owner, [partition(cluster)])
    age(root, 120)
    wrong = Cluster(root, clock=ShiftedClock(cluster.clock, days=1))
    with pytest.raises(ClockSkewError):
        cleaned(wrong)
    assert state(cluster).state == "Ongoing"


def test_ids_of_any_text_are_listed(cluster):
    ids = ["a/b", "ü", "x" * 300]
    for each in ids:
        TransactionCoordinator(cluster, each).initialize(1000)
    assert TransactionStateLog.list_names(cluster.store, cluster.clock) == sorted(ids)
