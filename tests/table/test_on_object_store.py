"""The table of a topic on an S3 server: a version is put only if it is absent."""

import threading

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.errors import LogEndOffsetMismatchError
from spark_log.table import TableCommitter, TopicTable, verify_partition
from tests.table.support import DELTA

ROUNDS = 4
PARTITIONS = 2


@pytest.fixture
def root(s3_server):
    url, options = f"{s3_server.new_bucket()}/root", s3_server.storage_options
    Admin(url, storage_options=options).create_topics(
        [NewTopic("t", PARTITIONS, topic_configs=DELTA)]
    )
    return url, options


class DyingCleaner(ClusterCleaner):
    """A cleaner that dies before it commits."""

    def commit_tables(self):
        return iter(())


def fill(root, first, count):
    """Append numbers to both partitions, and convert them to Parquet."""
    url, options = root
    with Producer(url, storage_options=options, linger_ms=1) as producer:
        for number in range(first, first + count):
            producer.send("t", b"%d" % number, key=b"k", partition=number % PARTITIONS)
    cleaned = DyingCleaner(Cluster(url, options), ["t"], table_at_once=True).clean()
    assert [each.error for each in cleaned if each.error] == []


class Racer(TableCommitter):
    """A committer of another process, which decides when the other one has read, too."""

    def __init__(self, root, meeting):
        cluster = Cluster(*root)
        image = cluster.image()
        super().__init__(TopicTable(cluster.store, image.topic("t"), cluster.clock), image.offset)
        self.lost = self.won = 0
        self.is_first = True
        self._meeting = meeting

    def append(self, version, after, operation):
        if self.is_first:
            self.is_first = False
            self._meeting.wait(60)
        try:
            super().append(version, after, operation)
        except LogEndOffsetMismatchError:
            self.lost += 1
            raise
        self.won += 1


def test_of_two_committers_at_once_one_appends_and_the_other_continues_behind_it(root):
    url, options = root
    cluster = Cluster(url, options)
    table = TopicTable(cluster.store, cluster.image().topic("t"), cluster.clock)
    TableCommitter(table, cluster.image().offset).commit()  # the table begins, without files
    assert table.refresh().number == 0
    meeting = threading.Barrier(PARTITIONS)
    racers = [Racer(root, meeting) for _ in range(PARTITIONS)]
    for at in range(ROUNDS):
        fill(root, 20 * at, 20)
        for each in racers:
            each.is_first = True
        threads = [
            threading.Thread(target=each.commit, args=([number],))
            for number, each in enumerate(racers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        version = table.refresh()
        assert version.number == 2 * (at + 1), "one version of each"
        assert version.ends() == {0: 10 * (at + 1), 1: 10 * (at + 1)}
        assert sum(each.lost for each in racers) == at + 1
    assert sum(each.won for each in racers) == 2 * ROUNDS

    for number in range(PARTITIONS):
        log = cluster.partition_log(table.topic, number)
        assert list(verify_partition(table, version, number, log)) == []
    read = DeltaTable(table.url, storage_options=cluster.store.delta_options())
    assert read.version() == version.number
    rows: pa.Table = read.to_pyarrow_table(columns=["partition", "offset", "value"])
    rows = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    found = list(zip(*(each.to_pylist() for each in rows.columns), strict=True))
    assert found == [
        (partition, at, b"%d" % (PARTITIONS * at + partition))
        for partition in range(PARTITIONS)
        for at in range(10 * ROUNDS)
    ]


def test_cleaners_at_once_leave_the_table_with_all_of_the_log(root):
    url, options = root
    fill(root, 0, 40)
    errors: list[BaseException] = []

    def clean():
        cleaner = ClusterCleaner(Cluster(url, options), ["t"], table_at_once=True)
        errors.extend(each.error for each in cleaner.clean() if each.error)

    threads = [threading.Thread(target=clean) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    cluster = Cluster(url, options)
    table = TopicTable(cluster.store, cluster.image().topic("t"), cluster.clock)
    version = table.refresh()
    assert version.ends() == {0: 20, 1: 20}
    read = DeltaTable(table.url, storage_options=cluster.store.delta_options())
    assert read.to_pyarrow_table().num_rows == 40
