"""What a terminal shows while a command waits for the storage."""

import io
import logging
import sys

import pytest

from spark_log.cli.terminal.outage_status import outages_shown
from spark_log.storage import OUTAGE_LOG
from tests.waiting import wait_until

LOG = logging.getLogger(OUTAGE_LOG)


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self):
        return True


def as_terminal(monkeypatch):
    """Make standard error a terminal; pytest takes it back after the setup of a fixture."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_a_wait_is_a_line_that_is_gone_when_the_storage_answers(monkeypatch, caplog):
    terminal = as_terminal(monkeypatch)
    with outages_shown():
        LOG.warning("waiting for %s", "s3://bucket")
        wait_until(lambda: "waiting for s3://bucket" in terminal.getvalue(), timeout_s=20)
        LOG.warning("answers again", extra={"is_over": True})
        shown = terminal.getvalue()
        assert shown.rstrip().endswith("\x1b[2K"), "the line is erased before the answer is printed"
        assert "answers again" not in shown
    assert caplog.records == [], "it is not logged a second time"
    assert LOG.propagate
    assert LOG.handlers == []


def test_a_line_is_gone_before_the_error_of_a_command(monkeypatch):
    terminal = as_terminal(monkeypatch)

    def interrupted():
        with outages_shown():
            LOG.warning("waiting for %s", "s3://bucket")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().rstrip().endswith("\x1b[2K")


def test_elsewhere_it_is_logged_as_usual(caplog):
    with outages_shown():
        LOG.warning("waiting for %s", "s3://bucket")
    assert [record.getMessage() for record in caplog.records] == ["waiting for s3://bucket"]
