"""SIGINT and SIGTERM as a request to stop."""

import os
import signal

import pytest

from spark_log.util.stop_signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_taken_note_of_and_the_next_does_what_it_did_before(number):
    taken = []
    before = signal.signal(number, lambda *_: taken.append("as before"))
    try:
        with StopSignals() as stop:
            assert not stop.is_set()
            assert stop.exit_status == 0
            os.kill(os.getpid(), number)
            assert stop.is_set()
            assert taken == []
            os.kill(os.getpid(), number)
            assert taken == ["as before"]
        assert stop.exit_status == 128 + number
    finally:
        signal.signal(number, before)


def test_without_a_signal_everything_is_as_it_was():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_end_of_the_java_process_that_started_this_one_counts(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    stop = StopSignals()
    assert not stop.is_set()
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    assert stop.is_set()
    assert stop.exit_status == 143
