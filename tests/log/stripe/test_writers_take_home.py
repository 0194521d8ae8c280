"""Writers take a stripe home when it has grown, on the thread of merges."""

import math

import pytest

from spark_log.errors import StorageUnavailableError
from spark_log.log import MergeExecutor
from spark_log.log.stripe import Stripe, stripe
from tests.log.stripe.support import Process, batch, open_stripe


@pytest.fixture
def process(memory_store, clock, monkeypatch):
    """Return a function that opens the stripe as a new process does; three objects are many."""
    monkeypatch.setattr(stripe, "FEW_OBJECTS_BEHIND_HOME", 3)
    monkeypatch.setattr(stripe, "OBJECTS_FOR_EACH_PUT", 1)
    monkeypatch.setattr(stripe, "_SPREAD", math.inf)

    def open_process():
        home = Process(memory_store, clock).home
        return Stripe(open_stripe(memory_store, clock), lambda partition: home(partition).files)

    return open_process


def at_once(function):
    function()
    return True


def append(found, count=1, run=at_once, partitions=2):
    for _ in range(count):
        found.appends.append([batch(each) for each in range(partitions)])
        found.take_home_if_due(MergeExecutor(run))


def homes(found):
    return [name.number for name, _ in found.directory.list().files if name.is_home]


def test_after_many_objects(process):
    found = process()
    append(found, 2)
    assert homes(found) == []
    append(found)
    assert homes(found) == [3]
    append(found, 2)
    assert homes(found) == [3]
    append(found)
    assert homes(found) == [3, 6]


def test_after_more_objects_if_that_costs_more_puts(process):
    found = process()
    append(found, 5, partitions=5)
    assert homes(found) == []
    append(found)
    assert homes(found) == [6]


def test_after_an_hour_however_many_puts_it_costs(process, monkeypatch):
    monkeypatch.setattr(stripe, "OBJECTS_BEHIND_HOME", 4)
    found = process()
    append(found, 3, partitions=5)
    assert homes(found) == []
    append(found, partitions=5)
    assert homes(found) == [4]


def test_after_many_entries(process, monkeypatch):
    monkeypatch.setattr(stripe, "ENTRIES_BEHIND_HOME", 4)
    found = process()
    append(found, 2)
    assert homes(found) == [2]


def test_not_if_another_process_has(process):
    one, other = process(), process()
    append(one, 2)
    append(other)
    assert homes(one) == [3]
    append(one)  # it knows of no marker; a listing shows it
    assert homes(one) == [3]


def test_one_thread_of_a_process_at_a_time(process):
    found, waiting = process(), []

    def later(function):
        waiting.append(function)
        return True

    append(found, 5, run=later)
    assert len(waiting) == 1
    waiting.pop()()
    assert homes(found) == [5]
    append(found, 3)
    assert homes(found) == [5, 8]


def test_again_if_the_thread_runs_nothing(process):
    found = process()
    append(found, 3, run=lambda function: False)
    assert homes(found) == []
    append(found)
    assert homes(found) == [4]


def test_an_error_is_counted_and_the_next_append_tries_again(process, monkeypatch):
    found = process()

    def fail(self):
        raise StorageUnavailableError("away", path="stripe")

    with monkeypatch.context() as patch:
        patch.setattr(Stripe, "take_home", fail)
        append(found, 3)
    assert homes(found) == []
    assert found.suppressed.counts() == {"taking home": 1}
    append(found)
    assert homes(found) == [4]
