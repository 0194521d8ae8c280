"""Pages whose commands and programs run in an empty folder, and print what the pages show."""

import logging
import re
import sys

import pytest

from tests.docs.blocks import PROJECT, blocks
from tests.site.following import Follower

ORDERS = "alice:2 apples\nbob:1 pear\n"


@pytest.fixture
def follower(shell, folder, capsys, monkeypatch):
    return Follower(shell, capsys, monkeypatch)


def test_concepts(follower):
    follower.follow(blocks("docs/concepts.md"))


def test_consumer_groups(follower):
    follower.follow(blocks("docs/consumer-groups.md")[:3])


def test_stripes(follower):
    follower.follow(blocks("docs/stripes.md"))


def test_quorum(follower, folder):
    follower.replace = {"/home/ada": str(folder)}
    follower.follow(blocks("docs/quorum.md"))


@pytest.fixture
def log_level():
    """Sets the level of the package's logger back after a test."""
    logger = logging.getLogger("spark_log")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.long
def test_operations(follower, log_level):
    command = f'PYTHONPATH="debug:$PYTHONPATH" {sys.executable} -m spark_log'
    follower.replace = {"PYTHONPATH=debug spark-log": command}
    # The text blocks are excerpts of logs, which tests/producer/test_log_lines.py checks.
    follower.follow([each for each in blocks("docs/operations.md") if each.language != "text"])


def test_the_commands_for_symptoms_work(follower, folder):
    page = "docs/operations.md"
    first = blocks("docs/operations.md")[0]
    follower.follow([first])
    text = (PROJECT / page).read_text("utf-8").partition("## A symptom")[2].partition("\n## ")[0]
    looks = [row.split("|")[2] for row in text.splitlines() if row.startswith("| ")]
    commands = [line for look in looks for line in re.findall(r"`(spark-log [^`]+)`", look)]
    assert len(commands) > 12
    for command in commands:
        status = follower.shell(*command.split()[1:])
        assert status.status == 0, (command, status.err)


def test_faq(follower, shell, monkeypatch):
    monkeypatch.setenv("SPARK_LOG_ROOT", "log")
    assert shell("topics", "create", "orders", "--partitions", "2").status == 0
    sent = shell("console-producer", "orders", "--key-separator", ":", stdin=ORDERS.encode())
    assert sent.status == 0
    follower.follow(blocks("docs/faq.md"))
