"""A table under transactions, kills, deletions and changes of its settings, as verify sees it."""

import random
from contextlib import suppress

import pytest

from spark_log import Producer
from spark_log.cluster import ClusterCleaner
from spark_log.errors import SparkLogError, StorageError
from spark_log.storage.local import LocalStore
from spark_log.table import CleanupPolicy

ROUNDS = 24
PARTITIONS = 2


def produce(root, producer, number):
    """Send one transaction of each kind; abort 30 % of them."""
    for _ in range(random.randint(1, 3)):
        producer.begin_transaction()
        for at in range(random.randint(1, 12)):
            key = b"k%d" % random.randint(0, 9)
            value = None if random.random() < 0.2 else b"%d.%d" % (number, at)
            producer.send("t", key=key, value=value, partition=at % PARTITIONS)
        if random.random() < 0.3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


@pytest.mark.parametrize(
    ("policy", "seed"),
    [
        ("delete", 1),
        pytest.param("delete", 2, marks=pytest.mark.long),
        ("compact", 3),
        pytest.param("compact", 4, marks=pytest.mark.long),
    ],
)
def test_table_and_log_agree_after_each_round(opened, monkeypatch, policy, seed):
    random.seed(seed)
    root = opened(
        partitions=PARTITIONS,
        cleanup_policy=policy,
        min_cleanable_dirty_ratio="0.01",
        table_deleted_file_retention_ms="120000",
        delete_retention_ms="120000",
    )
    put = LocalStore.put_if_absent
    compared = 0
    for number in range(ROUNDS):
        with Producer(root.url, transactional_id="x", clock=root.clock) as producer:
            producer.init_transactions()
            produce(root, producer, number)
        root.clock.advance_ms(random.choice((1_000, 70_000, 300_000)))
        if number % 5 == 4:
            root.set(table_format="none")
        elif number % 5 == 0:
            root.set(table_format="delta")
        left = [random.randint(0, 30)]

        def dies(store, path, source, left=left, **options):
            left[0] -= 1
            if left[0] < 0:
                raise StorageError("it dies", path=path)
            put(store, path, source, **options)

        with monkeypatch.context() as patch, suppress(SparkLogError):
            patch.setattr(LocalStore, "put_if_absent", dies)
            list(ClusterCleaner(root.cluster, ["t"], table_at_once=True).clean())
        if number % 4 == 3:
            root.clean()
        if number % 7 == 6:
            view = root.log(0).observe()
            root.delete_records(random.randint(view.log_start_offset, view.log_end_offset))
        version = root.newest
        for partition in range(PARTITIONS):
            if version.is_on:
                assert root.findings(partition) == []
                compared += version.partitions[partition].end > 0
            else:
                assert version.number < 0 or version.partitions[partition].files == ()
    assert compared > ROUNDS / 2
    root.set(table_format="delta")
    for _ in range(2):
        root.clock.advance_ms(300_000)
        root.append((b"last", b"1"))
        root.clean()
    assert root.newest.setting.policy == CleanupPolicy(policy)
    for partition in range(PARTITIONS):
        assert root.findings(partition) == []
    assert root.table_rows() != []
