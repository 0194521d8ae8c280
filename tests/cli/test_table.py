"""``spark-log table``: describe, verify and rebuild."""

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
    assert "has no table yet: the next spark-log clean sky makes it" in none.err
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
    for command in ("describe", "verify"):
        answer = shell("table", command, "plain")
        assert answer.status == 2
        assert "spark-log configs alter plain --add-config table.format=delta" in answer.err
    assert "has no table to rebuild" in shell("table", "rebuild", "plain").err
