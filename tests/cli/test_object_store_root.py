"""The command line on a root on an object store."""

import pytest

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


def test_a_topic_is_made_written_read_and_deleted(spark_log, s3_server, tmp_path):
    root = f"{s3_server.new_bucket()}/some/root"
    options = s3_server.storage_options
    lines = [f"storage.{key}={value}" for key, value in options.items()]
    (tmp_path / "spark-log.properties").write_text("\n".join([f"root={root}", *lines]))

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
    assert error.count("\n") == 1
