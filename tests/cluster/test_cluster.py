"""A cluster root is created once, by the first process; other directories are refused."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster, open_cluster
from spark_log.cluster.meta_properties import META_PROPERTIES
from spark_log.errors import (
    CorruptRecordError,
    InvalidRootError,
    KafkaTimeoutError,
    NotFoundError,
    OffsetOutOfRangeError,
    RootNotFoundError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
    UnsupportedStoreError,
)
from spark_log.metadata.records import ConfigRecord
from spark_log.storage import StagedFileLostError
from spark_log.storage.local import LocalStore
from spark_log.storage.os_errors import storage_errors
from spark_log.storage.reserve import RESERVE_NAME
from tests.record.samples import numbered
from tests.sleeping_clock import SleepingClock


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


class TestCreate:
    def test_a_root_has_a_cluster_id_that_stays(self, root):
        created = Cluster(root, create=True)
        assert len(created.cluster_id) == 22
        assert Cluster(root).cluster_id == created.cluster_id
        assert Cluster(root, create=True).cluster_id == created.cluster_id
        assert Cluster(root).root == str(root)

    def test_two_roots_have_two_ids(self, tmp_path):
        ids = {Cluster(tmp_path / name, create=True).cluster_id for name in ("a", "b")}
        assert len(ids) == 2

    def test_nothing_but_its_properties_and_a_reserve_lies_in_a_new_root(self, root):
        cluster = Cluster(root, create=True)
        assert sorted(os.listdir(root)) == [RESERVE_NAME, META_PROPERTIES]
        lines = (root / META_PROPERTIES).read_text().splitlines()
        assert "version=1" in lines
        assert f"cluster.id={cluster.cluster_id}" in lines

    def test_many_that_create_it_at_once_agree_on_one_id(self, root):
        barrier = threading.Barrier(8)

        def create(_):
            barrier.wait(timeout=60)
            return Cluster(root, create=True).cluster_id

        with ThreadPoolExecutor(8) as pool:
            ids = set(pool.map(create, range(8)))
        assert ids == {Cluster(root).cluster_id}
        assert sorted(os.listdir(root)) == [RESERVE_NAME, META_PROPERTIES]

    def test_in_memory_as_well(self, memory_store):
        created = Cluster(memory_store.url, create=True)
        assert Cluster(memory_store.url).cluster_id == created.cluster_id

    def test_the_properties_are_durable_before_anyone_uses_the_root(self, root, monkeypatch):
        synced = []
        real = LocalStore.put_if_absent

        def put_if_absent(self, path, source, *, sync=True):
            synced.append((path, sync))
            real(self, path, source, sync=sync)

        monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
        Cluster(root, create=True)
        assert (META_PROPERTIES, True) in synced


class TestOpen:
    def test_a_path_without_a_root_is_not_found_and_left_alone(self, root):
        with pytest.raises(RootNotFoundError) as caught:
            Cluster(root)
        assert caught.value.path == str(root)
        assert "check the path, or create a topic there" in caught.value.message
        assert not root.exists()

    def test_a_directory_without_properties_is_not_found_either(self, root):
        root.mkdir()
        (root / "file").write_text("something else")
        with pytest.raises(RootNotFoundError):
            Cluster(root)

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize("below", ["", "below"])
    def test_a_file_is_no_root(self, root, create, below):
        root.write_text("a file")
        with pytest.raises(InvalidRootError) as caught:
            Cluster(root / below, create=create)
        assert caught.value.path == str(root / below)
        assert root.read_text() == "a file"

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize(
        "text",
        [
            "version=2\ncluster.id=abc\n",
            "version=\ncluster.id=abc\n",
            "cluster.id=abc\n",
            "version=1\n",
            "version=1\ncluster.id=\n",
            "",
            "\0\0\0\0",
            "#version=1\n#cluster.id=abc\n",
        ],
    )
    def test_properties_of_another_version_or_of_none_are_refused(self, root, create, text):
        root.mkdir()
        (root / META_PROPERTIES).write_text(text)
        with pytest.raises(InvalidRootError):
            Cluster(root, create=create)
        assert (root / META_PROPERTIES).read_text() == text

    def test_properties_that_are_no_text_are_refused(self, root):
        root.mkdir()
        (root / META_PROPERTIES).write_bytes(b"\xff\xfe version=1")
        with pytest.raises(InvalidRootError):
            Cluster(root)

    def test_a_later_version_is_named(self, root):
        root.mkdir()
        (root / META_PROPERTIES).write_text("version=2\ncluster.id=abc\n")
        with pytest.raises(InvalidRootError, match=r"has version '2'.*reads version '1'"):
            Cluster(root)

    def test_storage_without_put_if_absent_is_refused(self):
        with pytest.raises(UnsupportedStoreError):
            Cluster("http://example.org/root", create=True)


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
