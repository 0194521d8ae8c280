"""Long-lived clients forget what belongs to deleted topics, ended transactions and old epochs."""

from spark_log import Admin, Consumer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable, TransactionalOffsets
from spark_log.coordinator.offsets import transactional_offsets
from spark_log.mirror import RootMirror, TopicFilter
from spark_log.storage import known_directories
from spark_log.storage.known_directories import KnownDirectories
from spark_log.transaction import TransactionCoordinator, TransactionObserver, observer
from tests.log.chain.support import Cluster as Chain
from tests.producer.support import by_hand, new_root, run
from tests.record.samples import numbered

NAMES = [f"t{number}" for number in range(6)]


def test_a_producer_forgets_deleted_topics_that_it_does_not_send_to_any_more(tmp_path, clock):
    root = new_root(tmp_path, *NAMES)
    with Admin(root) as admin, by_hand(root, clock) as producer:
        for name in NAMES:
            producer.send(name, b"x")
            run(producer, clock, until_ms=100)
            admin.delete_topics([name])
        assert list(producer._routes) == [NAMES[-1]]  # noqa: SLF001


def test_a_consumer_forgets_the_logs_of_deleted_topics_that_it_was_asked_about(tmp_path):
    root = new_root(tmp_path, *NAMES)
    with Admin(root) as admin, Consumer(root=root) as consumer:
        for name in NAMES:
            assert consumer.end_offsets([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}
            admin.delete_topics([name])
        assert len(consumer._runtime.offset_fetcher._logs) == 1  # noqa: SLF001


def test_a_mirror_forgets_deleted_topics(tmp_path):
    source, target = new_root(tmp_path, *NAMES), new_root(tmp_path)
    mirror = RootMirror(Cluster(source), Cluster(target), TopicFilter.parse([".*"]))
    assert len(mirror.copy()) == 6
    with Admin(source) as admin:
        admin.delete_topics(NAMES[1:])
    assert len(mirror.copy()) == len(mirror._partitions) == 1  # noqa: SLF001


def test_an_observer_keeps_few_coordinators_of_transactions_that_others_end(
    tmp_path, clock, monkeypatch
):
    monkeypatch.setattr(observer, "_MAX_COORDINATORS", 2)
    cluster = Cluster(new_root(tmp_path), clock=clock)
    ids = [TransactionCoordinator(cluster, name).initialize(60_000) for name in NAMES]
    seen = TransactionObserver(cluster)
    for each in ids:
        assert seen._find_coordinator(each.producer_id) is not None  # noqa: SLF001
    assert list(seen._coordinators) == [each.producer_id for each in ids[-2:]]  # noqa: SLF001


def test_few_logs_of_groups_are_kept_for_offsets_in_transactions(tmp_path, monkeypatch):
    monkeypatch.setattr(transactional_offsets, "_MAX_LOGS", 2)
    cluster = Cluster(new_root(tmp_path))
    offsets = TransactionalOffsets(cluster, OffsetsTable(cluster))
    for name in NAMES:
        offsets.settle_group(name)
    assert list(offsets._logs) == NAMES[-2:]  # noqa: SLF001


def test_a_chain_forgets_what_it_compared_in_earlier_epochs():
    chain = Chain(1, 2, 3)
    process = chain.process()
    for number in range(8):
        chain.metadata.change()
        process.log.append(numbered(number, 1))
        process.states.refresh()
    assert len(process.log._chain.followers._compared) == 2  # noqa: SLF001


def test_names_of_directories_that_were_synced_are_bounded(monkeypatch):
    monkeypatch.setattr(known_directories, "_MAX_NAMES", 3)
    names = KnownDirectories()
    for number in range(9):
        names.add(f"/root/t/t-{number}")
    assert [f"/root/t/t-{number}" in names for number in range(5, 9)] == [False, True, True, True]
    names.forget("/root/t/t-8")
    assert "/root/t/t-8" not in names
    names.forget("/root/t")
    assert "/root/t/t-7" not in names
