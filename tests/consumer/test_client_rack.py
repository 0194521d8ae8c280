"""`client.rack`: records are read from a replica in the consumer's rack (KIP-392)."""

import pytest

from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster, register_broker
from tests.metadata.replicas import append
from tests.record.samples import numbered

TP = TopicPartition("u", 0)


@pytest.fixture
def cluster(tmp_path):
    """A cluster with the racks a, b, c; the topic ``u`` has its last replica in c."""
    cluster = Cluster(tmp_path / "r0", create=True)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "c")):
        register_broker(cluster, broker_id, tmp_path / f"r{broker_id}", rack=rack)
    configs = {"merge.tail.segments": 0}
    topic = NewTopic("u", replica_assignment={0: [1, 2, 3]}, topic_configs=configs)
    Admin(cluster.root).create_topics([topic])
    return cluster


def log_of(cluster):
    return cluster.partition_log(cluster.topic("u"), 0)


def damage(cluster, broker_id, base_offset):
    """Overwrite the middle of a segment of a replica."""
    files = cluster.replica_log(cluster.topic("u"), 0, broker_id).files
    path = f"{files.url}/{base_offset:020d}.log"
    with open(path, "r+b") as file:
        file.seek(600)
        file.write(b"\0" * 200)


def offsets(cluster, count, **config):
    """Read records from the beginning; return their offsets."""
    found: list[int] = []
    with Consumer(root=cluster.root, auto_offset_reset="earliest", **config) as consumer:
        consumer.assign([TP])
        consumer.seek_to_beginning()
        while len(found) < count:
            for records in consumer.poll(timeout_ms=5000).values():
                found += [record.offset for record in records]
    return found


def isr(cluster):
    return Cluster(cluster.root).topic("u").partitions[0].isr


def test_a_replica_in_the_rack_is_read_and_the_last_one_is_not(cluster):
    for first in range(0, 9, 3):
        append(log_of(cluster), numbered(first, 3))
    damage(cluster, 3, 0)  # where the last replica is read, it leaves the in-sync ones
    assert offsets(cluster, 9, client_rack="b") == list(range(9))
    assert isr(cluster) == (1, 2, 3)
    assert offsets(cluster, 9) == list(range(9))
    assert isr(cluster) == (1, 2)


def test_no_further_than_the_high_watermark(cluster):
    log = log_of(cluster)
    append(log, numbered(0, 3))
    append(log, numbered(3, 3), acks=1)
    reader = log_of(Cluster(cluster.root, client_rack="a"))
    batches, next_offset = reader.read(0)
    assert [batch.end_offset for batch in batches] == [3]
    assert (next_offset, reader.read(3)) == (3, ([], 3))
    log.catch_up()
    batches, next_offset = reader.read(3)
    assert ([batch.end_offset for batch in batches], next_offset) == ([6], 6)


def test_the_last_replica_is_read_if_the_one_in_the_rack_is_damaged(cluster):
    for first in range(0, 9, 3):
        append(log_of(cluster), numbered(first, 3))
    damage(cluster, 2, 3)
    assert offsets(cluster, 9, client_rack="b") == list(range(9))
    assert isr(cluster) == (1, 2, 3)


def test_without_a_replica_in_the_rack_the_last_one_is_read(cluster):
    append(log_of(cluster), numbered(0, 3))
    assert offsets(cluster, 3, client_rack="z") == [0, 1, 2]
