"""Verification of a whole root: all logs, the metadata log included, and other directories."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.cluster.verifier import ClusterVerifier
from spark_log.errors import (
    AuthorizationError,
    CorruptRecordError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import METADATA_MARKER
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from spark_log.storage import open_store
from tests.metadata.support import metadata_files
from tests.record.samples import numbered


@pytest.fixture
def cluster(tmp_path):
    """``flights`` with two partitions, ``weather`` with one, three records in each."""
    Admin(tmp_path / "root").create_topics([NewTopic("flights", 2), NewTopic("weather")])
    cluster = Cluster(tmp_path / "root")
    for topic in cluster.image().topics():
        for partition in topic.partitions:
            cluster.partition_log(topic, partition).append(numbered(0, 3))
    return cluster


def verified(cluster, *args, **options):
    verifier = ClusterVerifier(cluster, *args, **options)
    return verifier, list(verifier.findings())


def found(cluster, *args, **options):
    _, findings = verified(cluster, *args, **options)
    return [(finding.path, str(finding.kind)) for finding in findings]


def damage(cluster, path, text):
    data = cluster.store.open_buffer(path).to_pybytes()
    cluster.store.put(path, data.replace(text, b"#" * len(text), 1))


def segment(cluster, topic, partition=0):
    return f"{cluster.topic(topic).partition_directory(partition)}/00000000000000000000.log"


class TestWhichLogs:
    def test_a_sound_root_has_no_findings_and_all_of_it_is_counted(self, cluster):
        verifier, findings = verified(cluster)
        assert findings == []
        assert (verifier.partitions, verifier.segments) == (4, 4)
        topics, partitions, appended = 2, 3, 9
        assert verifier.records == topics + partitions + appended
        assert verifier.size_bytes == verifier.total_bytes()

    def test_progress_adds_up_to_all_bytes(self, cluster):
        verifier = ClusterVerifier(cluster)
        seen: list[int] = []
        list(verifier.findings(seen.append))
        assert sum(seen) == verifier.total_bytes()

    def test_only_the_topics_that_are_named(self, cluster):
        damage(cluster, segment(cluster, "flights", 1), b"record:1")
        assert found(cluster, ["weather"]) == []
        assert found(cluster, ["flights"]) == [(segment(cluster, "flights", 1), "damaged-segment")]

    def test_only_the_partitions_that_are_named(self, cluster):
        damage(cluster, segment(cluster, "flights", 1), b"record:1")
        assert found(cluster, ["flights"], [0]) == []
        verifier, findings = verified(cluster, None, [1])
        assert (verifier.partitions, len(findings)) == (1, 1)

    def test_damage_in_one_does_not_hide_the_others(self, cluster):
        for partition in (0, 1):
            damage(cluster, segment(cluster, "flights", partition), b"record:1")
        damage(cluster, segment(cluster, "weather"), b"record:2")
        assert {path for path, _ in found(cluster)} == {
            segment(cluster, "flights", 0),
            segment(cluster, "flights", 1),
            segment(cluster, "weather"),
        }

    def test_what_is_not_there_is_refused_before_anything_is_looked_at(self, cluster):
        for arguments in ((["planes"],), (["weather"], [1]), (None, [7])):
            with pytest.raises(UnknownTopicOrPartitionError):
                ClusterVerifier(cluster, *arguments)

    def test_repair_reaches_every_log(self, cluster):
        paths = [segment(cluster, "flights", 1), segment(cluster, "weather")]
        for path in paths:
            cluster.store.put(path.replace(".log", ".index"), b"damaged")
        _, findings = verified(cluster, repair=True)
        assert {finding.path for finding in findings if finding.repaired} == {
            path.replace(".log", ".index") for path in paths
        }
        assert found(cluster) == []


class TestMetadataLog:
    def test_its_damage_is_told_and_what_can_be_told_goes_on(self, cluster):
        path = f"{METADATA_DIRECTORY}/{metadata_files(cluster.root)[0]}"
        damage(cluster, path, b"flights")
        assert found(Cluster(cluster.root)) == [(path, "damaged-segment")], "by the checkpoint"
        cluster.store.delete(METADATA_MARKER.path)
        other = Cluster(cluster.root)
        assert found(other) == [(METADATA_DIRECTORY, "unreadable"), (path, "damaged-segment")]

    def test_where_a_topic_is_named_its_damage_is_an_error(self, cluster):
        damage(cluster, f"{METADATA_DIRECTORY}/{metadata_files(cluster.root)[0]}", b"flights")
        ClusterVerifier(Cluster(cluster.root), ["weather"])
        cluster.store.delete(METADATA_MARKER.path)
        with pytest.raises(CorruptRecordError):
            ClusterVerifier(Cluster(cluster.root), ["weather"])

    def test_it_is_no_topic_that_can_be_named(self, cluster):
        with pytest.raises(UnknownTopicOrPartitionError):
            ClusterVerifier(cluster, [METADATA_DIRECTORY])

    def test_its_derived_files_are_repaired_too(self, cluster):
        path = f"{METADATA_DIRECTORY}/00000000000000000000.index"
        cluster.store.put(path, b"damaged")
        _, findings = verified(cluster, repair=True)
        assert [(finding.path, finding.repaired) for finding in findings] == [(path, True)]


class TestDirectories:
    def test_of_a_deleted_topic_are_told_and_left_alone(self, cluster):
        left = cluster.topic("flights").directory
        Admin(cluster.root).delete_topics(["flights"])
        late_writer = open_store(cluster.root)
        late_writer.put(f"{left}/flights-0/00000000000000000000.log", b"written late")
        _, (finding,) = verified(cluster, repair=True)
        assert (finding.path, str(finding.kind)) == (left, "orphaned-directory")
        assert "left over from a deleted one" in finding.message
        assert cluster.store.head(f"{left}/flights-0/00000000000000000000.log").size_bytes

    def test_of_a_topic_made_again_are_told_apart(self, cluster):
        old = cluster.topic("weather").directory
        Admin(cluster.root).delete_topics(["weather"])
        Admin(cluster.root).create_topics([NewTopic("weather")])
        open_store(cluster.root).put(f"{old}/weather-0/x", b"")
        assert found(cluster) == [(old, "orphaned-directory")]

    def test_of_partitions_that_a_topic_does_not_have_are_told(self, cluster):
        directory = cluster.topic("weather").directory
        cluster.store.put(f"{directory}/weather-1/00000000000000000000.log", b"")
        assert found(cluster) == [(f"{directory}/weather-1", "orphaned-directory")]

    def test_that_are_nothing_of_ours_are_told(self, cluster):
        cluster.store.put("photos/one.jpg", b"")
        _, (finding,) = verified(cluster)
        assert (finding.path, str(finding.severity)) == ("photos", "warning")
        assert "does not belong to spark-log" in finding.message

    @pytest.mark.parametrize(
        "name", ["__consumer_offsets", "__consumer_groups", "__transaction_state"]
    )
    def test_of_internal_logs_are_none_of_them(self, cluster, name):
        cluster.store.put(f"{name}/x", b"")
        assert found(cluster) == []

    def test_are_not_looked_for_where_a_topic_or_partition_is_named(self, cluster):
        cluster.store.put("photos/one.jpg", b"")
        assert found(cluster, ["weather"]) == []
        assert found(cluster, None, [0]) == []

    def test_of_a_topic_that_is_made_meanwhile_are_no_finding(self, cluster, monkeypatch):
        look = cluster.store.list_directories

        def create_before_looking(directory):
            if directory == "":
                Admin(cluster.root).create_topics([NewTopic("planes")])
                other = Cluster(cluster.root)
                other.partition_log(other.topic("planes"), 0).append(numbered(0, 1))
                monkeypatch.undo()
            return look(directory)

        monkeypatch.setattr(cluster.store, "list_directories", create_before_looking)
        assert found(cluster) == []

    def test_of_a_topic_that_is_deleted_meanwhile_are_no_finding(self, cluster, monkeypatch):
        verifier = ClusterVerifier(cluster)
        look = cluster.image

        def delete_before_looking():
            monkeypatch.undo()
            Admin(cluster.root).delete_topics(["weather"])
            return look()

        monkeypatch.setattr(cluster, "image", delete_before_looking)
        assert list(verifier.findings()) == []


def test_a_partition_that_may_not_be_read_is_told_and_the_others_are_verified(cluster, monkeypatch):
    denied = cluster.topic("flights").partition_directory(0)
    listed = type(cluster.store).list

    def refuse(store, directory, start_after=None):
        if directory == denied:
            raise AuthorizationError(f"{directory}: access failed", path=directory)
        return listed(store, directory, start_after)

    monkeypatch.setattr(type(cluster.store), "list", refuse)
    verifier, findings = verified(cluster)
    assert [(each.path, str(each.kind), str(each.severity)) for each in findings] == [
        (denied, "unreadable", "error")
    ]
    assert verifier.partitions == 4  # with the metadata log
