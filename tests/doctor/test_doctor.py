"""The doctor itself: a healthy root, failing and hanging checks, limits."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.doctor import CHECKS, CheckStatus, Doctor, Limits, Severity, examination
from spark_log.doctor import doctor as doctor_module
from spark_log.doctor.checks.brokers import BrokersCheck
from spark_log.doctor.checks.replicas import ReplicasCheck
from spark_log.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from spark_log.storage.local import LocalStore
from spark_log.threads import daemon_pool
from spark_log.util.clock import ManualClock
from tests.doctor.support import append, codes
from tests.metadata.replicas import replicated_cluster


def use(root, **options):
    """Create a topic, write to it, read it in a group, and leave nothing behind."""
    Admin(root, **options).create_topics([NewTopic("flights", 2)])
    with Producer(root, **options) as producer:
        for number in range(4):
            producer.send("flights", b"%d" % number, partition=number % 2)
    if not root.startswith("memory:"):
        with Consumer(
            "flights", root=root, group_id="g", auto_offset_reset="earliest", **options
        ) as consumer:
            read = 0
            while read < 4:
                read += sum(map(len, consumer.poll(timeout_ms=10_000).values()))
            consumer.commit()


class TestAHealthyRoot:
    @pytest.mark.parametrize("kind", ["local", "memory", "s3"])
    def test_has_no_finding(self, kind, tmp_path, s3_server):
        root = {
            "local": str(tmp_path / "root"),
            "memory": f"memory://{tmp_path.name}",
            "s3": f"{s3_server.new_bucket()}/a/root",
        }[kind]
        options = {"storage_options": s3_server.storage_options} if kind == "s3" else {}
        use(root, **options)
        doctor = Doctor(lambda: Cluster(root, *options.values()), probe_storage=True)
        found = list(doctor.findings())
        assert [(each.subject.text, each.message) for each in found] == []
        assert doctor.results.keys() == {each.name for each in CHECKS}
        assert {each.status for each in doctor.results.values()} <= {
            CheckStatus.DONE,
            CheckStatus.SKIPPED,
        }

    def test_with_replicas_has_no_finding(self, tmp_path):
        replicated_cluster(tmp_path)
        assert list(Doctor(lambda: Cluster(tmp_path / "r0"), probe_storage=True).findings()) == []

    def test_is_left_as_it_was(self, tmp_path):
        use(str(tmp_path / "root"))

        def content():
            return {
                path: path.stat().st_mtime_ns
                for path in Path(tmp_path).rglob("*")
                if path.is_file() and path.name != ".reserve"
            }

        before = content()
        for probe_storage in (False, True):
            list(Doctor(lambda: Cluster(tmp_path / "root"), probe_storage=probe_storage).findings())
            assert content() == before


def test_a_check_that_fails_is_a_finding_and_the_others_are_done(patient, monkeypatch):
    def fail(check, examination):
        raise ZeroDivisionError("a fault of this program")

    monkeypatch.setattr(BrokersCheck, "findings", fail)
    doctor = patient.doctor()
    (found,) = doctor.findings()
    assert (found.problem.code, found.severity) == ("not-checked", Severity.WARNING)
    assert found.message == (
        "could not be checked (brokers): ZeroDivisionError: a fault of this program"
    )
    assert found.command == "spark-log doctor --checks brokers"
    assert doctor.results["brokers"].status is CheckStatus.FAILED
    assert doctor.results["replicas"].status is CheckStatus.DONE


def test_a_check_that_hangs_is_given_up(patient, monkeypatch):
    clock, released = ManualClock(), threading.Event()
    for module in (doctor_module, examination):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", clock)

    def hang(check, examination):
        clock.advance_ms(60_001)
        released.wait(60)

    monkeypatch.setattr(ReplicasCheck, "findings", hang)
    try:
        (found,) = patient.findings("brokers", "replicas")
    finally:
        released.set()
    assert found.problem.code == "not-checked"
    assert found.message == "could not be checked (replicas): it has made no progress for 60 s"


def test_a_partition_that_hangs_is_given_up_and_the_others_are_looked_at(
    patient, cluster, monkeypatch
):
    now_s = [0.0]
    monkeypatch.setattr(daemon_pool, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    append(cluster, b"1", partition=1, age_ms=30 * 86_400_000)
    patient.clock.advance_ms(2 * 86_400_000)
    released = threading.Event()
    listed = LocalStore.list

    def hang(store, directory, start_after=None):
        if directory.endswith("/t-0"):
            released.wait(60)
        return listed(store, directory, start_after)

    monkeypatch.setattr(LocalStore, "list", hang)

    def on_progress(title, done, total):
        if (title, done) == ("Partitions", 1):  # the other one
            now_s[0] += 61

    try:
        found = list(patient.doctor("cleaning").findings(on_progress))
    finally:
        released.set()
    by_subject = {each.subject.text: each for each in found}
    assert codes(by_subject[name] for name in sorted(by_subject)) == [
        "not-checked",
        "retention-overdue",
    ]
    assert "the storage has not answered for 60 s" in by_subject["partition t-0"].message


def test_damaged_metadata_are_the_only_finding(patient):
    for path in Path(patient.root).glob("__cluster_metadata-0/*.log"):
        path.unlink()
    doctor = patient.doctor()
    (found,) = doctor.findings()
    assert (found.problem.code, found.severity) == ("root-unreadable", Severity.ERROR)
    assert "files were removed" in found.message
    assert found.command == "spark-log verify"
    assert {each.status for each in doctor.results.values()} == {CheckStatus.SKIPPED}


def test_of_many_findings_of_a_kind_the_rest_is_counted(tmp_path):
    root = str(tmp_path / "root")
    admin = Admin(root)
    admin.create_topics([NewTopic(f"t{number}") for number in range(5)])
    admin.fence_broker(0)
    doctor = Doctor(lambda: Cluster(root), checks=["replicas"], limits=Limits(findings=2))
    *shown, last = doctor.findings()
    assert codes(shown) == ["partition-offline"] * 2
    assert last.message == "3 more findings of the kind 'partition-offline' are not shown"
    assert doctor.counts[Severity.ERROR] == 5


def test_mistakes_are_raised(patient):
    with pytest.raises(UnknownTopicOrPartitionError):
        patient.findings(topics=["tt"])
    with pytest.raises(InvalidConfigurationError, match="did you mean brokers"):
        patient.doctor("broker")
