"""Topics with stripes in a cluster: their directories, and what concerns the files at home."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, orphaned_directories
from spark_log.metadata import ROOT_BROKER_ID
from tests.record.samples import numbered


@pytest.fixture
def cluster(tmp_path):
    """A cluster with the topic ``t`` of two partitions in one stripe."""
    root = tmp_path / "root"
    settings = {"stripes": 1, "flush.on.append": False}
    Admin(root).create_topics([NewTopic("t", 2, topic_configs=settings)])
    return Cluster(root)


def append(cluster, partition, first, count):
    cluster.partition_log(cluster.topic("t"), partition).append(numbered(first, count))


def test_a_snapshot_has_nothing_that_is_not_at_home(cluster):
    # A start marker may be put while records are in the stripe again.
    topic = cluster.topic("t")
    append(cluster, 0, 0, 3)
    cluster.stripe(topic, 0).take_home()
    append(cluster, 0, 3, 2)
    snapshot = cluster.partition_log(topic, 0).replica.snapshots.write()
    assert snapshot.offset == 3
    # A cleaner has the log at home, and a later snapshot would show it that its end was lost.
    home = Cluster(cluster.root).replica_log(topic, 0, ROOT_BROKER_ID)
    assert home.observe().log_end_offset == 3


def test_the_start_moves_behind_records_that_go_home_for_it(cluster):
    topic = cluster.topic("t")
    append(cluster, 0, 0, 3)
    assert cluster.partition_log(topic, 0).move_start(2) == 2
    append(cluster, 0, 3, 2)
    assert cluster.partition_log(topic, 0).observe().log_end_offset == 5


def test_a_directory_of_a_stripe_that_the_topic_has_not_is_orphaned(cluster):
    topic = cluster.topic("t")
    append(cluster, 0, 0, 1)
    assert not list(orphaned_directories(cluster, ROOT_BROKER_ID))
    cluster.store.put_if_absent(f"{topic.directory}/__stripes/7/00000000000000000000.stripe", b"")
    (found,) = orphaned_directories(cluster, ROOT_BROKER_ID)
    assert (found.path, found.kind.value) == (f"{topic.directory}/__stripes/7", "stripe")
