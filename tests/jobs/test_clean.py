"""Cleaning by Spark: each partition is cleaned once, and reported."""

import json
import socket
import subprocess
import sys
import time

import pytest
from deltalake import DeltaTable

from spark_log import Admin, ConfigResource, NewTopic, StorageError, TopicPartition
from spark_log.cluster import Cluster
from spark_log.jobs.task.cleaning_task import CleaningTask
from spark_log.log import PartitionLog
from spark_log.log.files.file_names import SegmentName
from spark_log.table import TopicTable
from spark_log.testing.spark import spark
from tests.cli.support import begin_dead_transaction
from tests.datasource.reading import fill, log_of, records
from tests.jobs.conftest import ENVIRONMENT, HOME, report, reported

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.long]

NOW_US = time.time_ns() // 1000


@pytest.fixture
def root(tmp_path):
    """A topic with many small segments, one with old records, a compacted and a deleted one."""
    url = str(tmp_path / "root")
    admin = Admin(url)
    none = {"merge.tail.segments": "0", "file.delete.delay.ms": "0"}
    admin.create_topics(
        [
            NewTopic("small", 2, topic_configs=none),
            NewTopic("old", topic_configs=none | {"retention.ms": "3600000"}),
            NewTopic("table", topic_configs=none | {"cleanup.policy": "compact"}),
            NewTopic("gone", topic_configs=none),
        ]
    )
    for topic, count in (("small", 20), ("table", 20)):
        for number in range(count):
            log_of(url, topic).append(records([number], [NOW_US]))
    fill(url, "old", 0, range(10), segments=2)  # of 2013
    late = log_of(url, "gone")
    admin.delete_topics(["gone"])
    late.append(records([0]))  # by a writer that does not know of the deletion
    return url


def segments(root, topic, partition=0):
    return len(log_of(root, topic, partition).observe().live.segments)


def rows(root, topic):
    return [row for batch in log_of(root, topic).scan(0) for row in batch.records.to_pylist()]


def test_cleans_every_partition_of_a_root(submit, root):
    planned = report(submit("clean.py", "--root", root, "--dry-run", "--json"))
    assert (planned["partitions"], planned["dirty"]) == (4, 3)
    assert planned["deleted_topics"] == 1
    assert segments(root, "small") == 20, "a dry run changes nothing"

    done = report(submit("clean.py", "--root", root, "--json"))
    assert (done["expired_segments"], done["merged_segments"] >= 20) == (2, True)
    assert (done["compacted_records"], done["kept_records"]) == (19, 1)
    assert segments(root, "small") < 20
    assert [row["value"] for row in rows(root, "small")] == [b"%d" % each for each in range(20)]
    assert log_of(root, "old").observe().log_start_offset == 10
    assert [row["value"] for row in rows(root, "table")] == [b"18", b"19"], (
        "the active segment is not compacted"
    )
    assert done["deleted_topics"] == 1
    assert not any("error" in each for each in done["by_partition"])

    again = report(submit("clean.py", "--root", root, "--json"))
    assert (again["expired_segments"], again["merged_segments"]) == (0, 0)
    assert (again["compacted_records"], again["deleted_topics"]) == (0, 0)


def test_a_damaged_partition_is_told_and_the_others_are_cleaned(submit, root, tmp_path):
    log = log_of(root, "small")
    path = tmp_path / "root" / log.files.file_path(SegmentName(3).file_name)
    path.write_bytes(path.read_bytes()[:-20])
    done = submit("clean.py", "small", "old", "--root", root, "--json")
    assert done.returncode == 1
    assert '"small-0"' in done.stdout
    assert log_of(root, "old").observe().log_start_offset == 10


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_a_clock_far_from_the_storages_is_told_before_spark_starts(root, arguments):
    """With max.clock.skew.ms=0 the clock of this machine is always too far off."""
    Admin(root).alter_configs([ConfigResource("broker", "", {"max.clock.skew.ms": "0"})])
    command = [sys.executable, HOME / "jobs/clean.py", "--root", root, "--json", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "max.clock.skew.ms (0 ms)" in json.loads(done.stdout)["error"]
    assert done.stderr.count("\n") == 1
    assert "max.clock.skew.ms (0 ms)" in done.stderr
    assert segments(root, "small") == 20
    assert segments(root, "old") == 2


def test_the_clock_of_a_machine_that_runs_tasks_counts_as_well(root):
    Admin(root).alter_configs([ConfigResource("broker", "", {"max.clock.skew.ms": "0"})])
    work = CleaningTask(root, {}, {}, 2**20)
    for answer in (work.plan(TopicPartition("old", 0)), work.clean(TopicPartition("old", 0))):
        assert socket.gethostname() in answer["error"]
        assert "max.clock.skew.ms (0 ms)" in answer["error"]
    assert segments(root, "old") == 2


def test_mistakes_are_one_line_before_spark_starts(root):
    for argv, said in (
        (["nosuch"], "nosuch"),
        (["--max-bytes-per-second", "0"], "max-bytes-per-second"),
    ):
        command = [sys.executable, HOME / "jobs/clean.py", "--root", root, *argv]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert Cluster(root).topic("small")


@pytest.mark.usefixtures("spark")
def test_dead_transactions_are_aborted_unless_topics_are_named(job, root):
    coordinator, _ = begin_dead_transaction(root, "orders", TopicPartition("small", 0))
    abort = [{"transactional_id": "orders", "action": "abort"}]
    assert reported(job("clean", "--dry-run", "--json"))["by_transactional_id"] == abort
    assert reported(job("clean", "small", "--json"))["transactional_ids"] == 0
    assert coordinator.refresh().state == "Ongoing"

    done = reported(job("clean", "--json"))

    assert (done["transactional_ids"], done["by_transactional_id"]) == (1, abort)
    assert coordinator.refresh().state == "CompleteAbort"
    assert reported(job("clean", "--json"))["transactional_ids"] == 0


@pytest.mark.usefixtures("spark")
def test_a_transaction_whose_marker_cannot_be_put_is_told(job, root, monkeypatch):
    begin_dead_transaction(root, "orders", TopicPartition("small", 0))

    def fail(self, markers):
        raise StorageError("not there")

    monkeypatch.setattr(PartitionLog, "append_markers", fail)
    status, out, _ = job("clean", "--json")
    assert status == 1
    assert json.loads(out)["failed"] == {"transactional id orders": "not there"}


@pytest.mark.usefixtures("spark")
def test_stripes_are_taken_home_before_the_partitions_are_cleaned(job, root):
    configs = {"stripes": "2", "retention.ms": "-1", "merge.tail.segments": "0"}
    Admin(root).create_topics([NewTopic("striped", 3, topic_configs=configs)])
    for partition in range(3):
        fill(root, "striped", partition, range(4), segments=4)
    planned = reported(job("clean", "striped", "--dry-run", "--json"))
    assert (planned["stripes"], planned["taken_home_objects"]) == (2, 12)
    done = reported(job("clean", "striped", "--json"))
    assert (done["stripes"], done["taken_home_objects"]) == (2, 12)
    assert [each["log_end_offset"] for each in done["by_partition"]] == [4] * 3
    assert [(each["topic"], each["stripe"]) for each in done["by_stripe"]] == [
        ("striped", 0),
        ("striped", 1),
    ]
    assert [row["value"] for row in rows(root, "striped")] == [b"0", b"1", b"2", b"3"]


def test_converts_a_topic_that_is_a_table(submit, root):
    admin = Admin(root)
    config = {
        "table.format": "delta",
        "table.commit.interval.ms": "0",
        "file.delete.delay.ms": "10000",
    }
    admin.alter_configs([ConfigResource("topic", "small", config)])
    done = report(submit("clean.py", "small", "--root", root, "--json"))
    assert (done["parquet_offsets"], done["table_offsets"]) == (20, 20)
    cluster = Cluster(root)
    table = TopicTable(cluster.store, cluster.image().topic("small"), cluster.clock)
    assert table.refresh().ends() == {0: 20, 1: 0}
    assert DeltaTable(table.url).to_pyarrow_table().num_rows == 20

    admin.alter_configs([ConfigResource("topic", "small", {"table.format": "none"})])
    again = report(submit("clean.py", "small", "--root", root, "--json"))
    assert "table_offsets" not in again
    assert not table.refresh().is_on
    assert [row["value"] for row in rows(root, "small")] == [b"%d" % each for each in range(20)]
