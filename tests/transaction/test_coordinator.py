"""A transactional id coordinated by its clients: identities, decisions, markers."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from spark_log import Admin, ConfigResource, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.config import ClusterConfig
from spark_log.errors import (
    CommitFailedError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
    ProducerFencedError,
    StorageError,
    StorageTimeoutError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.log import PartitionLog
from spark_log.log.stripe import StripeDirectory
from spark_log.record import EndTransactionMarker as Marker
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import (
    TopicIdPartition,
    TransactionCoordinator,
    TransactionOffset,
    batch_timeout_ms,
    decisions,
    find_transactional_id,
    state,
)
from spark_log.transaction.state import LAST_EPOCH, TransactionState
from spark_log.transaction.state_log import TransactionStateLog
from spark_log.util import to_partitions
from tests.cli.support import begin_transaction
from tests.log.support import HookedStore, done_but, failing
from tests.record.samples import numbered

TIMEOUT_MS = 60_000
LOST = UnknownOutcomeError("no answer")


@pytest.fixture
def markers(monkeypatch):
    """(directory, marker) of each marker that was put, in order."""
    put: list[tuple[str, Marker]] = []
    append = PartitionLog.append_markers

    def append_markers(self, markers):
        appended = append(self, markers)
        if appended is not None:
            put.extend((self.directory, marker) for marker in markers)
        return appended

    monkeypatch.setattr(PartitionLog, "append_markers", append_markers)
    return put


@pytest.fixture
def root(tmp_path):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("orders", 4), NewTopic("audit", 1)])
    return tmp_path / "root"


@pytest.fixture
def cluster(root, clock):
    cluster = Cluster(root, clock=clock)
    cluster.store = HookedStore(cluster.store)
    return cluster


@pytest.fixture
def coordinator(cluster, markers):
    return TransactionCoordinator(cluster, "t", markers_at_once=1)


def another(cluster):
    return TransactionCoordinator(cluster, "t", markers_at_once=1)


def of(cluster, *numbers, topic="orders"):
    return [TopicIdPartition(cluster.topic(topic).topic_id, each) for each in numbers]


def in_directory(cluster, number, topic="orders"):
    return cluster.topic(topic).partition_directory(number)


def failing_markers(monkeypatch, error):
    def fail(self, markers):
        raise error

    monkeypatch.setattr(PartitionLog, "append_markers", fail)


# --- identities ----------------------------------------------------------------------------------


def test_each_owner_has_a_higher_epoch_of_one_producer_id(cluster, coordinator):
    first = coordinator.initialize(TIMEOUT_MS)
    second = another(cluster).initialize(5000)
    assert second == replace(first, producer_epoch=first.producer_epoch + 1)
    assert find_transactional_id(cluster.store, first.producer_id) == "t"
    with pytest.raises(ProducerFencedError):
        coordinator.register(first, of(cluster, 0))
    assert coordinator.state.timeout_ms == 5000


def test_an_identity_whose_answer_was_lost_is_given_to_nobody_else(cluster, coordinator):
    coordinator.initialize(TIMEOUT_MS)
    later = another(cluster)
    later.refresh()

    def overtaken(path, call):
        call()
        cluster.store.hooks.clear()
        later.initialize(TIMEOUT_MS)
        raise LOST

    cluster.store.on("put_if_absent", overtaken)
    mine = coordinator.initialize(TIMEOUT_MS)
    assert mine.producer_epoch == 1
    assert later.state.owner == replace(mine, producer_epoch=2)


def test_a_check_that_refuses_after_a_lost_race_fences_no_later_producer(cluster, coordinator):
    """A gateway stands still between decision and put, and another one serves the client."""
    coordinator.initialize(TIMEOUT_MS)
    other = another(cluster)
    other.refresh()
    late: list[str] = []

    def check():
        if late:
            raise CommitFailedError("another gateway may coordinate it")

    def stands_still(path, call):
        late.append(path)
        owner = other.initialize(TIMEOUT_MS)
        other.register(owner, of(cluster, 0))
        return call()

    cluster.store.once("put_if_absent", stands_still)
    with pytest.raises(CommitFailedError):
        coordinator.initialize(TIMEOUT_MS, check=check)
    assert other.refresh().is_ongoing  # nor was its transaction aborted
    assert other.state.owner.producer_epoch == 1


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_initialize_aborts_what_is_ongoing_and_puts_its_markers(cluster, coordinator, markers):
    before = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(before, of(cluster, 0, 2))
    after = another(cluster).initialize(TIMEOUT_MS)
    marker = Marker(before.producer_id, 1, False)
    assert sorted(markers, key=str) == [(in_directory(cluster, each), marker) for each in (0, 2)]
    assert after == replace(before, producer_epoch=2)
    with pytest.raises(ProducerFencedError):
        coordinator.commit(before)


def test_only_the_expected_owner_may_go_on(cluster, coordinator):
    first = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(first, of(cluster, 0))
    zombie = replace(first, producer_epoch=7)
    with pytest.raises(ProducerFencedError):
        another(cluster).initialize(TIMEOUT_MS, zombie)
    assert coordinator.refresh().state == "Ongoing", "it was not aborted"
    second = replace(first, producer_epoch=2)
    for each in (coordinator, another(cluster)):  # the answer was lost
        assert each.initialize(TIMEOUT_MS, first) == second
    coordinator.register(second, of(cluster, 0))
    with pytest.raises(ProducerFencedError):
        coordinator.initialize(TIMEOUT_MS, first)


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_used_up_epochs_are_replaced_by_a_new_producer_id(cluster, coordinator, markers):
    first = coordinator.initialize(TIMEOUT_MS)
    last = replace(first, producer_epoch=LAST_EPOCH - 1)

    def skip(state):
        record = decisions.initialize(
            replace(state, owner=replace(last, producer_epoch=last.producer_epoch - 1)), 1000
        )
        return record

    coordinator._log.commit(skip)  # noqa: SLF001 - 32,765 transactions later
    coordinator.register(last, of(cluster, 0))
    fresh = coordinator.commit(last)
    assert fresh.producer_id > first.producer_id
    assert fresh.producer_epoch == 0
    assert find_transactional_id(cluster.store, fresh.producer_id) == "t"
    coordinator.register(fresh, of(cluster, 0))
    assert markers == [(in_directory(cluster, 0), Marker(first.producer_id, LAST_EPOCH, True))]


def skipped_to(coordinator, epoch):
    """Return the owner after as many transactions."""
    owner = replace(coordinator.initialize(TIMEOUT_MS), producer_epoch=epoch)
    before = replace(owner, producer_epoch=epoch - 1)
    coordinator._log.commit(  # noqa: SLF001 - in place of 32,766 transactions
        lambda state: decisions.initialize(replace(state, owner=before), TIMEOUT_MS)
    )
    return owner


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_an_owner_that_could_not_be_replaced_is_replaced_before_its_next_transaction(
    cluster, coordinator, monkeypatch, epoch
):
    owner = skipped_to(coordinator, epoch)
    coordinator.register(owner, of(cluster, 0))
    with monkeypatch.context() as patch:
        patch.setattr(type(cluster.producer_ids), "next_id", lambda _: failing(LOST)("", None))
        kept = coordinator.commit(owner)
        assert kept == replace(owner, producer_epoch=epoch + 1)
        with pytest.raises(UnknownOutcomeError):
            coordinator.renew_owner(kept)
    fresh = coordinator.renew_owner(kept)
    assert (fresh.producer_id > owner.producer_id, fresh.producer_epoch) == (True, 0)
    assert coordinator.renew_owner(fresh) == fresh
    coordinator.register(fresh, of(cluster, 0))


def test_an_owner_that_was_replaced_although_the_answer_was_lost_is_not_fenced(
    cluster, coordinator, monkeypatch
):
    owner = skipped_to(coordinator, LAST_EPOCH)
    coordinator.register(owner, of(cluster, 0))
    appended = []

    def lose(path, call):
        call()
        if TransactionStateLog.directory_of("t") in path:
            appended.append(path)
            if len(appended) == 3:  # after the decision and the completion
                cluster.store.on("open_buffer", failing(StorageTimeoutError("slow")))
                raise LOST

    cluster.store.on("put_if_absent", lose)
    kept = coordinator.commit(owner)
    cluster.store.hooks.clear()
    assert kept == replace(owner, producer_epoch=LAST_EPOCH + 1)
    recorded = another(cluster).refresh().owner
    assert recorded.producer_id > owner.producer_id
    assert coordinator.renew_owner(kept) == recorded
    another(cluster).initialize(TIMEOUT_MS)
    with pytest.raises(ProducerFencedError):
        coordinator.renew_owner(kept)


@pytest.mark.parametrize(
    ("most_ms", "given_ms", "timeout_ms"),
    [
        (900_000, None, 900_000),
        (1_000_000, None, 900_000),
        (60_000, None, 60_000),
        (60_000, 1234, 1234),
        (60_000, 60_001, 60_001),  # for the coordinator to refuse
    ],
)
def test_the_timeout_of_a_batch_is_what_was_given_or_as_long_as_the_cluster_allows(
    most_ms, given_ms, timeout_ms
):
    config = ClusterConfig(transaction_max_timeout_ms=most_ms)
    assert batch_timeout_ms(config, given_ms) == timeout_ms


def test_a_timeout_above_the_clusters_is_refused(cluster, root, coordinator):
    with pytest.raises(InvalidTxnTimeoutError, match="at most 900000") as refused:
        coordinator.initialize(900_001)
    assert (refused.value.timeout_ms, refused.value.max_timeout_ms) == (900_001, 900_000)
    with Admin(root) as admin:
        allowed = {"transaction.max.timeout.ms": "1000000"}
        admin.alter_configs([ConfigResource("broker", "", allowed)])
    coordinator.initialize(900_001)


# --- transactions --------------------------------------------------------------------------------


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_a_commit_puts_a_marker_in_each_partition_and_completes(cluster, coordinator, markers):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0, 1))
    coordinator.register(owner, of(cluster, 0, topic="audit"))
    following = coordinator.commit(owner)
    assert following == replace(owner, producer_epoch=1)
    marker = Marker(owner.producer_id, 1, True)
    assert {directory for directory, _ in markers} == {
        in_directory(cluster, 0),
        in_directory(cluster, 1),
        in_directory(cluster, 0, "audit"),
    }
    assert {each for _, each in markers} == {marker}
    assert coordinator.state.state == "CompleteCommit"
    coordinator.register(following, of(cluster, 3))
    assert coordinator.abort(following) == replace(owner, producer_epoch=2)
    assert markers[-1] == (in_directory(cluster, 3), Marker(owner.producer_id, 2, False))


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_only_participants_that_count_are_committed(cluster, coordinator, markers):
    owner = coordinator.initialize(TIMEOUT_MS)
    counting = coordinator.join(owner, of(cluster, 0))
    lost = another(cluster).join(owner, of(cluster, 0))
    coordinator.refresh()
    following = coordinator.commit(owner, [counting], batch_id=0)
    outcomes = {marker.producer_id: marker.is_committed for _, marker in markers}
    assert outcomes == {counting.producer_id: True, lost.producer_id: False}
    assert {find_transactional_id(cluster.store, each) for each in outcomes} == {"t"}
    with pytest.raises(ProducerFencedError):
        another(cluster).register(lost, of(cluster, 1))
    again = coordinator.join(following, of(cluster, 0))
    assert again == replace(counting, producer_epoch=1), "its id is used again"


def test_a_task_that_lost_the_race_for_a_free_id_takes_another(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    used = coordinator.join(owner, of(cluster, 0))
    following = coordinator.commit(owner, [used])
    other = another(cluster)
    other.refresh()
    cluster.store.once(
        "put_if_absent", lambda path, call: (other.join(following, of(cluster, 1)), call())[1]
    )
    mine = coordinator.join(following, of(cluster, 2))
    assert mine.producer_id not in (owner.producer_id, used.producer_id)
    assert len(coordinator.state.participants) == 2


def test_a_join_converts_no_other_participant(cluster, coordinator, monkeypatch):
    """Each record has all participants: 300 of them would be converted 45,000 times."""
    converted: list[object] = []

    def counting(partitions):
        converted.append(partitions)
        return to_partitions(partitions)

    monkeypatch.setattr(state, "to_partitions", counting)
    owner = coordinator.initialize(TIMEOUT_MS)
    for _ in range(30):
        coordinator.join(owner, of(cluster, 0, 1))
    assert len(converted) == 30


def test_what_is_registered_costs_no_request(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0, 1))
    partitions = of(cluster, 1)
    cluster.store.calls.clear()
    coordinator.register(owner, partitions)
    assert cluster.store.calls == []


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_a_commit_whose_answer_was_lost_is_looked_up(cluster, coordinator, markers):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    cluster.store.once("put_if_absent", done_but(LOST))
    assert coordinator.commit(owner) == replace(owner, producer_epoch=1)
    assert coordinator.commit(owner) == replace(owner, producer_epoch=1), "it may be repeated"
    assert len(markers) == 1


def test_a_commit_of_an_aborted_transaction_is_refused(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    observer = another(cluster)
    observer.expire(observer.refresh().transaction)
    observer.complete()
    with pytest.raises(TransactionAbortableError):
        coordinator.commit(owner)
    assert coordinator.abort(owner) == replace(owner, producer_epoch=1)
    coordinator.register(replace(owner, producer_epoch=1), of(cluster, 0))


def test_an_empty_transaction_is_aborted_without_an_append(cluster, coordinator, markers):
    owner = coordinator.initialize(TIMEOUT_MS)
    cluster.store.calls.clear()
    assert coordinator.abort(owner) == owner
    assert cluster.store.called("put_if_absent") == []
    with pytest.raises(InvalidTxnStateError, match="no transaction has begun"):
        coordinator.commit(owner)
    assert markers == []


# --- finishing -----------------------------------------------------------------------------------


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_a_marker_that_fails_leaves_the_decision_and_the_next_call_puts_it(
    cluster, coordinator, markers, monkeypatch
):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0, 1))
    with monkeypatch.context() as broken:
        failing_markers(broken, StorageError("the disk is gone"))
        following = coordinator.commit(owner)
        assert coordinator.state.state == "PrepareCommit"
        assert cluster.suppressed.counts() == {"transaction end": 1}
        with pytest.raises(StorageError):
            coordinator.register(following, of(cluster, 1))
        assert coordinator.refresh().transaction == 1, "nothing of the next one before Complete"
    coordinator.register(following, of(cluster, 1))
    assert {marker for _, marker in markers} == {Marker(owner.producer_id, 1, True)}
    assert len(markers) == 2
    assert (coordinator.state.transaction, coordinator.state.state) == (2, "Ongoing")


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_one_failing_partition_does_not_hold_up_the_others(
    cluster, coordinator, markers, monkeypatch
):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0, 1, 2))
    put, broken = PartitionLog.append_markers, in_directory(cluster, 0)

    def fail_there(self, markers):
        if self.directory == broken:
            raise StorageError("not there")
        put(self, markers)

    monkeypatch.setattr(PartitionLog, "append_markers", fail_there)
    coordinator.commit(owner)
    assert {directory for directory, _ in markers} == {
        in_directory(cluster, each) for each in (1, 2)
    }


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_deleted_topics_need_no_marker(cluster, root, coordinator, markers):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    coordinator.register(owner, of(cluster, 0, topic="audit"))
    with Admin(root) as admin:
        admin.delete_topics(["orders"])
        admin.create_topics([NewTopic("orders", 4)])
    coordinator.commit(owner)
    assert [directory for directory, _ in markers] == [in_directory(cluster, 0, "audit")]
    assert coordinator.state.state == "CompleteCommit"


def test_a_topic_deleted_while_its_marker_is_put_needs_none(
    cluster, root, coordinator, markers, monkeypatch
):
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))

    def deleted_meanwhile(self, markers):
        with Admin(root) as admin:
            admin.delete_topics(["orders"])
        raise StorageError("files are missing")

    monkeypatch.setattr(PartitionLog, "append_markers", deleted_meanwhile)
    coordinator.commit(owner)
    assert coordinator.state.state == "CompleteCommit"


def test_offsets_are_committed_before_the_transaction_is_complete(cluster, markers):
    committed: list[Any] = []
    coordinator = TransactionCoordinator(
        cluster, "t", commit_offsets=committed.append, markers_at_once=1
    )
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0), groups=["g"])
    offset = TransactionOffset("g", "orders", cluster.topic("orders").topic_id, 0, 7)
    with pytest.raises(InvalidTxnStateError, match="offsets cannot be committed here"):
        another(cluster).commit(owner, offsets=[offset])
    coordinator.commit(owner, offsets=[offset])
    (state,) = committed
    assert (state.state, state.decision.offsets) == ("PrepareCommit", (offset,))
    assert coordinator.state.state == "CompleteCommit"


def test_a_finisher_that_cannot_commit_offsets_does_not_complete(cluster, markers):
    def fail(state):
        raise StorageError("not now")

    owner = (dying := TransactionCoordinator(cluster, "t", commit_offsets=fail)).initialize(1000)
    dying.register(owner, of(cluster, 0), groups=["g"])
    dying.commit(owner, offsets=[TransactionOffset("g", "orders", "", 0, 7)])
    with pytest.raises(Exception, match="its offsets are committed"):
        another(cluster).initialize(1000)
    assert dying.refresh().state == "PrepareCommit"


# --- requests ------------------------------------------------------------------------------------


def test_a_change_costs_the_append_alone(cluster, coordinator):
    owner = coordinator.initialize(TIMEOUT_MS)
    partitions = of(cluster, 0, 1, 2, 3)
    cluster.store.calls.clear()
    coordinator.register(owner, partitions)
    coordinator.commit(owner)
    in_state_log = [name for name, path in cluster.store.calls if "transaction_state/ids" in path]
    assert in_state_log == ["put_if_absent"] * 3, "register, decide, complete"


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_a_transaction_over_ten_partitions_takes_six_round_trips(root, clock):
    """Beside the waiting for one answer after the other, all partitions are written at once."""
    with Admin(root) as admin:
        admin.create_topics([NewTopic("ten", 10)])
    cluster = Cluster(root, clock=clock)
    cluster.store = HookedStore(cluster.store, is_mapped=False)
    topic = cluster.topic("ten")
    logs = {
        each: cluster.partition_log(topic, each.partition)
        for each in of(cluster, *range(10), topic="ten")
    }
    coordinator = TransactionCoordinator(cluster, "t", open_log=logs.get)
    owner = coordinator.initialize(TIMEOUT_MS)

    def transaction(owner):
        coordinator.register(owner, logs)
        append = ProducerAppend(owner.producer_id, owner.producer_epoch, 0, is_transactional=True)
        for log in logs.values():
            log.append(numbered(0, 3), producer=append)
        return coordinator.commit(owner)

    owner = transaction(owner)  # from now on each log knows its end
    cluster.store.calls.clear()
    transaction(owner)
    requests = [path for name, path in cluster.store.calls if name != "stage"]
    in_logs = Counter(path.rpartition("/")[0] for path in requests)
    in_state_log = in_logs.pop(TransactionStateLog.directory_of("t"))
    assert in_state_log + max(in_logs.values()) <= 6
    assert set(in_logs) == {log.directory for log in logs.values()}


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_the_next_transaction_completes_the_one_before(cluster, markers):
    coordinator = TransactionCoordinator(cluster, "t", markers_at_once=1, completes_later=True)
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    owner = coordinator.commit(owner)
    assert coordinator.refresh().is_prepared
    assert len(markers) == 1
    coordinator.register(owner, of(cluster, 1))
    assert coordinator.refresh().transaction == 2
    coordinator.abort(owner)
    coordinator.record_completion()
    coordinator.record_completion()
    assert coordinator.refresh().state is TransactionState.COMPLETE_ABORT
    assert len(markers) == 2


def test_what_nobody_completed_is_completed_by_the_next_owner(cluster, markers):
    gone = TransactionCoordinator(cluster, "t", markers_at_once=1, completes_later=True)
    owner = gone.initialize(TIMEOUT_MS)
    gone.register(owner, of(cluster, 0))
    gone.commit(owner)
    following = another(cluster)
    following.register(following.initialize(TIMEOUT_MS), of(cluster, 0))
    gone.record_completion()
    assert following.refresh().state is TransactionState.ONGOING


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_a_transaction_whose_marker_is_missing_is_not_completed_by_the_next(
    cluster, markers, monkeypatch
):
    coordinator = TransactionCoordinator(cluster, "t", markers_at_once=1, completes_later=True)
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    with monkeypatch.context() as patch:
        failing_markers(patch, StorageTimeoutError("slow"))
        owner = coordinator.commit(owner)
        with pytest.raises(StorageTimeoutError):
            coordinator.register(owner, of(cluster, 1))
    assert not markers
    coordinator.register(owner, of(cluster, 1))
    assert len(markers) == 1


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_markers_go_through_logs_that_are_open(cluster, markers):
    opened = {}

    def open_log(partition):
        log = cluster.partition_log(cluster.topic("orders"), partition.partition)
        opened[partition] = log
        return log

    coordinator = TransactionCoordinator(cluster, "t", open_log=open_log)
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0, 1, 2))
    coordinator.commit(owner)
    assert set(opened) == set(of(cluster, 0, 1, 2))
    assert len(markers) == 3


@pytest.mark.partition_logs_only("markers of a stripe share a put")
def test_no_failure_after_the_decision_hides_the_decision(cluster, markers):
    def open_log(partition):
        raise RuntimeError("a bug")

    coordinator = TransactionCoordinator(cluster, "t", open_log=open_log)
    owner = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(owner, of(cluster, 0))
    assert coordinator.commit(owner) == replace(owner, producer_epoch=1)
    assert cluster.suppressed.counts() == {"transaction end": 1}
    another(cluster).initialize(TIMEOUT_MS)
    assert [marker.is_committed for _, marker in markers] == [True]


def test_a_refused_change_looks_first(cluster, coordinator):
    """What is known may be old: only an append, or a look, shows the present state."""
    owner = coordinator.initialize(TIMEOUT_MS)
    stale = another(cluster)
    stale.refresh()
    coordinator.register(owner, of(cluster, 0))
    assert stale.commit(owner) == replace(owner, producer_epoch=1)
    cluster.store.once("put_if_absent", failing(LOST))
    stale.register(ProducerIdAndEpoch(owner.producer_id, 1), of(cluster, 1))
    assert stale.state.transaction == 2


def test_what_was_read_of_a_stripe_is_kept_from_one_completion_to_the_next(root, monkeypatch):
    """Processes that take over from each other complete transactions all the time."""
    listed: Counter[str] = Counter()
    list_stripe = StripeDirectory.list

    def count_listings(directory):
        listed[directory.path] += 1
        return list_stripe(directory)

    with Admin(root) as admin:
        admin.create_topics([NewTopic("readings", 4, topic_configs={"stripes": 2})])
    taking_over = TransactionCoordinator(Cluster(root), "t")
    for _ in range(3):
        begin_transaction(root, "t", *(TopicPartition("readings", each) for each in range(4)))
        with monkeypatch.context() as patch:
            patch.setattr(StripeDirectory, "list", count_listings)
            taking_over.initialize(TIMEOUT_MS)
    assert [*listed.values()] == [1, 1]
