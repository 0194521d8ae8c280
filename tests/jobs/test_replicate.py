"""Replicating by Spark: each replica that is not in sync comes back once, and is reported."""

import json

import pytest
from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator

from spark_log.jobs.task import ReplicationTask
from spark_log.testing.spark import spark
from spark_log.types import TopicPartition
from tests.jobs.conftest import report
from tests.replication.support import Disks, values_of

__all__ = ["spark"]


@pytest.fixture
def disks(tmp_path):
    """Three roots; broker 2 was emptied."""
    disks = Disks(tmp_path)
    disks.create(partitions=2)
    disks.send(b"one", b"two", b"three")
    disks.wipe(2)
    return disks


@pytest.mark.spark
@pytest.mark.long
def test_brings_every_replica_of_a_root_back(submit, disks):
    done = report(submit("replicate.py", "--root", disks.root, "--json"))
    assert (done["partitions"], done["replicas"], done["in_sync"]) == (2, 2, 2)
    assert done["copied_segments"] > 3
    assert [each["broker"] for each in done["by_replica"]] == [2, 2]
    assert {disks.partition(number=number).isr for number in (0, 1)} == {(1, 0, 2)}
    assert values_of(disks.replica(2)) == [b"one", b"two", b"three"]
    again = report(submit("replicate.py", "--root", disks.root, "--json"))
    assert (again["partitions"], again["copied_bytes"]) == (0, 0)


def test_a_task_tells_why_a_replica_did_not_come_back(disks):
    disks.admin.fence_broker(2)
    task = ReplicationTask(disks.root, {}, {})
    (result,) = task.catch_up(TopicPartition("t", 0))["replicas"]
    assert "broker 2 is fenced" in result["error"]
    assert task.catch_up(TopicPartition("deleted", 0)) == {"replicas": []}


def test_a_task_counts_the_bytes_that_it_has_copied(disks):
    copied = Accumulator(1000, 0, INT_ACCUMULATOR_PARAM)
    (result,) = ReplicationTask(disks.root, {}, {}, copied_bytes=copied).catch_up(
        TopicPartition("t", 0)
    )["replicas"]
    assert copied.value == result["copied_bytes"] > 0


def test_a_task_shows_no_storage_option():
    task = ReplicationTask("/data", {"secret": "s3cr3t"}, {1: {"secret": "s3cr3t"}})
    assert "s3cr3t" not in repr(task)


@pytest.mark.spark
@pytest.mark.long
def test_a_controller_brings_replicas_back_in_spark_tasks(submit, disks):
    done = submit("controller.py", "--root", disks.root, "--once", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    expanded = [each for each in lines if each["action"] == "expand the isr"]
    assert sorted(each["partition"] for each in expanded) == [0, 1]
    assert {disks.partition(number=number).isr for number in (0, 1)} == {(1, 0, 2)}
    assert values_of(disks.replica(2)) == [b"one", b"two", b"three"]
