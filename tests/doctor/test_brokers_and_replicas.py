"""Brokers that are away, emptied, swapped, fenced or leaving; partitions that lack replicas."""

import shutil
import threading
from types import SimpleNamespace

import pytest

from spark_log.cluster import Cluster
from spark_log.doctor import Doctor, Severity
from spark_log.doctor.examination import Examination
from spark_log.threads import daemon_pool
from tests.doctor.support import codes
from tests.replication.support import Disks


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path)


def look(disks, *checks, **options):
    return list(Doctor(disks.cluster, checks=checks, **options).findings())


def test_a_broker_whose_root_is_away(disks):
    disks.take_away(2)
    (found,) = look(disks, "brokers")
    assert (found.problem.code, found.subject.text) == ("broker-unreachable", "broker 2")
    assert "cannot be found (no meta.properties)" in found.message
    assert found.command == "spark-log brokers fence 2"


def test_looking_at_partitions_of_a_broker_that_is_away_changes_nothing(disks):
    """A reader of such a partition would take its replica out of the in-sync replicas."""
    disks.create(0, 1, 2)
    disks.create(2, topic="alone", **{"min.insync.replicas": "1"})
    disks.send(b"1", b"2")
    disks.take_away(2)
    before = sorted(disks.path(0).rglob("*"))
    found = list(Doctor(disks.cluster).findings())
    assert codes(found) == ["broker-unreachable"]
    assert sorted(disks.path(0).rglob("*")) == before
    assert disks.partition().isr == (0, 1, 2)


def test_a_broker_that_was_emptied_and_one_in_the_place_of_another(disks):
    shutil.rmtree(disks.path(1))
    shutil.copytree(disks.path(2), disks.path(1))
    (found,) = look(disks, "brokers")
    assert (found.problem.code, found.subject.broker) == ("broker-wrong-root", 1)
    assert "is the root of broker 2" in found.message


def test_a_broker_that_hangs_holds_up_no_other_check(disks, monkeypatch):
    released, now_s, calls = threading.Event(), [0.0], []
    monkeypatch.setattr(daemon_pool, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    check_broker, on_progress = Cluster.check_broker, Examination.on_progress

    def hang(cluster, broker_id):
        if broker_id == 1:
            released.wait(60)
        check_broker(cluster, broker_id)

    def count(examination):
        on_progress(examination)
        calls.append(1)
        now_s[0] += 61 * (len(calls) == 3)  # the check began, and the two others have answered

    monkeypatch.setattr(Cluster, "check_broker", hang)
    monkeypatch.setattr(Examination, "on_progress", count)
    try:
        found = look(disks, "brokers", "replicas")
    finally:
        released.set()
    assert [(each.problem.code, each.subject.broker) for each in found] == [
        ("broker-unreachable", 1)
    ]
    assert "has not answered for 60 s" in found[0].message


def test_brokers_that_are_fenced_and_leaving(disks):
    disks.create(1, 2)
    disks.admin.fence_broker(2)
    disks.admin.unregister_broker(1)
    fenced, leaving = sorted(look(disks, "brokers"), key=lambda each: each.problem.code)
    assert (fenced.problem.code, fenced.subject.broker) == ("broker-fenced", 2)
    assert fenced.command == "spark-log brokers unfence 2"
    assert (leaving.problem.code, leaving.subject.broker) == ("broker-leaving", 1)
    assert "still has 1 replicas" in leaving.message


def test_partitions_without_a_leader_and_without_enough_replicas(disks):
    disks.create(1, 2, 0, topic="three", **{"min.insync.replicas": "3"})
    disks.create(1, 2, 0, topic="two")
    disks.create(2, topic="one", **{"min.insync.replicas": "1"})
    disks.admin.fence_broker(2)
    found = {each.subject.topic: each for each in look(disks, "replicas")}
    assert found["one"].problem.code == "partition-offline"
    assert (
        found["one"].message
        == "1 of 1 partitions (0) have no leader: no producer can write to them"
    )
    assert found["three"].problem.code == "partition-under-min-isr"
    assert found["three"].severity is Severity.ERROR
    assert found["two"].problem.code == "partition-under-replicated"
    assert found["two"].command == "spark-log replicate two"
    assert found["two"].evidence == "the metadata; not in sync are replicas on brokers 2"


def test_a_leader_that_is_not_the_preferred_one(disks):
    disks.create(1, 2, 0)
    disks.admin.fence_broker(1)
    disks.admin.unfence_broker(1)
    assert disks.partition().leader == 2
    found = {each.problem.code: each for each in look(disks, "replicas")}
    assert found.keys() == {"partition-under-replicated", "leader-not-preferred"}
    assert found["leader-not-preferred"].severity is Severity.INFO


def test_only_the_wanted_topics_are_looked_at(disks):
    disks.create(1, 2, topic="a")
    disks.create(1, 2, topic="b")
    disks.admin.fence_broker(2)
    found = look(disks, "replicas", topics=["b"])
    assert [each.subject.topic for each in found] == ["b"]
