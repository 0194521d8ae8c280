"""``spark-log table``: convert, describe, verify and rebuild."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic, Producer


@pytest.fixture
def table(root):
    """The directory of a topic that is a table, with 100 records."""
    url = str(root)
    Admin(url).create_topics(
        [NewTopic("sky", num_partitions=2, topic_configs={"table.format": "delta"})]
    )
    with Producer(url) as producer:
        for at in range(100):
            producer.send("sky", value=b"%d" % at, partition=at % 2)
    (directory,) = Path(url).glob("sky.*")
    return directory


def test_a_table_is_described_verified_and_made_anew(shell, table):
    none = shell("table", "describe", "sky")
    assert none.status == 2
    assert "has no table yet: spark-log table convert sky makes it" in none.err
    assert shell("clean", "sky").status == 0
    found = shell("table", "describe", "sky", "--output", "json").document
    assert found["location"] == str(table)
    assert found["version"] == 1
    assert found["ends"] == {"0": 50, "1": 50}
    assert [each["rows"] for each in found["partitions"]] == [50, 50]
    shown = shell("table", "describe", "sky").out.splitlines()
    assert shown[0] == f"Location: {table}"
    assert shown[3].split() == ["sky", "0", "0", "50", "1", shown[3].split()[5], "50"]
    checked = shell("table", "verify", "sky")
    assert (checked.status, checked.out) == (0, "Version 1, 2 partitions: 0 differences\n")
    (table / "_delta_log" / f"{1:020}.json").write_text("{")
    damaged = shell("table", "verify", "sky")
    assert damaged.status == 1
    assert "make its Delta log anew: spark-log table rebuild" in damaged.err
    rebuilt = shell("table", "rebuild", "sky", "--output", "json").document
    assert rebuilt["ends"] == {"0": 50, "1": 50}
    assert shell("table", "verify", "sky").status == 0


def test_differences_are_shown(shell, table):
    shell("clean", "sky")
    (file,) = table.glob("sky-1/*.parquet")
    file.unlink()
    found = shell("table", "verify", "sky", "--partition", "1")
    assert found.status == 1
    assert found.out.startswith("file: sky-1: ")
    assert file.name in found.out
    document = shell("table", "verify", "sky", "--output", "json").document
    assert document["count"] == 1
    assert document["findings"][0]["kind"] == "file"


def test_a_topic_that_is_no_table(shell, root):
    Admin(str(root)).create_topics([NewTopic("plain")])
    on = "turn it on with spark-log configs alter plain --add-config table.format=delta"
    for command in ("convert", "describe", "verify"):
        answer = shell("table", command, "plain")
        assert answer.status == 2
        assert answer.err.count("\n") == 1
        assert on in answer.err
    assert "has no table to rebuild" in shell("table", "rebuild", "plain").err
    assert shell("configs", "alter", "plain", "--add-config", "table.format=delta").status == 0
    assert shell("table", "convert", "plain").status == 0


def test_a_topic_is_converted(shell, table):
    document = shell("table", "convert", "sky", "--output", "json").document
    assert (document["location"], document["version"]) == (str(table), 2), "one for each partition"
    assert document["ends"] == {"0": 50, "1": 50}
    assert (document["table_offsets"], document["parquet_offsets"]) == (100, 100)
    again = shell("table", "convert", "sky")
    assert again.out.splitlines() == [
        f"Location: {table}",
        "Version: 2    Table: follows cleanup.policy=delete, 2 files",
        "100 of 100 offsets (100.0%) are in Parquet files",
    ]
    assert shell("table", "verify", "sky").status == 0


def test_one_partition_is_converted_alone(shell, table):
    document = shell("table", "convert", "sky", "--partition", "1", "--json").document
    assert document["ends"] == {"0": 0, "1": 50}
    assert (document["table_offsets"], document["parquet_offsets"]) == (100, 50)


def test_a_partition_that_cannot_be_converted_is_named(shell, table):
    (file,) = table.glob("sky-1/*.log")
    file.write_bytes(file.read_bytes()[:-100])
    answer = shell("table", "convert", "sky", "--json")
    assert answer.status == 1
    assert "error: sky-1: " in answer.err
    assert answer.document["ends"] == {"0": 50, "1": 0}
    (failure,) = answer.document["failed"]
    assert failure.startswith("sky-1: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing"], "missing"),
        (["sky", "--partition", "7"], "7"),
        (["sky", "--threads", "0"], "--threads"),
        (["sky", "--max-bytes-per-second", "0"], "--max-bytes-per-second"),
    ],
)
def test_a_mistake_is_refused_and_changes_nothing(shell, table, options, message):
    answer = shell("table", "convert", *options)
    assert answer.status == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert not (table / "_delta_log").exists()
