"""Files of deleted topics are removed; similar files of other topics stay."""

import pytest

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster, register_broker, topic_deletion
from spark_log.cluster.topic_deletion import finish_deletions, mark_deleted
from spark_log.errors import ClockSkewError
from spark_log.storage import DELETION_MARKERS
from spark_log.util.clock import SYSTEM_CLOCK
from tests.log.support import ShiftedClock, values
from tests.metadata.support import append
from tests.record.samples import record_batch, row

DAY_US = 86_400_000_000


def test_a_topic_that_is_created_and_marked_while_a_cleaner_looks_stays(tmp_path, monkeypatch):
    """A process died before it deleted the topic: a cleaner reads the metadata after markers."""
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic("a", 1)])
    cluster, other = Cluster(root), Cluster(root)
    cluster.image()
    look = cluster.store.list

    def look_late(directory, start_after=None):
        if directory == DELETION_MARKERS:
            admin.create_topics([NewTopic("b", 1)])
            append(root, "b", 1)
            mark_deleted(other.store, [other.topic("b")])
        return look(directory, start_after)

    monkeypatch.setattr(cluster.store, "list", look_late)
    assert list(finish_deletions(cluster)) == []
    assert values(other.partition_log(other.topic("b"), 0)) != []


class TestWrongClock:
    @pytest.fixture
    def root(self, tmp_path):
        """A topic was deleted, and a writer that did not know of it left files."""
        root = tmp_path / "root"
        admin = Admin(root)
        admin.create_topics([NewTopic("a", 1)])
        log = Cluster(root).partition_log(Cluster(root).topic("a"), 0)
        admin.delete_topics(["a"])
        log.append(record_batch([row(b"late")]))
        return root

    @pytest.mark.parametrize("days", [8, -2])
    def test_removes_nothing(self, root, days):
        wrong = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=days))
        before = sorted(root.rglob("*"))
        for dry_run in (True, False):
            with pytest.raises(ClockSkewError):
                list(finish_deletions(wrong, dry_run=dry_run))
        assert sorted(root.rglob("*")) == before
        assert [left.files for left in finish_deletions(Cluster(root))] == [1]

    @pytest.mark.parametrize("days", [8, -2])
    def test_does_not_decide_when_a_marker_goes(self, root, days):
        allowed = ConfigResource("broker", "", {"max.clock.skew.ms": str(10**12)})
        Admin(root).alter_configs([allowed])
        wrong = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=days))
        (marker,) = wrong.store.list(DELETION_MARKERS)
        list(finish_deletions(wrong))
        assert [each.name for each in wrong.store.list(DELETION_MARKERS)] == [marker.name]

    def test_the_marker_goes_a_day_later_by_the_storages(self, root, monkeypatch):
        cluster = Cluster(root)
        monkeypatch.setattr(topic_deletion, "storage_time_us", later_by(DAY_US + 60_000_000))
        cluster.clock = ShiftedClock(SYSTEM_CLOCK, days=1)
        list(finish_deletions(cluster))
        assert list(cluster.store.list(DELETION_MARKERS)) == []

    def test_what_a_killed_cleaner_asked_the_time_by_is_removed(self, root, monkeypatch):
        probe = root / DELETION_MARKERS / ".a-probe.tmp"
        probe.write_bytes(b"")
        list(finish_deletions(Cluster(root)))
        assert probe.exists(), "who wrote it may be at work"
        cluster = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=0.1))
        monkeypatch.setattr(topic_deletion, "storage_time_us", later_by(DAY_US // 10))
        list(finish_deletions(cluster))
        assert not probe.exists()


def later_by(us):
    return lambda store, directory: SYSTEM_CLOCK.time_us() + us


class TestOnBrokers:
    @pytest.fixture
    def cluster(self, tmp_path):
        """Return a cluster with the brokers 0 and 1, and a topic with files on both."""
        cluster = Cluster(tmp_path / "root", create=True)
        register_broker(cluster, 1, tmp_path / "one")
        admin = Admin(cluster.root)
        admin.create_topics([NewTopic("a", replica_assignment={0: [1, 0]}), NewTopic("b")])
        write_on_all(cluster, cluster.topic("a").directory)
        return Cluster(cluster.root)

    def test_a_topic_is_removed_from_the_roots_of_all_its_brokers(self, cluster):
        directory = cluster.topic("a").directory
        Admin(cluster.root).delete_topics(["a"])
        assert files_on(cluster, directory) == {0: 0, 1: 0}

    def test_of_a_broker_that_is_unreachable_a_cleaner_removes_it_later(
        self, cluster, tmp_path, caplog
    ):
        directory = cluster.topic("a").directory
        (tmp_path / "one").rename(tmp_path / "elsewhere")
        Admin(cluster.root).delete_topics(["a"])
        assert f"{directory}: not all files of broker 1 were removed" in caplog.text
        assert list(finish_deletions(Cluster(cluster.root))) == []
        assert "broker 1: files of deleted topics are left" in caplog.text
        (tmp_path / "elsewhere").rename(tmp_path / "one")
        assert files_on(cluster, directory) == {0: 0, 1: 1}
        (planned,) = finish_deletions(cluster, dry_run=True)
        assert (planned.broker_id, planned.directory, planned.files) == (1, directory, 1)
        assert list(finish_deletions(cluster)) == [planned]
        assert files_on(cluster, directory) == {0: 0, 1: 0}

    def test_a_marker_stays_until_all_brokers_were_reached(self, cluster, tmp_path, monkeypatch):
        Admin(cluster.root).delete_topics(["a"])
        late = Cluster(cluster.root, clock=ShiftedClock(SYSTEM_CLOCK, days=2))
        monkeypatch.setattr(topic_deletion, "storage_time_us", later_by(2 * DAY_US))
        (tmp_path / "one").rename(tmp_path / "elsewhere")
        list(finish_deletions(late))
        assert len(list(cluster.store.list(DELETION_MARKERS))) == 1
        (tmp_path / "elsewhere").rename(tmp_path / "one")
        list(finish_deletions(late))
        assert list(cluster.store.list(DELETION_MARKERS)) == []


def write_on_all(cluster, directory):
    for broker_id in (0, 1):
        cluster.broker_store(broker_id).put(f"{directory}/a-0/x", b"x")


def files_on(cluster, directory):
    return {
        broker_id: len(list(cluster.broker_store(broker_id).list(f"{directory}/a-0")))
        for broker_id in (0, 1)
    }
