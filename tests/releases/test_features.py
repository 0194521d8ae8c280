"""A finalized feature stops clients that do not know it, also those that are running."""

import json
from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.errors import UnsupportedVersionError
from spark_log.metadata.features import FEATURES, TABLE_VERSION
from tests.releases.conftest import NEWEST_IS_QUICK
from tests.releases.old_client import TOPIC


def next_fact(process):
    return json.loads(process.stdout.readline())


def error_of(process):
    """Return the error with which a client stopped by itself."""
    answer, errors = process.communicate(timeout=120)
    facts = [json.loads(line) for line in answer.splitlines()]
    assert process.returncode == 0, errors
    return facts[-1]["message"]


@pytest.mark.parametrize("name", NEWEST_IS_QUICK)
def test_running_clients_of_an_old_release_stop(releases, tmp_path, name):
    old, root = releases[name], tmp_path / "log"
    old.client("create", root)
    producer = old.start("produce", root, name="old")
    consumer = old.start("consume", root, group="old")
    assert "offset" in next_fact(producer)
    assert "read" in next_fact(consumer)

    Admin(root).update_features({"table.version": 1})

    for process in (producer, consumer):
        assert "newer than this spark-log; upgrade it" in error_of(process)


@pytest.mark.parametrize("name", NEWEST_IS_QUICK)
def test_commands_of_an_old_release_refuse_and_change_nothing(releases, tmp_path, name):
    old, root = releases[name], tmp_path / "log"
    old.client("create", root)
    Admin(root).update_features({"table.version": 1})
    before = contents(root)
    for command in (
        ["clean", TOPIC],
        ["verify"],
        ["delete-records", TOPIC, "--before-offset", "50", "--yes"],
    ):
        done = old.command(*command, "--root", root)
        assert done.returncode != 0, command
        assert "upgrade it" in done.stdout + done.stderr
    assert contents(root) == before


def contents(root):
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files}


def test_the_present_release_names_the_release_that_knows_a_level(monkeypatch, tmp_path):
    root = str(tmp_path / "log")
    Admin(root).create_topics([NewTopic("flights")])
    later = replace(TABLE_VERSION, name="stripes.version", releases=("9.0.0", "9.1.0"))
    with monkeypatch.context() as patched:
        patched.setitem(FEATURES, later.name, later)
        Admin(root).update_features({"stripes.version": 2})
    for use in (Admin(root).list_topics, lambda: Producer(root=root).partitions_for("flights")):
        with pytest.raises(UnsupportedVersionError) as raised:
            use()
        assert raised.value.release == "9.1.0"
        assert raised.value.level == 2
        assert "spark-log 9.1.0 and later" in str(raised.value)
