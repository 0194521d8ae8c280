"""``spark-log replicate``: replicas that are not in sync come back."""

import pytest

from spark_log import Admin, ConfigResource
from tests.replication.support import Disks


@pytest.fixture
def disks(tmp_path, folder, monkeypatch):
    """Three roots; broker 2 is not in sync with the topic ``t``."""
    disks = Disks(tmp_path)
    disks.create()
    disks.send(b"one", b"two", b"three")
    disks.wipe(2)
    monkeypatch.setenv("SPARK_LOG_ROOT", disks.root)
    return disks


def test_a_replica_comes_back(shell, disks):
    outcome = shell("replicate")
    assert outcome.status == 0
    assert [line.split() for line in outcome.lines] == [
        ["TOPIC", "PARTITION", "BROKER", "STATE", "DIRECTORY", "SEGMENTS", "BYTES"],
        ["t", "0", "2", "in", "sync", "1", "4", outcome.lines[1].split()[-1]],
    ]
    assert disks.partition().isr == (1, 0, 2)
    assert shell("replicate", "--json").document == {"dry_run": False, "replicas": []}


def test_a_replica_that_came_back_is_a_document(shell, disks):
    (document,) = shell("replicate", "t", "--broker", 2, "--json").document["replicas"]
    assert document.pop("copied_bytes") > 0
    assert document == {
        "topic": "t",
        "partition": 0,
        "broker": 2,
        "in_sync": True,
        "directory": 1,  # the root was emptied
        "copied_segments": 4,
    }


def test_a_dry_run_shows_it_and_changes_nothing(shell, disks):
    assert shell("replicate", "--dry-run", "--json").document == {
        "dry_run": True,
        "replicas": [{"topic": "t", "partition": 0, "broker": 2}],
    }
    assert disks.partition().isr == (1, 0)


def test_other_topics_and_brokers_are_left_alone(shell, disks):
    for argv in (["first"], ["--broker", 1]):
        assert shell("replicate", *argv, "--json").document["replicas"] == []


def test_the_exit_status_tells_that_a_replica_did_not_come_back(shell, disks):
    disks.admin.fence_broker(2)
    outcome = shell("replicate")
    assert outcome.status == 1
    assert "error: t-0-2: broker 2 is fenced; unfence it" in outcome.err
    assert "error" in shell("replicate", "--json").document["replicas"][0]


@pytest.mark.parametrize("by", ["option", "config"])
def test_the_rate_is_given_or_the_clusters(shell, disks, by, monkeypatch):
    rates: list[float] = []
    monkeypatch.setattr("spark_log.replication.cluster_recovery.Throttle", rates.append)
    resource = ConfigResource("broker", "", {"replication.throttled.rate": 5000})
    Admin(disks.root).alter_configs([resource])
    shell("replicate", "--dry-run", *(["--throttle", 7000] if by == "option" else []))
    assert rates == [7000 if by == "option" else 5000]


@pytest.mark.parametrize("rate", [0, -5, "nan", "fast"])
def test_the_rate_is_a_positive_number(shell, disks, rate):
    outcome = shell("replicate", "--throttle", rate)
    assert outcome.status == 2
    assert "Invalid value for '--throttle'" in outcome.error
    assert disks.partition().isr == (1, 0)
