"""Calls on threads of which none keeps the process alive."""

import threading
from types import SimpleNamespace

import pytest

from spark_log.errors import StorageTimeoutError
from spark_log.threads import daemon_pool
from spark_log.threads.daemon_pool import DaemonPool


@pytest.fixture
def released():
    """Ends the calls that hang, after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_each_item_has_its_outcome():
    def invert(number):
        return 1 / number

    found = dict(DaemonPool(3, 10_000, name="pool").run(invert, range(20)))
    assert {number: each.value for number, each in found.items() if not each.error} == {
        number: 1 / number for number in range(1, 20)
    }
    with pytest.raises(ZeroDivisionError):
        found[0].result()


def test_no_more_threads_run_than_are_allowed():
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def call(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(30)
        with lock:
            running -= 1

    assert len(list(DaemonPool(2, 60_000, name="pool").run(call, range(8)))) == 8
    assert most == 2


def test_a_call_that_hangs_is_given_up_and_the_others_are_done(released, monkeypatch):
    now_s, found = [0.0], {}
    monkeypatch.setattr(daemon_pool, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    run = DaemonPool(2, 60_000, name="pool").run(
        lambda number: number == 1 and released.wait(60), range(6)
    )
    for number, outcome in run:
        found[number] = outcome
        now_s[0] += 61 * (len(found) == 5)
    assert isinstance(found[1].error, StorageTimeoutError)
    assert [number for number, each in found.items() if each.error] == [1]


def test_if_all_threads_hang_the_rest_is_not_tried(released):
    tried = []

    def hang(number):
        tried.append(number)
        released.wait(60)

    found = dict(DaemonPool(2, 100, name="pool").run(hang, range(50)))
    assert sorted(tried) == [0, 1]
    assert len(found) == 50
    assert all(isinstance(each.error, StorageTimeoutError) for each in found.values())
