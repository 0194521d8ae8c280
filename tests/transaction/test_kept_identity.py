"""Clients that keep their identity from one transaction to the next (``EndTxn`` before 5)."""

from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import InvalidTxnStateError, ProducerFencedError, TransactionAbortableError
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import KeptIdentityCoordinator, TopicIdPartition, decisions
from spark_log.transaction.records import from_json
from spark_log.transaction.state import LAST_EPOCH

TIMEOUT_MS = 60_000


@pytest.fixture
def cluster(tmp_path, clock):
    with Admin(tmp_path / "root") as admin:
        admin.create_topics([NewTopic("orders", 2)])
    return Cluster(tmp_path / "root", clock=clock)


@pytest.fixture
def coordinator(cluster):
    return another(cluster)


def another(cluster):
    """The coordinator of another process."""
    return KeptIdentityCoordinator(cluster, "t", commit_offsets=lambda state: None)


def partition(cluster, number=0):
    return TopicIdPartition(cluster.image().topic("orders").topic_id, number)


def run(coordinator, client, cluster, *, is_committed=True):
    """Run a transaction; return the identity of its batches."""
    number = coordinator.register_kept(client, [partition(cluster)])
    present = coordinator.verify_kept(client, [partition(cluster)])
    assert coordinator.end_kept(client, is_committed=is_committed, known=number) is None
    return present


def test_each_transaction_has_an_epoch_of_the_log(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    for epoch, is_committed in enumerate([True, False, True]):
        at = coordinator if epoch < 2 else another(cluster)
        present = run(at, client, cluster, is_committed=is_committed)
        assert present.producer == replace(client, producer_epoch=epoch)
        assert present.continues == ((client,) if epoch else ())
    assert another(cluster).refresh().client == client


def test_a_batch_needs_a_registered_partition_in_an_ongoing_transaction(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    for _ in range(2):
        with pytest.raises(InvalidTxnStateError, match="not added"):
            coordinator.verify_kept(client, [partition(cluster)])
        coordinator.register_kept(client, [partition(cluster)])
        coordinator.verify_kept(client, [partition(cluster)])
        for missing in ({"partitions": [partition(cluster, 1)]}, {"groups": ["g"]}):
            with pytest.raises(InvalidTxnStateError, match="not added"):
                coordinator.verify_kept(client, **missing)
        coordinator.end_kept(client, is_committed=True, known=coordinator.state.transaction)


def test_what_another_gateway_did_is_read_when_the_known_state_is_not_enough(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    stale = another(cluster)
    stale.register_kept(client, [partition(cluster)])
    coordinator.refresh()
    coordinator.end_kept(client, is_committed=True, known=1)
    coordinator.register_kept(client, [partition(cluster)])
    assert stale.verify_kept(client, [partition(cluster)]).producer == client, "as it knows"
    present = stale.verify_kept(client, [partition(cluster)], is_recent=True)
    assert present.producer == replace(client, producer_epoch=1)
    assert stale.register_kept(client, [partition(cluster)]) == 2


def test_an_end_decides_only_the_transaction_that_is_known(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    coordinator.register_kept(client, [partition(cluster)])
    for known in (None, 7):
        assert another(cluster).end_kept(client, is_committed=True, known=known) == 1
    assert another(cluster).end_kept(client, is_committed=True, known=1) is None
    assert coordinator.register_kept(client, [partition(cluster)]) == 2
    for is_committed in (True, False):
        assert coordinator.end_kept(client, is_committed=is_committed, known=1) == 2
    assert another(cluster).refresh().is_ongoing


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_end_may_be_repeated_but_not_changed(cluster, coordinator, is_committed):
    client = coordinator.initialize(TIMEOUT_MS)
    run(coordinator, client, cluster, is_committed=is_committed)
    for known in (None, 1):
        assert another(cluster).end_kept(client, is_committed=is_committed, known=known) is None
    with pytest.raises(InvalidTxnStateError, match="decided otherwise"):
        coordinator.end_kept(client, is_committed=not is_committed, known=1)
    assert coordinator.state.state == ("CompleteCommit" if is_committed else "CompleteAbort")


def test_an_abort_after_a_commit_is_that_of_a_transaction_of_which_nothing_has_arrived(
    cluster, coordinator
):
    client = coordinator.initialize(TIMEOUT_MS)
    run(coordinator, client, cluster)
    for known in (None, 1):
        at = another(cluster)
        aborted = at.end_kept(client, is_committed=False, known=known, never_aborts_commits=True)
        assert aborted is None
        assert at.state.state == "CompleteCommit"
    run(coordinator, client, cluster, is_committed=False)
    with pytest.raises(InvalidTxnStateError, match="decided otherwise"):
        coordinator.end_kept(client, is_committed=True, known=2, never_aborts_commits=True)
    coordinator.expire(coordinator.register_kept(client, [partition(cluster)]))
    with pytest.raises(ProducerFencedError):
        coordinator.end_kept(client, is_committed=False, known=3, never_aborts_commits=True)


def test_nothing_is_committed_where_nothing_has_begun(coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    with pytest.raises(InvalidTxnStateError, match="no transaction has begun"):
        coordinator.end_kept(client, is_committed=True, known=None)
    assert coordinator.end_kept(client, is_committed=False, known=None) is None


@pytest.mark.parametrize("transactions", [0, 1, 3])
def test_a_new_owner_fences_the_client(cluster, coordinator, transactions):
    client = coordinator.initialize(TIMEOUT_MS)
    for _ in range(transactions):
        run(coordinator, client, cluster)
    coordinator.register_kept(client, [partition(cluster)])
    successor = another(cluster).initialize(TIMEOUT_MS)
    for ask in (
        lambda: coordinator.register_kept(client, [partition(cluster, 1)]),
        lambda: coordinator.verify_kept(client, [partition(cluster)], is_recent=True),
        lambda: coordinator.end_kept(client, is_committed=True, known=transactions + 1),
        lambda: coordinator.initialize(TIMEOUT_MS, client),
    ):
        with pytest.raises(ProducerFencedError):
            ask()
    run(another(cluster), successor, cluster)


@pytest.mark.parametrize("transactions", [0, 1, 3])
def test_an_abort_by_others_fences_the_client_which_may_initialize_again(
    cluster, coordinator, transactions
):
    client = coordinator.initialize(TIMEOUT_MS)
    for _ in range(transactions):
        run(coordinator, client, cluster)
    number = coordinator.register_kept(client, [partition(cluster)])
    others = another(cluster)
    others.refresh()
    others.expire(number)
    others.complete()
    for is_committed in (True, False):
        with pytest.raises(ProducerFencedError):
            coordinator.end_kept(client, is_committed=is_committed, known=number)
    with pytest.raises((ProducerFencedError, TransactionAbortableError)):
        coordinator.register_kept(client, [partition(cluster)])
    again = others.initialize(TIMEOUT_MS, client)
    assert coordinator.initialize(TIMEOUT_MS, client) == again, "the answer was lost"
    assert run(coordinator, again, cluster).continues == ()


def test_a_client_that_initializes_with_its_identity_begins_anew(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    run(coordinator, client, cluster)
    coordinator.register_kept(client, [partition(cluster)])
    again = coordinator.initialize(TIMEOUT_MS, client)
    assert again.producer_epoch > client.producer_epoch + 1, "the open transaction was aborted"
    assert coordinator.state.client is None
    with pytest.raises(ProducerFencedError):
        coordinator.register_kept(client, [partition(cluster)])


def test_clients_of_both_kinds_take_over_from_each_other(cluster, coordinator):
    old = coordinator.initialize(TIMEOUT_MS)
    run(coordinator, old, cluster)
    new = coordinator.initialize(TIMEOUT_MS)
    coordinator.register(new, [partition(cluster)])
    new = coordinator.commit(new)
    assert coordinator.state.client is None
    old = another(cluster).initialize(TIMEOUT_MS)
    with pytest.raises(ProducerFencedError):
        coordinator.register(new, [partition(cluster)])
    assert [run(another(cluster), old, cluster).continues for _ in range(2)] == [(), (old,)]


def test_a_client_goes_on_when_the_epochs_of_its_producer_id_are_used_up(cluster, coordinator):
    client = coordinator.initialize(TIMEOUT_MS)
    run(coordinator, client, cluster)
    state = coordinator.state
    last = ProducerIdAndEpoch(client.producer_id, LAST_EPOCH - 1)
    record = replace(state, owner=last, revision=state.revision + 1).to_record("a-test")
    coordinator._log.commit(lambda _: record)  # noqa: SLF001 - 32,000 transactions take too long
    assert run(coordinator, client, cluster).producer == last
    present = run(another(cluster), client, cluster)
    assert present.producer.producer_id != client.producer_id
    assert present.continues == (client, ProducerIdAndEpoch(present.producer.producer_id, 0))


def test_the_record_of_a_kept_identity_is_refused_by_versions_that_would_drop_it(
    cluster, coordinator
):
    client = coordinator.initialize(TIMEOUT_MS)
    assert coordinator.state.to_record("x").stored_version == 0
    run(coordinator, client, cluster)
    record = coordinator.state.to_record("x")
    assert (record.stored_version, from_json(record.to_json())) == (2, record)
    following = decisions.register(coordinator.state, coordinator.state.present(client), [])
    assert following is not None
    assert following.stored_version == 2
