"""Other cases of Kafka's TransactionCoordinatorTest (docs/internals/transactions-parity.md)."""

from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import (
    InvalidTxnStateError,
    ProducerFencedError,
    StorageError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.log import PartitionLog
from spark_log.record import MAX_PRODUCER_EPOCH, ControlRecordType
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCoordinator,
    decisions,
    find_transactional_id,
)
from spark_log.transaction.state import LAST_EPOCH
from tests.log.support import HookedStore, done_but, failing

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
    return another(cluster)


def another(cluster):
    return TransactionCoordinator(cluster, "t", markers_at_once=1)


def partition(cluster, number=0):
    return TopicIdPartition(cluster.topic("orders").topic_id, number)


def markers(cluster, number=0):
    """(producer id, epoch, whether it commits) of each marker of a partition."""
    log = cluster.partition_log(cluster.topic("orders"), number)
    readers = [log.files.open(segment.name) for segment in log.observe().live.segments]
    found = [each for reader in readers for _, headers in reader.all_headers() for each in headers]
    return [
        (each.producer_id, each.producer_epoch, each.marker is ControlRecordType.COMMIT)
        for each in found
        if each.is_control
    ]


@pytest.fixture
def at_the_last_epoch(cluster, coordinator):
    """An owner in the last epoch of its producer id, with an ongoing transaction."""
    first = coordinator.initialize(TIMEOUT_MS)
    last = replace(first, producer_epoch=LAST_EPOCH)
    before = replace(first, producer_epoch=LAST_EPOCH - 1)
    coordinator._log.commit(  # noqa: SLF001 - 32,766 transactions later
        lambda state: decisions.initialize(replace(state, owner=before), TIMEOUT_MS)
    )
    assert coordinator.refresh().owner == last
    coordinator.register(last, [partition(cluster)])
    return last


class TestLastEpoch:
    """Kafka: an ongoing transaction in epoch 32766; its abort must not overflow the epoch."""

    def test_a_takeover_aborts_by_the_epoch_that_is_kept_and_has_a_new_id(
        self, cluster, at_the_last_epoch
    ):
        owner = another(cluster).initialize(TIMEOUT_MS)
        assert markers(cluster) == [(at_the_last_epoch.producer_id, MAX_PRODUCER_EPOCH, False)]
        assert owner.producer_id > at_the_last_epoch.producer_id
        assert owner.producer_epoch == 0
        assert find_transactional_id(cluster.store, owner.producer_id) == "t"

    def test_an_owner_that_others_aborted_goes_on_with_a_new_id(
        self, cluster, coordinator, at_the_last_epoch
    ):
        other = another(cluster)
        other.expire(other.refresh().transaction)
        other.complete()
        owner = coordinator.abort(at_the_last_epoch)
        assert markers(cluster) == [(at_the_last_epoch.producer_id, MAX_PRODUCER_EPOCH, False)]
        if owner.producer_epoch == MAX_PRODUCER_EPOCH:
            owner = coordinator.initialize(TIMEOUT_MS, owner)
        assert (owner.producer_id > at_the_last_epoch.producer_id, owner.producer_epoch) == (
            True,
            0,
        )
        coordinator.register(owner, [partition(cluster, 1)])
        assert coordinator.state.state == "Ongoing"

    @pytest.mark.parametrize("commits", [True, False])
    def test_answers_that_are_lost_are_looked_up_and_a_later_repeat_is_fenced(
        self, cluster, coordinator, at_the_last_epoch, commits
    ):
        """Kafka's coordinator keeps the id before, and takes a repeat of its client."""
        last, decide = at_the_last_epoch, coordinator.commit if commits else coordinator.abort
        lose = done_but(UnknownOutcomeError("no answer"))

        def lose_in_the_state_log(path, call):
            return lose(path, call) if "__transaction_state/ids" in path else call()

        cluster.store.on("put_if_absent", lose_in_the_state_log)
        owner = decide(last)
        cluster.store.hooks.clear()
        assert (owner.producer_id > last.producer_id, owner.producer_epoch) == (True, 0)
        with pytest.raises(ProducerFencedError):
            decide(last)
        assert coordinator.refresh().owner == owner
        assert markers(cluster) == [(last.producer_id, MAX_PRODUCER_EPOCH, commits)]

    def test_one_that_was_replaced_by_a_new_id_is_fenced(
        self, cluster, coordinator, at_the_last_epoch
    ):
        another(cluster).initialize(TIMEOUT_MS)
        for call in (
            lambda: coordinator.initialize(TIMEOUT_MS, at_the_last_epoch),
            lambda: coordinator.register(at_the_last_epoch, [partition(cluster, 1)]),
            lambda: coordinator.commit(at_the_last_epoch),
        ):
            with pytest.raises(ProducerFencedError):
                call()


def test_a_takeover_that_cannot_be_stored_fences_nobody(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, [partition(cluster)])
    for _ in range(2):
        cluster.store.once("put_if_absent", failing(StorageError("read-only")))
        with pytest.raises(StorageError, match="read-only"):
            another(cluster).initialize(TIMEOUT_MS)
    following = coordinator.commit(owner)
    assert following == replace(owner, producer_epoch=1), "one epoch for one transaction"
    assert markers(cluster) == [(owner.producer_id, 1, True)]


def test_an_expiry_that_cannot_be_stored_changes_nothing(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, [partition(cluster)])
    observer = another(cluster)
    transaction = observer.refresh().transaction
    cluster.store.once("put_if_absent", failing(StorageError("read-only")))
    with pytest.raises(StorageError, match="read-only"):
        observer.expire(transaction)
    assert coordinator.commit(owner) == replace(owner, producer_epoch=1)
    assert markers(cluster) == [(owner.producer_id, 1, True)]


@pytest.mark.partition_logs_only("markers of a stripe share a put")
@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_is_repeated_while_it_is_not_complete_and_never_reversed(
    cluster, coordinator, monkeypatch, commits
):
    """Kafka answers a repeat with `CONCURRENT_TRANSACTIONS` until the transaction is complete."""

    def fail(self, markers):
        raise StorageError("not now")

    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, [partition(cluster)])
    decide = coordinator.commit if commits else coordinator.abort
    with monkeypatch.context() as broken:
        broken.setattr(PartitionLog, "append_markers", fail)
        following = decide(owner)
        assert coordinator.state.is_prepared
    assert decide(owner) == following == replace(owner, producer_epoch=1)
    coordinator.complete()
    assert markers(cluster) == [(owner.producer_id, 1, commits)]
    other, error = (
        (coordinator.abort, InvalidTxnStateError)
        if commits
        else (coordinator.commit, TransactionAbortableError)
    )
    with pytest.raises(error):
        other(owner)
