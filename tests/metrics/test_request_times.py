"""Durations of the calls of a store: each call once, listings as they are read."""

from itertools import islice

import pytest

from spark_log.errors import NotFoundError
from spark_log.metrics.request_times import RequestTimes
from spark_log.storage import open_store


@pytest.fixture
def store(tmp_path):
    store = open_store(f"file://{tmp_path}")
    for number in range(5):
        store.put_if_absent(f"folder/{number}", b"bytes")
    return store


@pytest.fixture
def times(store):
    times = RequestTimes()
    times.measure(store)
    return times


def test_each_call_counts_once(store, times):
    store.head("folder/1")
    store.read("folder/1", 0, 2)
    store.read("folder/2", 0, 2)
    assert times.counts() == {"head": 1, "read": 2}


def test_a_failed_call_counts_with_its_error(store, times):
    with pytest.raises(NotFoundError):
        store.head("folder/none")
    errors = list(times.families("me"))[1]
    assert errors.samples == [(("me", "head", "NotFoundError"), 1)]


def test_a_listing_is_read_as_far_as_it_is_wanted(store, monkeypatch):
    read = []

    def files(directory):
        for number in range(5):
            read.append(number)
            yield number

    listing = RequestTimes()
    monkeypatch.setattr(store, "list", files)
    listing.measure(store)
    assert list(islice(store.list("folder"), 2)) == [0, 1]
    assert read == [0, 1]
    assert listing.counts() == {"list": 1}


def test_a_listing_is_one_call_whatever_happens_between_its_files(store, times):
    names = []
    for file in store.list("folder"):
        store.head(file.path)
        names.append(file.path)
    assert len(names) == 5
    assert times.counts() == {"head": 5, "list": 1}
