"""``spark-log elect-leaders``: leaders are elected, and what cannot be done is told."""

import pytest

from spark_log.metadata import ConfigRecord
from tests.replication.support import Disks


@pytest.fixture
def disks(tmp_path, folder, monkeypatch):
    """Three roots; broker 2 leads both partitions of ``t``, in place of broker 1."""
    disks = Disks(tmp_path)
    disks.create(partitions=2, **{"min.insync.replicas": "1"})
    disks.send(b"one", b"two")
    for number in (0, 1):
        disks.leave(1, number=number)
    disks.replicate()
    assert disks.partition().isr == (2, 0, 1)
    monkeypatch.setenv("SPARK_LOG_ROOT", disks.root)
    return disks


def elect(shell, *argv, kind="preferred"):
    return shell("elect-leaders", "--election-type", kind, *argv)


def test_the_preferred_replicas_of_all_partitions_lead_again(shell, disks):
    outcome = elect(shell, "--all-topic-partitions")
    assert outcome.status == 0
    assert outcome.out == (
        "Successfully completed leader election (PREFERRED) for partitions t-0 (broker 1), "
        "t-1 (broker 1)\n"
    )
    assert disks.partition().leader == 1
    assert elect(shell, "--all-topic-partitions").out == ""


def test_one_partition_is_named_by_options(shell, disks):
    assert "t-1 (broker 1)" in elect(shell, "--topic", "t", "--partition", 1).out
    outcome = elect(shell, "--topic", "t", "--partition", 1)
    assert outcome.out == "Valid replica already elected for partitions t-1\n"


def test_partitions_are_named_by_a_file(shell, disks, folder):
    text = '{"partitions": [{"topic": "t", "partition": 0}]}'
    (folder / "partitions.json").write_text(text)
    document = elect(shell, "--path-to-json-file", "partitions.json", "--json").document
    assert document == {
        "election_type": "preferred",
        "elected": [{"topic": "t", "partition": 0, "leader": 1}],
        "not_needed": [],
        "failed": [],
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"partitions": [{"topic": "t"}]}', "is not of the form"),
        ("{", "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": true}]}', "is not a whole number"),
        ('{"partitions": [' + ", ".join(['{"topic": "t", "partition": 0}'] * 2) + "]}", "twice"),
    ],
)
def test_a_file_of_another_form_is_refused(shell, disks, folder, text, complaint):
    (folder / "partitions.json").write_text(text)
    assert complaint in elect(shell, "--path-to-json-file", "partitions.json").error


@pytest.mark.parametrize(
    "argv", [[], ["--topic", "t"], ["--all-topic-partitions", "--topic", "t", "--partition", 0]]
)
def test_one_way_to_name_partitions_is_given(shell, disks, argv):
    assert "which partitions? Give either" in elect(shell, *argv).error


def test_an_election_that_fails_is_told_and_is_the_exit_status(shell, disks):
    disks.leave(1)
    outcome = elect(shell, "--topic", "t", "--partition", 0)
    assert outcome.status == 1
    assert "error: partition t-0: broker 1, the preferred leader, is not in sync" in outcome.err


def test_an_unclean_election_tells_where_the_new_log_ends(shell, disks):
    disks.leave(0, 1)
    end_offset = disks.replica(0).observe().log_end_offset
    disks.send(b"three", b"four")
    for broker_id in (0, 1, 2):
        disks.admin.fence_broker(broker_id)
    disks.admin.unfence_broker(0)
    outcome = elect(shell, "--topic", "t", "--partition", 0, kind="unclean")
    assert "set unclean.leader.election.enable" in outcome.err
    allowed = ConfigRecord(
        resource_type="topic",
        resource_name="t",
        name="unclean.leader.election.enable",
        value="true",
    )
    disks.cluster().metadata.commit(lambda image: [allowed])
    outcome = elect(shell, "--topic", "t", "--partition", 0, "--json", kind="unclean")
    (elected,) = outcome.document["elected"]
    assert (elected["leader"], disks.partition().leader) == (0, 0)
    assert elected["log_end_offset"] == end_offset + 1  # with its barrier
    assert f"ends at offset {end_offset + 1}; if this replica was not in sync" in outcome.err
