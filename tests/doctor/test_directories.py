"""Directories that nobody owns."""

from spark_log import Admin, NewTopic
from spark_log.cluster import ClusterVerifier
from spark_log.doctor import CheckStatus, Severity
from spark_log.errors import AuthorizationError
from spark_log.log import verify
from spark_log.storage import DELETION_MARKERS
from spark_log.storage.local import LocalStore

DAY_MS = 24 * 3_600_000


def test_of_a_deleted_topic(patient, cluster):
    Admin(patient.root).create_topics([NewTopic("u")])
    left = cluster.topic("u").directory
    Admin(patient.root).delete_topics(["u"])
    cluster.store.put(f"{left}/u-0/00000000000000000000.log", b"written late")
    patient.clock.advance_ms(DAY_MS - 1000)
    assert patient.findings("directories") == []
    patient.clock.advance_ms(2000)
    (found,) = patient.findings("directories")
    assert found.problem.code == "deleted-topic-left"
    assert found.message == "its topic was deleted 1 d ago, and it still exists"
    assert found.command == "spark-log clean --all-topics"
    cluster.store.delete(f"{DELETION_MARKERS}/{left}")
    (found,) = patient.findings("directories")
    assert (found.problem.code, found.severity) == ("unknown-topic", Severity.WARNING)


def test_of_partitions_and_replicas_that_are_no_more(patient, cluster, tmp_path):
    admin = Admin(patient.root)
    admin.register_broker(1, tmp_path / "b1")
    topic = cluster.topic("t")
    cluster.store.put(f"{topic.directory}/t-7/x", b"")
    cluster.broker_store(1).put(f"{topic.directory}/t-0/00000000000000000000.log", b"")
    patient.clock.advance_ms(DAY_MS + 1000)
    found = {each.problem.code: each for each in patient.findings("directories")}
    assert found.keys() == {"unknown-topic", "former-replica-left"}
    assert found["unknown-topic"].message == "topic t has no such partition"
    assert found["former-replica-left"].subject.broker == 1


def test_of_others_and_of_a_doctor_that_was_killed(patient, cluster):
    cluster.store.put("photos/one.jpg", b"")
    cluster.store.put("__doctor.0123/first", b"")
    (found,) = patient.findings("directories")
    assert (found.problem.code, found.severity) == ("foreign-directory", Severity.INFO)
    scratch, foreign = ClusterVerifier(cluster).findings()
    assert (scratch.path, scratch.severity) == ("__doctor.0123", verify.LogSeverity.NOTE)
    assert (foreign.path, foreign.severity) == ("photos", verify.LogSeverity.WARNING)
    patient.clock.advance_ms(3_600_001)
    found = {each.problem.code: each for each in patient.findings("directories")}
    assert found["scratch-left"].subject.text == "directory __doctor.0123 on broker 0"


def test_of_a_file_system_is_neither_listed_nor_foreign(patient, cluster, monkeypatch):
    cluster.store.put("lost+found/#123", b"")
    list_directories = LocalStore.list_directories

    def as_a_user(store, directory):
        if "lost+found" in directory:
            raise AuthorizationError("permission denied", path=directory)
        return list_directories(store, directory)

    monkeypatch.setattr(LocalStore, "list_directories", as_a_user)
    assert patient.findings("directories") == []
    assert list(ClusterVerifier(cluster).findings()) == []


def test_are_not_looked_for_when_topics_are_given(patient):
    doctor = patient.doctor("directories", topics=["t"])
    assert list(doctor.findings()) == []
    assert doctor.results["directories"].status is CheckStatus.SKIPPED
