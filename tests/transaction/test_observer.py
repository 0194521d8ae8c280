"""Readers that are held up end the transactions of producers that are gone."""

from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import StorageError
from spark_log.log import OpenTransaction, PartitionLog
from spark_log.record import ProducerAppend
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCoordinator,
    TransactionObserver,
    TransactionStateLog,
    decisions,
)
from spark_log.transaction.producers import forget_producer
from spark_log.util.clock import ManualClock
from tests.log.support import HookedStore
from tests.record.samples import numbered
from tests.transaction.support import markers_in

TIMEOUT_MS = 60_000


@pytest.fixture
def cluster(tmp_path, clock):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("orders", 2)])
    cluster = Cluster(tmp_path / "root", clock=clock)
    cluster.store = HookedStore(cluster.store)
    return cluster


@pytest.fixture
def coordinator(cluster):
    return TransactionCoordinator(cluster, "t", markers_at_once=1)


class Reader:
    """A reader of one partition that is held up, with its observer."""

    def __init__(self, cluster, clock, number=0):
        self.clock = clock
        self.topic = cluster.topic("orders")
        self.partition = TopicIdPartition(self.topic.topic_id, number)
        self.log = cluster.partition_log(self.topic, number)
        self.observer = TransactionObserver(cluster, clock=clock)

    def is_resolved(self, blocking):
        return self.observer.resolve(blocking, self.log, self.partition)

    def waits(self, blocking, for_ms):
        """Ask every 100 ms; return after how many the transaction was resolved, or None."""
        for waited_ms in range(0, for_ms + 1, 100):
            if self.is_resolved(blocking):
                return waited_ms
            self.clock.advance_ms(100)
        return None

    def markers(self):
        found = markers_in(self.log)
        return [(each.producer_epoch, each.is_committed) for each in found]


@pytest.fixture
def reader(cluster, clock):
    return Reader(cluster, clock)


def begin(cluster, coordinator, owner, *numbers):
    """Begin a transaction with records in partitions; return what is open in the first."""
    topic = cluster.topic("orders")
    coordinator.register(owner, [TopicIdPartition(topic.topic_id, each) for each in numbers])
    append = ProducerAppend(owner.producer_id, owner.producer_epoch, 0, is_transactional=True)
    infos = [
        cluster.partition_log(topic, each).append(numbered(0, 3), producer=append)
        for each in numbers
    ]
    return OpenTransaction(owner.producer_id, owner.producer_epoch, infos[0].base_offset)


def decide(cluster, coordinator, owner, monkeypatch, end="commit"):
    """Decide a transaction as a producer that dies then."""

    def dead(self, markers):
        raise StorageError("killed")

    with monkeypatch.context() as dying:
        dying.setattr(PartitionLog, "append_markers", dead)
        getattr(coordinator, end)(owner)


def test_a_short_transaction_costs_no_request(cluster, coordinator, reader):
    blocking = begin(cluster, coordinator, coordinator.initialize(TIMEOUT_MS), 0)
    cluster.store.calls.clear()
    assert reader.waits(blocking, 400) is None
    assert cluster.store.calls == []


def test_one_that_is_ongoing_is_left_alone_until_its_timeout(cluster, coordinator, reader):
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0)
    assert reader.waits(blocking, TIMEOUT_MS - 100) is None
    assert coordinator.refresh().state == "Ongoing"
    assert reader.waits(blocking, 2000) is not None
    assert reader.markers() == [(1, False)]
    assert coordinator.refresh().state == "CompleteAbort"


def test_a_look_a_second(cluster, coordinator, reader):
    blocking = begin(cluster, coordinator, coordinator.initialize(TIMEOUT_MS), 0)
    reader.waits(blocking, 1000)
    cluster.store.calls.clear()
    reader.waits(blocking, 10_000)
    assert len(cluster.store.calls) <= 10


@pytest.mark.parametrize(("end", "is_committed"), [("commit", True), ("abort", False)])
def test_one_that_is_decided_gets_its_marker(
    cluster, coordinator, reader, monkeypatch, end, is_committed
):
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0, 1)
    decide(cluster, coordinator, owner, monkeypatch, end)
    assert reader.waits(blocking, 1000) == 500
    assert reader.markers() == [(1, is_committed)]
    assert reader.log.transactions().open == ()


def test_the_timeout_counts_from_the_sight_of_each_observer(cluster, coordinator, reader):
    """Not from the begin, and by no wall clock."""
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0)
    reader.waits(blocking, TIMEOUT_MS - 1000)
    late = Reader(cluster, ManualClock())
    assert late.waits(blocking, TIMEOUT_MS - 1000) is None
    assert coordinator.refresh().state == "Ongoing"


def test_those_behind_the_first_have_waited_as_long(cluster, clock, reader):
    dead = [TransactionCoordinator(cluster, f"t{each}") for each in range(5)]
    blocking = [begin(cluster, each, each.initialize(TIMEOUT_MS), 0) for each in dead]
    assert reader.waits(blocking[0], 2 * TIMEOUT_MS) is not None
    clock.advance_ms(1000)
    assert all(reader.is_resolved(each) for each in blocking[1:])


def test_a_reader_that_is_behind_reads_on(cluster, coordinator, reader):
    """It is held up by a transaction that has its marker, further on."""
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0)
    following = coordinator.commit(owner)
    begin(cluster, coordinator, following, 0)
    assert reader.waits(blocking, 1000) == 500
    assert reader.markers() == [(1, True)], "no other marker"


def test_a_record_that_came_after_its_marker_was_forgotten_is_aborted(cluster, coordinator, reader):
    owner = coordinator.initialize(TIMEOUT_MS)
    begin(cluster, coordinator, owner, 1)
    following = coordinator.commit(owner)
    begin(cluster, coordinator, following, 1)
    topic = cluster.topic("orders")
    late = ProducerAppend(owner.producer_id, owner.producer_epoch, 0, is_transactional=True)
    info = cluster.partition_log(topic, 0).append(numbered(0, 1), producer=late)
    blocking = OpenTransaction(owner.producer_id, owner.producer_epoch, info.base_offset)
    assert reader.waits(blocking, 1000) == 500
    assert reader.markers() == [(1, False)]


def test_a_committed_one_that_lacks_its_marker_is_not_aborted(cluster, coordinator, reader):
    """Nobody completes a transaction without its markers; but if so, its records are committed."""
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0)
    log = TransactionStateLog(cluster.store, "t", cluster.clock)
    log.commit(lambda state: decisions.commit(state, owner, [owner]))
    log.commit(lambda state: decisions.complete(state, 1))
    assert reader.waits(blocking, 1000) == 500
    assert reader.markers() == [(1, True)]


def test_one_of_an_expired_id_is_aborted_after_the_longest_timeout(cluster, coordinator, reader):
    blocking = begin(cluster, coordinator, coordinator.initialize(TIMEOUT_MS), 0)
    forget_producer(cluster.store, blocking.producer_id)
    assert reader.waits(blocking, 899_000) is None
    assert reader.waits(blocking, 2000) is not None
    assert reader.markers() == [(1, False)]


@pytest.mark.partition_logs_only("refuses puts of a partition")
def test_a_reader_that_may_not_write_is_held_up_and_told_once(
    cluster, coordinator, reader, monkeypatch
):
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0)
    decide(cluster, coordinator, owner, monkeypatch)
    before = cluster.suppressed.counts()["transaction end"]

    def refused(self, markers):
        raise StorageError("read only")

    with monkeypatch.context() as broken:
        broken.setattr(PartitionLog, "append_markers", refused)
        assert reader.waits(blocking, 2000) is None
    assert cluster.suppressed.counts()["transaction end"] == before + 2
    assert reader.waits(blocking, 2000) is not None


def test_two_observers_abort_once(cluster, coordinator, clock, reader):
    owner = coordinator.initialize(TIMEOUT_MS)
    blocking = begin(cluster, coordinator, owner, 0, 1)
    other = Reader(cluster, clock, 1)
    other.is_resolved(replace(blocking, first_offset=0))
    assert reader.waits(blocking, 2 * TIMEOUT_MS) is not None
    assert other.waits(blocking, 2000) is not None
    assert reader.markers() == other.markers() == [(1, False)]
    assert coordinator.refresh().transaction == 1
