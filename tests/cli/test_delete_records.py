"""``spark-log delete-records``: records before an offset, by partition or by a file of Kafka's."""

import json
import os
import pty

import pytest

from tests.cli.support import append, partition_log, spark_log_process


@pytest.fixture(autouse=True)
def records(root):
    append(root, "flights", b"0", b"1", b"2")
    append(root, "flights", b"0", b"1", partition=1)


def starts(root):
    return [partition_log(root, "flights", number).observe().log_start_offset for number in (0, 1)]


def write(folder, *partitions, version=1):
    names = ("topic", "partition", "offset")
    listed = [dict(zip(names, each, strict=True)) for each in partitions]
    (folder / "offsets.json").write_text(json.dumps({"partitions": listed, "version": version}))


def test_records_before_the_offset_are_gone_from_each_partition(shell, root):
    outcome = shell("delete-records", "flights", "--before-offset", "2", "--yes")
    assert (outcome.status, outcome.err) == (0, "")
    assert [line.split() for line in outcome.lines] == [
        ["TOPIC", "PARTITION", "LOW", "WATERMARK"],
        ["flights", "0", "2"],
        ["flights", "1", "2"],
    ]
    assert starts(root) == [2, 2]


def test_one_partition_can_be_named_and_emptied(shell, root):
    argv = ["flights", "--partition", "0", "--before-offset", "-1", "--json"]
    document = shell("delete-records", *argv, "--yes").document
    assert document == {"partitions": [{"topic": "flights", "partition": 0, "low_watermark": 3}]}
    assert starts(root) == [3, 0]


def test_a_file_of_kafkas_form_names_several(shell, root, folder):
    write(folder, ("flights", 0, 1), ("flights", 1, -1))
    assert shell("delete-records", "--offset-json-file", "offsets.json", "--yes").status == 0
    assert starts(root) == [1, 2]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["flights"], "which records? Give TOPIC and --before-offset"),
        (["--before-offset", "1"], "which records?"),
        (["flihgts", "--before-offset", "1"], "did you mean flights?"),
        (["flights", "--before-offset", "3"], "flights-1: records cannot be deleted before"),
        (["flights", "--before-offset", "-2"], "give 0 to 3, or -1 for all records"),
        (["flights", "--partition", "2", "--before-offset", "1"], "has no partition 2"),
        (["--offset-json-file", "no.json"], "'no.json' does not exist"),
        (["flights", "--offset-json-file", "offsets.json"], "give no others with"),
    ],
)
def test_mistakes_delete_nothing(shell, root, folder, argv, message):
    write(folder, ("flights", 0, 1))
    outcome = shell("delete-records", *argv, "--yes")
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error
    assert starts(root) == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flights 0 1", "offsets.json is not of the form"),
        ("[]", "is not of the form"),
        ('{"version": 1}', "KeyError 'partitions'"),
        ('{"partitions": [{"topic": "flights", "partition": 0}]}', "KeyError 'offset'"),
        (
            '{"partitions": [{"topic": "flights", "partition": 0, "offset": "1"}]}',
            "'1' is not a whole number",
        ),
        ('{"partitions": [], "version": 2}', "is of version 2, expected 1"),
        (
            '{"partitions": [{"topic": "flights", "partition": 0, "offset": 1}, '
            '{"topic": "flights", "partition": 0, "offset": 2}]}',
            "names flights-0 twice",
        ),
    ],
)
def test_a_file_of_another_form_deletes_nothing(shell, root, folder, text, message):
    (folder / "offsets.json").write_text(text)
    outcome = shell("delete-records", "--offset-json-file", "offsets.json", "--yes")
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error
    assert starts(root) == [0, 0]


def test_without_a_terminal_it_takes_yes(shell, root, folder):
    write(folder, ("flights", 0, 1))
    for argv in (["flights", "--before-offset", "2"], ["--offset-json-file", "offsets.json"]):
        outcome = shell("delete-records", *argv, "--json", stdin=b"y\n")
        assert (outcome.status, outcome.out) == (2, "")
        assert "Nothing was deleted, because stdin is not a terminal" in outcome.error
    assert starts(root) == [0, 0]


@pytest.mark.parametrize(("typed", "start"), [(b"n\n", 0), (b"y\n", 2)], ids=["no", "yes"])
def test_a_terminal_is_asked_first(root, folder, typed, start):
    primary, secondary = pty.openpty()
    os.write(primary, typed)
    argv = ["delete-records", "flights", "--before-offset", "2", "--root", root]
    process = spark_log_process(*argv, cwd=folder, stdin=secondary)
    os.close(secondary)
    _, err = process.communicate(timeout=60)
    os.close(primary)
    assert "Delete records of 2 partitions?" in err
    assert process.returncode == (0 if start else 1)
    assert starts(root) == [start, start]
