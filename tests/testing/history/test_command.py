"""``python -m spark_log.testing.history`` checks files and tells by its status what it found."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spark_log.testing.history import HistoryWriter
from spark_log.testing.history.__main__ import app
from tests.testing.history.operations import history, poll, send, transaction

SENDS = [("p", send("a", 0)), ("p", send("b", 1))]
SOUND = [*SENDS, ("c", poll((0, "a"), (1, "b")))]
LOSSY = [*SENDS, ("c", poll((1, "b")))]


@pytest.fixture
def check(tmp_path):
    def run(steps, *options):
        with HistoryWriter(tmp_path / "notes") as writer:
            for operation in history(*steps):
                writer.note(operation)
        return CliRunner().invoke(app, [str(tmp_path / "notes"), *options])

    return run


def test_a_sound_history_ends_with_status_0(check):
    result = check(SOUND)
    assert result.exit_code == 0
    assert result.stdout == "3 operations, 0 anomalies shown\n"


def test_an_anomaly_is_printed_and_ends_with_status_1(check):
    result = check(LOSSY)
    assert result.exit_code == 1
    assert result.stdout == (
        "lost-write: flights-0: 'a' was acknowledged at 0 and never polled, although offset 1 was "
        "(p/0, c/0)\n3 operations, 1 anomalies shown\n"
    )


def test_an_anomaly_that_is_allowed_is_printed_and_does_not_count(check):
    result = check(LOSSY, "--allow", "lost-write")
    assert result.exit_code == 0
    assert "[allowed]" in result.stdout


def test_json_is_an_object_for_each_finding(check):
    result = check(LOSSY, "--json")
    assert result.exit_code == 1
    (row,) = map(json.loads, result.stdout.splitlines())
    assert row["anomaly"] == "lost-write"
    assert row["operations"] == ["p/0", "c/0"]


def test_a_torn_line_is_told(check, tmp_path):
    check(SOUND)
    path = tmp_path / "notes"
    path.write_bytes(path.read_bytes() + b'{"process"')
    result = CliRunner().invoke(app, [str(path)])
    assert result.exit_code == 0
    assert "incomplete" in result.stderr


def test_a_file_that_is_no_history_ends_with_status_2(tmp_path):
    (tmp_path / "notes").write_text("no\n")
    result = CliRunner().invoke(app, [str(tmp_path / "notes")])
    assert result.exit_code == 2
    assert "line 1 is no operation" in result.stderr


def test_values_with_control_characters_are_printed_escaped(check):
    steps = [
        ("p", send("\x1b[2J", 0)),
        ("p\x1b", send("b", 1), transaction()),
        ("c", poll((1, "b"))),
    ]
    assert "\x1b" not in check(steps).stdout
    assert "\x1b" not in check(steps, "--json").stdout


def test_it_is_run_as_a_module(check, tmp_path):
    check(LOSSY)
    command = [sys.executable, "-m", "spark_log.testing.history", str(tmp_path / "notes")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout.startswith("lost-write")
