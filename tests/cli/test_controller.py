"""``spark-log controller run``: decisions are printed with their reasons."""

import signal
import subprocess

import pytest

from tests.cli.support import COMMAND, environment
from tests.replication.support import Disks


@pytest.fixture
def disks(tmp_path, folder, monkeypatch):
    """Three roots; broker 2 is not in sync with the topic ``t``."""
    disks = Disks(tmp_path)
    disks.create()
    disks.send(b"one", b"two", b"three")
    disks.wipe(2)
    monkeypatch.setenv("SPARK_LOG_ROOT", disks.root)
    return disks


def test_a_single_run_does_what_is_left_to_do(shell, disks):
    outcome = shell("controller", "run", "--once", "--interval-ms", 10)
    assert outcome.status == 0
    assert any(line.startswith("expand the isr 2 of t-0: ") for line in outcome.lines)
    assert disks.partition().isr == (1, 0, 2)
    assert shell("controller", "run", "--once", "--interval-ms", 10).lines == []


def test_decisions_are_documents_one_a_line(shell, disks):
    documents = shell("controller", "run", "--once", "--interval-ms", 10, "--json").documents
    (expanded,) = (each for each in documents if each["action"] == "expand the isr")
    assert (expanded["topic"], expanded["partition"], expanded["broker"]) == ("t", 0, 2)
    assert "were copied" in expanded["reason"]


def test_the_exit_status_of_a_single_run_tells_that_a_replica_did_not_come_back(shell, disks):
    (disks.path(2) / disks.cluster().topic("t").directory).write_text("in the way of a directory")
    outcome = shell("controller", "run", "--once", "--interval-ms", 10)
    assert outcome.status == 1
    assert "error: t-0-2 is still not in sync" in outcome.err


def test_a_controller_works_until_it_is_stopped(disks):
    with subprocess.Popen(
        [*COMMAND, "controller", "run", "--interval-ms", "10"],
        env=environment(SPARK_LOG_ROOT=disks.root),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "register: controller epoch 1\n"
        while "expand the isr" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
