"""An opened root: the logs of its partitions, and what it says of a storage that is away."""

import errno
import os

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, open_cluster
from spark_log.errors import (
    CorruptRecordError,
    InvalidRootError,
    KafkaTimeoutError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata.records import ConfigRecord
from spark_log.storage import StagedFileLostError
from spark_log.storage.local import LocalStore
from spark_log.storage.os_errors import storage_errors
from tests.record.samples import numbered
from tests.sleeping_clock import SleepingClock


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


class TestPartitionLogs:
    def test_a_partitions_log_is_that_topics_and_no_others(self, root):
        Admin(root).create_topics([NewTopic("a", 2), NewTopic("b", 1)])
        cluster = Cluster(root)
        cluster.partition_log(cluster.topic("a"), 1).append(numbered(0, 3))
        ends = {
            (name, number): cluster.partition_log(cluster.topic(name), number)
            .observe()
            .log_end_offset
            for name, number in (("a", 0), ("a", 1), ("b", 0))
        }
        assert ends == {("a", 0): 0, ("a", 1): 3, ("b", 0): 0}

    @pytest.mark.parametrize("number", [-1, 2, 100])
    def test_a_partition_that_the_topic_does_not_have_is_refused(self, root, number):
        Admin(root).create_topics([NewTopic("a", 2)])
        cluster = Cluster(root)
        with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {number}") as caught:
            cluster.partition_log(cluster.topic("a"), number)
        assert caught.value.topic == "a"

    def test_it_follows_the_topics_settings(self, root):
        configs = {"index.interval.bytes": 0, "flush.on.append": False}
        Admin(root).create_topics([NewTopic("a", topic_configs=configs)])
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.topic("a"), 0)
        log.append([numbered(0, 1), numbered(1, 1)])
        names = [file.name for file in cluster.store.list(log.directory)]
        assert [name.partition(".")[2] for name in names] == ["index", "log", "timeindex"]

    def test_settings_that_a_newer_version_added_do_not_lock_the_topic(self, root):
        """A newer record version is refused; an unknown config key is not."""
        Admin(root).create_topics([NewTopic("a", topic_configs={"segment.bytes": 2**20})])
        newer = ConfigRecord(
            resource_type="topic", resource_name="a", name="a.newer.setting", value="1"
        )
        cluster = Cluster(root)
        cluster.metadata.commit(lambda image: [newer])
        topic = Cluster(root).topic("a")
        assert cluster.partition_log(topic, 0).append(numbered(0, 1)).base_offset == 0
        assert topic.config().segment_bytes == 2**20


class TestUnreachable:
    """A root that does not answer may answer later: it is not reported as invalid."""

    def test_on_an_object_store(self):
        options = {"key": "k", "secret": "s", "region": "r", "endpoint_url": "http://127.0.0.1:1"}
        with pytest.raises(
            StorageUnavailableError, match=r"cannot be reached.*127\.0\.0\.1:1"
        ) as told:
            Cluster("s3://bucket/root", options, request_timeout_ms=200)
        assert told.value.retriable

    @pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EHOSTDOWN])
    def test_on_a_file_system_whose_server_is_away(self, root, monkeypatch, number):
        Cluster(root, create=True)
        monkeypatch.setattr(LocalStore, "open_buffer", failing_with(number))
        with pytest.raises(StorageUnavailableError, match=os.strerror(number)):
            Cluster(root)

    def test_a_client_that_opens_it_waits_for_the_file_system(self, root, monkeypatch):
        Cluster(root, create=True)
        clock = SleepingClock()
        read, away = LocalStore.open_buffer, failing_with(errno.ESTALE)

        def open_buffer(self, path):
            return (away if clock.monotonic_ms() < 30_000 else read)(self, path)

        monkeypatch.setattr(LocalStore, "open_buffer", open_buffer)
        assert open_cluster(root, clock=clock).cluster_id
        assert 30_000 <= clock.monotonic_ms() < 32_000
        monkeypatch.setattr(LocalStore, "open_buffer", away)
        with pytest.raises(KafkaTimeoutError, match=r"max\.block\.ms.*Stale file handle"):
            open_cluster(root, clock=clock, timeout_ms=9_000, setting="max.block.ms")

    def test_what_will_not_pass_is_no_root(self, root, monkeypatch):
        Cluster(root, create=True)
        monkeypatch.setattr(LocalStore, "open_buffer", failing_with(errno.EACCES))
        with pytest.raises(InvalidRootError, match="Permission denied"):
            Cluster(root)


def failing_with(number):
    def open_buffer(self, path):
        with storage_errors(path):
            raise OSError(number, os.strerror(number))

    return open_buffer


class TestDeletionOrDamage:
    """Missing files are reported as damage only if the topic was not deleted."""

    @pytest.fixture
    def cluster(self, root):
        Admin(root).create_topics([NewTopic("t")])
        return Cluster(root)

    def read(self, cluster, topic, error):
        with cluster.detecting_deletion(topic):
            raise error

    @pytest.mark.parametrize(
        "error", [CorruptRecordError("a hole"), NotFoundError("gone"), OffsetOutOfRangeError("x")]
    )
    @pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
    def test_a_deleted_topic_is_unknown(self, root, cluster, error, again):
        topic = cluster.topic("t")
        with pytest.raises(type(error)):
            self.read(cluster, topic, error)
        Admin(root).delete_topics(["t"])
        if again:
            Admin(root).create_topics([NewTopic("t")])
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted") as told:
            self.read(cluster, topic, error)
        assert told.value.topic == "t"

    def test_what_may_pass_is_told_as_it_is(self, root, cluster):
        topic = cluster.topic("t")
        Admin(root).delete_topics(["t"])
        with pytest.raises(StorageUnavailableError):
            self.read(cluster, topic, StorageUnavailableError("away"))

    def test_a_staged_file_that_was_deleted_with_the_topic_is_told_as_deletion(self, root, cluster):
        topic = cluster.topic("t")
        with pytest.raises(StagedFileLostError):
            self.read(cluster, topic, StagedFileLostError("gone"))
        Admin(root).delete_topics(["t"])
        with pytest.raises(UnknownTopicOrPartitionError):
            self.read(cluster, topic, StagedFileLostError("gone"))

    def test_damage_stays_damage_where_the_metadata_cannot_be_read(self, cluster, monkeypatch):
        topic = cluster.topic("t")
        monkeypatch.setattr(cluster, "image", lambda: failing_with(errno.EIO)(None, "x"))
        with pytest.raises(CorruptRecordError):
            self.read(cluster, topic, CorruptRecordError("a hole"))
