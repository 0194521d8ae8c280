"""``spark-log consume`` and the other jobs: they become ``spark-submit``."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from spark_log.cli.commands import submit
from tests.cli.support import PROJECT, spark_log_process

JOBS = Path(submit.__file__).parents[2] / "jobs"


@pytest.fixture
def started(monkeypatch):
    """The programs that commands became: arguments, and what they set in the environment."""
    programs = []

    def execve(program, arguments, environment):
        assert program == arguments[0]
        programs.append((arguments, environment))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    for name in ("SPARK_CONF_DIR", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return programs


@pytest.mark.parametrize("job", submit.JOBS)
def test_a_job_gets_its_arguments_and_spark_submit_its_own(shell, started, job):
    arguments = ["flights", "--root", "log", "--master", "local[3]", "--to-time=x", "--conf=a=b"]
    shell(job, *arguments)
    ((command, environment),) = started
    assert command[0].endswith("/bin/spark-submit")
    script = command.index(f"{JOBS}/{job}.py")
    assert command[script - 4 : script] == ["--master", "local[3]", "--conf", "a=b"]
    assert command[script + 1 :] == ["flights", "--root", "log", "--to-time=x"]
    assert environment["SPARK_CONF_DIR"] == str(PROJECT / "conf")
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert Path(command[0]).is_file()
    assert Path(command[script]).is_file()


@pytest.mark.parametrize(
    ("job", "arguments", "has_delta"),
    [
        ("consume", ["--to", "parquet"], False),
        ("replay", [], False),
        ("produce", ["--format=csv"], False),
        ("consume", ["--to", "delta"], True),
        ("replay", ["--to=delta"], True),
        ("produce", ["--format", "delta"], True),
        ("transform", [], True),  # its function may read a table
        ("reprocess", [], True),
    ],
)
def test_deltas_jars_are_looked_up_only_if_the_job_may_need_them(
    shell, started, job, arguments, has_delta
):
    shell(job, "flights", *arguments)
    ((command, _),) = started
    assert ("spark.jars.packages=" not in command) is has_delta


def test_settings_of_the_environment_stay(shell, started, monkeypatch):
    monkeypatch.setenv("SPARK_CONF_DIR", "mine")
    shell("replay", "flights")
    ((command, environment),) = started
    assert environment["SPARK_CONF_DIR"] == "mine"
    assert "--conf" not in command, "nor is Delta left out of them"


def test_help_is_the_jobs_and_starts_no_spark(shell, started):
    shell("consume", "--help")
    assert [arguments for arguments, _ in started] == [
        [sys.executable, f"{JOBS}/consume.py", "--help"]
    ]


def test_the_usage_of_a_job_is_what_the_user_types(tmp_path):
    process = spark_log_process("replay", "--help", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert out.startswith("Usage: spark-log replay [OPTIONS] {topic}\n"), err


def test_an_option_without_a_value_is_a_mistake(shell, started):
    outcome = shell("replay", "flights", "--master")
    assert (outcome.status, started) == (2, [])
    assert outcome.error == "--master needs a value"


def test_without_spark_it_says_what_to_install(shell, started, monkeypatch):
    monkeypatch.setattr(submit, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    outcome = shell("replay", "flights")
    assert (outcome.status, started) == (2, [])
    assert "pip install 'spark-log[spark]'" in outcome.error
