"""The command line on a root on an object store."""

import json
import time
from typing import Any

import pytest

from spark_log import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.cli.support import spark_log_process


@pytest.fixture
def spark_log(tmp_path):
    """Run a command as a process of its own in an empty directory, and return what it printed."""

    def run(*argv, stdin="", status=0):
        process = spark_log_process(*argv, cwd=tmp_path)
        out, err = process.communicate(stdin, timeout=120)
        assert process.returncode == status, err
        return out if status == 0 else err

    return run


@pytest.fixture
def root(s3_server, tmp_path):
    """A root in a new bucket, which the properties file of the directory names."""
    root = f"{s3_server.new_bucket()}/some/root"
    lines = [f"storage.{key}={value}" for key, value in s3_server.storage_options.items()]
    (tmp_path / "spark-log.properties").write_text("\n".join([f"root={root}", *lines]))
    return root


@pytest.mark.long
def test_a_topic_is_made_written_read_and_deleted(spark_log, root):
    spark_log("topics", "create", "events", "--partitions", "2")
    assert "events" in spark_log("topics", "list")
    spark_log(
        "console-producer", "events", "--key-separator", ":", stdin="alice:1\nbob:2\ncarol:3\n"
    )
    command = ("console-consumer", "events", "--from-beginning", "--max-messages", "3")
    assert sorted(spark_log(*command).split()) == ["1", "2", "3"]
    assert root in spark_log("log-dirs")
    spark_log("topics", "delete", "events", "--yes")
    assert "events" not in spark_log("topics", "list")


def test_a_group_shares_a_topic_and_is_described_and_reset(spark_log, s3_server, root):
    options = s3_server.storage_options
    admin = Admin(root, storage_options=options)
    admin.create_topics([NewTopic("t", 2)])
    with Producer(root, storage_options=options) as producer:
        for number in range(20):
            producer.send("t", b"%d" % number, partition=number % 2)

    def consumer(name):
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200}
        return Consumer(
            "t",
            root=root,
            storage_options=options,
            group_id="g",
            client_id=name,
            max_poll_records=3,
            **settings,
        )

    a, b = consumer("a"), consumer("b")
    seen: set[object] = set()

    def poll_until(is_done, *consumers):
        deadline = time.monotonic() + 100
        while not is_done():
            assert time.monotonic() < deadline
            for each in consumers:
                found = each.poll(50)
                seen.update(record.value for some in found.values() for record in some)

    poll_until(lambda: len(a.assignment()) == len(b.assignment()) == 1, a, b)
    assert a.assignment() != b.assignment()
    (group,) = json.loads(spark_log("groups", "describe", "g", "--json"))["groups"]
    assert {each["client_id"] for each in group["partitions"]} == {"a", "b"}
    b.close()
    poll_until(lambda: len(a.assignment()) == 2 and len(seen) == 20, a)
    assert seen == {b"%d" % number for number in range(20)}
    a.close()
    (group,) = json.loads(spark_log("groups", "describe", "g", "--json"))["groups"]
    assert [(each["current_offset"], each["lag"]) for each in group["partitions"]] == [(10, 0)] * 2
    spark_log("groups", "reset-offsets", "g", "--shift-by", "-4", "--all-topics", "--execute")
    assert [each.lag for each in admin.group_lag("g")] == [4, 4]


def test_options_may_stand_on_the_command_line(spark_log, s3_server):
    root = s3_server.new_bucket()
    pairs = [f"{key}={value}" for key, value in s3_server.storage_options.items()]
    options = [word for pair in pairs for word in ("--storage-option", pair)]
    spark_log("topics", "create", "events", "--root", root, *options)
    assert "events" in spark_log("topics", "list", "--root", root, *options)


def test_a_wrong_option_is_named_and_its_value_is_not_shown(spark_log):
    error = spark_log(
        *("topics", "list", "--root", "s3://bucket/root"),
        *("--storage-option", "secrt=pa55word"),
        status=2,
    )
    assert "unknown storage option 'secrt' for s3; did you mean 'secret'?" in error
    assert "pa55word" not in error
    assert error.count("\n") == 1


def test_wrong_credentials_are_one_line(spark_log, s3_server):
    root = s3_server.new_bucket()
    options = {**s3_server.storage_options, "secret": "pa55word"}
    pairs = [f"{key}={value}" for key, value in options.items()]
    words = [word for pair in pairs for word in ("--storage-option", pair)]
    error = spark_log("topics", "list", "--root", root, *words, status=2)
    assert "check the credentials" in error
    assert "pa55word" not in error
    warning, _, error = error.partition("\n")
    assert warning.startswith("warning: every user of this machine sees the value of")
    assert error.count("\n") == 1


def test_topics_and_groups_are_shown_live(spark_log, s3_server, root):
    options = s3_server.storage_options
    admin = Admin(root, storage_options=options)
    admin.create_topics([NewTopic("t", 2)])
    with Producer(root, storage_options=options) as producer:
        for number in range(20):
            producer.send("t", b"%d" % number, partition=number % 2)
    admin.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(4)})
    shown = spark_log("top", "--iterations", "2", "--interval", "0.1", "--json").splitlines()
    for document in map(json.loads, shown):
        (topic,), (group,) = document["topics"], document["groups"]
        assert (topic["log_end_offsets"], group["lag"]) == ([10, 10], 6)
    assert (topic["records_per_second"], group["records_per_second"]) == (0, 0)
