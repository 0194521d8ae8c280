"""Cleaning a root: each partition by the present configs of its topic."""

import pytest

from spark_log import Admin, ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from spark_log.errors import StorageUnavailableError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.metadata import Cluster, cluster_cleaner
from spark_log.metadata.cluster_cleaner import ClusterCleaner
from tests.metadata.support import append

CHANGES = {
    "cleanup.policy": "compact",
    "delete.retention.ms": 5,
    "file.delete.delay.ms": 5,
    "max.compaction.lag.ms": 5,
    "merge.compression.type": "zstd",
    "min.cleanable.dirty.ratio": 0.25,
    "min.compaction.lag.ms": 5,
    "retention.bytes": 5,
    "retention.ms": 5,
    "segment.bytes": 2_097_152,
    "segment.ms": 5,
}


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``, whose records never expire."""
    Admin(tmp_path).create_topics([NewTopic("t", topic_configs={"retention.ms": -1})])
    return tmp_path


def change(root, changes):
    topic = ConfigResource(ConfigResourceType.TOPIC, "t", changes)
    Admin(root).alter_configs([topic])


def starts(cleaner):
    return [cleaned.report.log_start_offset for cleaned in cleaner.clean()]


def test_what_was_changed_since_it_began_counts(root):
    append(root, "t", 3)
    append(root, "t", 3)
    cleaner = ClusterCleaner(Cluster(root))
    assert starts(cleaner) == [0]
    change(root, {"retention.bytes": 1})
    assert starts(cleaner) == [3]


@pytest.mark.parametrize("key", CHANGES)
def test_so_does_every_key_that_a_cleaner_goes_by(root, monkeypatch, key):
    seen = []

    class Noted(PartitionCleaner):
        def __init__(self, log, **more):
            super().__init__(log, **more)
            seen.append(log.config.dotted()[key])

    monkeypatch.setattr(cluster_cleaner, "PartitionCleaner", Noted)
    cleaner = ClusterCleaner(Cluster(root), ["t"])
    list(cleaner.clean())
    change(root, {key: CHANGES[key]})
    list(cleaner.clean())
    assert seen[0] != seen[1]
    assert seen[1] == (("compact",) if key == "cleanup.policy" else CHANGES[key])


def test_a_topic_of_the_same_name_that_is_another_one_is_not_meant(root):
    cluster = Cluster(root)
    cleaner = ClusterCleaner(cluster)
    old = cluster.topic("t").topic_id
    Admin(root).delete_topics(["t"])
    Admin(root).create_topics([NewTopic("t", topic_configs={"retention.bytes": 1})])
    append(root, "t", 3)
    append(root, "t", 3)
    assert cluster.topic("t").topic_id != old
    assert starts(cleaner) == []
    assert Admin(root).describe_topics(["t"])[0].partitions[0].log_start_offset == 0


def test_metadata_that_cannot_be_read_keep_nothing_from_being_cleaned(root, monkeypatch):
    append(root, "t", 3)
    cluster = Cluster(root)
    cleaner = ClusterCleaner(cluster)

    def refuse():
        raise StorageUnavailableError("away", path="x")

    monkeypatch.setattr(cluster, "image", refuse)
    (cleaned,) = cleaner.clean()
    assert (cleaned.partition, cleaned.error) == (TopicPartition("t", 0), None)
