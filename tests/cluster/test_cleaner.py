"""Cleaning a root: each partition by the present configs of its topic."""

import threading

import pytest

from spark_log import Admin, ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.cluster import cleaner as cluster_cleaner
from spark_log.cluster import cluster as cluster_module
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.errors import ClockSkewError, CorruptRecordError, StorageUnavailableError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.storage import open_store
from tests.log.support import ShiftedClock
from tests.metadata.support import append
from tests.slow_store import SlowStore, rounds

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


def test_what_was_deleted_is_logged(root, caplog):
    append(root, "t", 3)
    append(root, "t", 3)
    change(root, {"retention.bytes": 1})
    with caplog.at_level("DEBUG", "spark_log.cluster"):
        assert starts(ClusterCleaner(Cluster(root))) == [3]
    logged = [each for each in caplog.messages if each.startswith("t-0 on broker 0: ")]
    assert len(logged) == 1
    assert "log start offset 3; retention removed 1 segments (" in logged[0]


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


class NotedStore(SlowStore):
    """A slow store that keeps what it was asked for, too."""

    def _do(self, operation, path, call):
        self.calls.append((operation, path))
        return super()._do(operation, path, call)


class TestAnObjectStore:
    """Where each look is a request, several partitions are looked at at the same time."""

    PARTITIONS = 20

    @pytest.fixture
    def filled(self, tmp_path):
        """Return the root of a topic of many partitions with a record each."""
        url = str(tmp_path / "many")
        Admin(url).create_topics(
            [NewTopic("t", self.PARTITIONS, topic_configs={"retention.ms": -1})]
        )
        for number in range(self.PARTITIONS):
            append(url, "t", 1, partition=number)
        return url

    @pytest.fixture
    def stores(self, monkeypatch):
        """Return the stores that are opened from now on: each of their requests takes a while."""
        stores = []

        def open_slow(*args, **kwargs):
            stores.append(NotedStore(open_store(*args, **kwargs)))
            return stores[-1]

        monkeypatch.setattr(cluster_module, "open_store", open_slow)
        return stores

    @pytest.fixture
    def many(self, filled, stores):
        return filled, stores

    def test_partitions_are_looked_at_at_the_same_time(self, many):
        url, stores = many
        cleaner = ClusterCleaner(Cluster(url))
        stores[-1].requests.clear()
        done = list(cleaner.clean())
        assert [each.partition.partition for each in done] == list(range(self.PARTITIONS))
        assert [each.error for each in done] == [None] * self.PARTITIONS
        assert rounds(stores[-1].requests) < 3 * self.PARTITIONS

    def test_the_clock_of_the_storage_is_asked_once(self, many):
        url, stores = many
        list(ClusterCleaner(Cluster(url)).clean())
        probes = [path for path in stores[-1].called("put") if path.endswith(".tmp")]
        assert len(probes) == 1

    def test_one_partition_at_a_time_is_rewritten(self, filled, request, monkeypatch):
        url = filled
        Admin(url).alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, "t", {"segment.bytes": 2_097_152})]
        )
        for number in range(3):
            for at in range(1, 20):
                append(url, "t", 1, partition=number, first=at)
        request.getfixturevalue("stores")
        running, most = [], []
        merge_levels = PartitionCleaner._merge_levels  # noqa: SLF001

        def noted(cleaner, *args):
            running.append(threading.get_ident())
            most.append(len(running))
            found = merge_levels(cleaner, *args)
            running.pop()
            return found

        monkeypatch.setattr(PartitionCleaner, "_merge_levels", noted)
        done = list(ClusterCleaner(Cluster(url)).clean())
        assert most == [1, 1, 1]
        reports = [each.report for each in done if each.report is not None]
        assert [each.merged_segments > 0 for each in reports[:4]] == [True, True, True, False]

    def test_a_failure_of_one_stops_no_other(self, many, tmp_path):
        url, _ = many
        (damaged,) = tmp_path.glob("many/t.*/t-7/*.log")
        damaged.chmod(0o600)
        damaged.write_bytes(b"damaged")
        failed = [each for each in ClusterCleaner(Cluster(url)).clean() if each.error]
        assert [each.partition.partition for each in failed] == [7]
        assert isinstance(failed[0].error, CorruptRecordError)

    def test_a_process_with_a_wrong_clock_cleans_nothing(self, many, clock):
        url, stores = many
        wrong = ShiftedClock(clock, days=400)
        with pytest.raises(ClockSkewError):
            list(ClusterCleaner(Cluster(url, clock=wrong)).clean())
        assert not stores[-1].called("put_if_absent")
