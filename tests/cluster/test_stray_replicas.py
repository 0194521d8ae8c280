"""Directories of replicas that were moved away, or came back elsewhere, are removed later."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import (
    Cluster,
    next_directory_number,
    register_broker,
    remove_stray_replicas,
    stray_replicas,
)
from spark_log.errors import ClockSkewError
from spark_log.log.files import ExistenceMarker
from spark_log.metadata.records import PartitionChangeRecord
from spark_log.storage import STRAY_REPLICAS, open_store
from spark_log.util.clock import SYSTEM_CLOCK
from tests.log.support import ShiftedClock

DAY_US = 86_400_000_000


@pytest.fixture
def cluster(tmp_path):
    """Return a cluster with the brokers 0 and 1, and a topic with replicas on both."""
    cluster = Cluster(tmp_path / "root", create=True)
    register_broker(cluster, 1, tmp_path / "one")
    Admin(cluster.root).create_topics([NewTopic("a", replica_assignment={0: [0, 1]})])
    return cluster


@pytest.fixture
def days_later(cluster, monkeypatch):
    """Return the cluster as a process sees it two days later."""
    now_us = SYSTEM_CLOCK.time_us() + 2 * DAY_US
    monkeypatch.setattr(stray_replicas, "storage_time_us", lambda store, directory: now_us)
    return Cluster(cluster.root, clock=ShiftedClock(SYSTEM_CLOCK, days=2))


def write(cluster, broker_id, name):
    directory = f"{cluster.topic('a').directory}/{name}"
    store = open_store(cluster.broker_store(broker_id).url)  # as another process has it
    store.put(f"{directory}/x", b"xyz")
    ExistenceMarker(directory).create(store)
    return directory


def change(cluster, **fields):
    record = PartitionChangeRecord(topic_id=cluster.topic("a").topic_id, partition_id=0, **fields)
    cluster.metadata.commit(lambda image: [record])


def names_on(cluster, broker_id):
    return sorted(cluster.broker_store(broker_id).list_directories(cluster.topic("a").directory))


class TestRemoved:
    def test_a_replica_that_was_moved_away(self, cluster, days_later, caplog):
        directory = write(cluster, 1, "a-0")
        write(cluster, 0, "a-0")
        change(cluster, replicas=(0,), isr=(0,))
        with caplog.at_level("INFO", "spark_log.cluster"):
            (removed,) = remove_stray_replicas(days_later)
        assert f"broker 1: removed the stray replica {directory}: 1 files, 3 bytes" in caplog.text
        assert (removed.broker_id, removed.directory) == (1, directory)
        assert (removed.files, removed.size_bytes) == (1, 3)
        assert names_on(cluster, 1) == []
        assert not ExistenceMarker(directory).exists(cluster.broker_store(1))
        assert names_on(cluster, 0) == ["a-0"]

    def test_the_old_directory_of_a_replica_that_came_back_in_a_new_one(self, cluster, days_later):
        for name in ("a-0", "a-0.1", "a-0.2"):
            write(cluster, 1, name)
        change(cluster, directories=(0, 2))
        assert len(list(remove_stray_replicas(days_later))) == 2
        assert names_on(cluster, 1) == ["a-0.2"]

    def test_what_a_late_writer_puts_there_afterwards(self, cluster, days_later):
        write(cluster, 1, "a-0")
        change(cluster, replicas=(0,), isr=(0,))
        list(remove_stray_replicas(days_later))
        write(cluster, 1, "a-0")
        assert len(list(remove_stray_replicas(days_later))) == 1
        assert names_on(cluster, 1) == []


class TestKept:
    def test_what_became_stray_less_than_the_delay_ago(self, cluster, monkeypatch):
        write(cluster, 1, "a-0")
        change(cluster, replicas=(0,), isr=(0,))
        assert list(remove_stray_replicas(cluster)) == []
        store, markers = cluster.broker_store(1), f"{STRAY_REPLICAS}/{cluster.topic('a').directory}"
        (marker,) = store.list(markers)
        delay_us = cluster.topic("a").config().file_delete_delay_ms * 1000
        for more_us, names in ((-1, ["a-0"]), (store.time_resolution_us, [])):
            now_us = marker.modified_us + delay_us + more_us
            monkeypatch.setattr(stray_replicas, "storage_time_us", lambda *_, now=now_us: now)
            list(remove_stray_replicas(cluster))
            assert names_on(cluster, 1) == names

    def test_everything_in_a_dry_run(self, cluster, days_later):
        write(cluster, 1, "a-0")
        change(cluster, replicas=(0,), isr=(0,))
        assert list(remove_stray_replicas(days_later, dry_run=True)) == []  # not marked yet
        cluster.broker_store(1).put(f"{STRAY_REPLICAS}/{cluster.topic('a').directory}/a-0", b"")
        assert len(list(remove_stray_replicas(days_later, dry_run=True))) == 1
        assert names_on(cluster, 1) == ["a-0"]

    def test_a_copy_in_a_new_directory_that_is_not_in_the_metadata_yet(self, cluster, days_later):
        for name in ("a-0", "a-0.1"):
            write(cluster, 1, name)
        assert list(remove_stray_replicas(days_later)) == []
        assert names_on(cluster, 1) == ["a-0", "a-0.1"]

    @pytest.mark.parametrize("name", ["a-7", "notes", "a-0.x"])
    def test_what_is_not_of_a_partition(self, cluster, days_later, name):
        write(cluster, 1, name)
        assert list(remove_stray_replicas(days_later)) == []
        assert names_on(cluster, 1) == [name]

    def test_what_becomes_a_replica_again_meanwhile(self, cluster, days_later, monkeypatch):
        write(cluster, 1, "a-0")
        change(cluster, replicas=(0,), isr=(0,))

        later_us = SYSTEM_CLOCK.time_us() + 2 * DAY_US

        def comes_back(store, directory):
            change(cluster, replicas=(0, 1))
            return later_us

        monkeypatch.setattr(stray_replicas, "storage_time_us", comes_back)
        assert list(remove_stray_replicas(days_later)) == []
        assert names_on(cluster, 1) == ["a-0"]

    def test_everything_if_the_clock_is_wrong(self, cluster):
        write(cluster, 1, "a-0")
        change(cluster, replicas=(0,), isr=(0,))
        wrong = Cluster(cluster.root, clock=ShiftedClock(SYSTEM_CLOCK, days=2))
        with pytest.raises(ClockSkewError):
            list(remove_stray_replicas(wrong))
        assert names_on(cluster, 1) == ["a-0"]


def test_a_broker_that_is_unreachable_does_not_keep_others_from_being_cleaned(
    cluster, days_later, tmp_path, caplog
):
    register_broker(cluster, 2, tmp_path / "two")
    write(cluster, 2, "a-0")
    change(cluster, replicas=(0, 1), isr=(0,))
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    assert [stray.broker_id for stray in remove_stray_replicas(days_later)] == [2]
    assert "broker 1: stray replicas are left" in caplog.text


class TestNextDirectoryNumber:
    def number(self, cluster):
        return next_directory_number(cluster.broker_store(1), cluster.topic("a"), 0)

    def test_it_is_above_each_that_was_given_up(self, cluster, days_later):
        for name in ("a-0", "a-0.2", "a-10.7"):
            write(cluster, 1, name)
        assert self.number(cluster) == 0
        change(cluster, replicas=(0,), isr=(0,))
        list(remove_stray_replicas(days_later))
        assert self.number(cluster) == 3

    def test_the_markers_are_removed_with_the_topic(self, cluster, days_later):
        write(cluster, 1, "a-0")
        change(cluster, directories=(0, 1))
        list(remove_stray_replicas(days_later))
        (directory,) = cluster.broker_store(1).list_directories(STRAY_REPLICAS)
        Admin(cluster.root).delete_topics(["a"])
        assert list(cluster.broker_store(1).list(f"{STRAY_REPLICAS}/{directory}")) == []
