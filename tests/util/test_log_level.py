"""An operator turns on log lines by an environment variable; programs configure their own."""

import os
import subprocess
import sys

import pytest

from spark_log import Admin, NewTopic
from spark_log.util import LOG_LEVEL_VARIABLE


@pytest.fixture
def topics_list(tmp_path):
    """Return a function that runs ``spark-log topics list`` with a log level."""
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("flights", 1)])

    def run(level):
        return subprocess.run(
            [sys.executable, "-m", "spark_log", "topics", "list", "--root", root],
            env=os.environ | {LOG_LEVEL_VARIABLE: level},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_debug_lines_go_to_stderr(topics_list):
    ran = topics_list("debug")
    assert ran.returncode == 0
    assert "flights" in ran.stdout
    assert " DEBUG spark_log.metadata." in ran.stderr


@pytest.mark.parametrize("level", ["", "info", "WARNING"])
def test_a_command_is_silent_from_info_on(topics_list, level):
    ran = topics_list(level)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_level_that_does_not_exist_is_a_mistake_of_the_user(topics_list):
    ran = topics_list("loud")
    assert ran.returncode == 2
    assert ran.stderr == (
        "spark-log: error: the environment variable SPARK_LOG_LOG_LEVEL is 'loud', expected one of "
        "debug, info, warning, error\n"
    )
