"""Segments that several steps read are opened several at once, and the small ones once."""

import threading
from itertools import count

import pytest

from spark_log.errors import NotFoundError
from spark_log.log.directory import opened_segments
from spark_log.log.directory.opened_segments import OpenedSegments, open_in_order
from tests.log.support import HookedStore, open_log
from tests.record.samples import numbered

SEGMENTS = 40


@pytest.fixture
def store(memory_store):
    """A store whose files are read by requests, with a log of small segments."""
    log = open_log(memory_store)
    for first in range(SEGMENTS):
        log.append(numbered(first, 1))
    return HookedStore(memory_store, is_mapped=False)


def open_all(log, view, opened=None):
    return list(open_in_order(log.files, view.live.segments, view.observed_ms, opened))


def test_they_are_opened_at_the_same_time_and_yielded_in_order(store):
    log = open_log(store)
    view = log.observe()
    barrier, calls = threading.Barrier(8, timeout=60), count()

    def meet(path, call):
        if next(calls) < 8:  # later ones may wait for an earlier one's turn
            barrier.wait()
        return call()

    store.on("open_buffer", meet)
    found = open_all(log, view)
    assert [segment for segment, _ in found] == list(view.live.segments)
    assert [reader.base_offset for _, reader in found] == list(range(SEGMENTS))


def test_few_bytes_are_opened_ahead(store, monkeypatch):
    log = open_log(store)
    view = log.observe()
    size_bytes = view.live.segments[0].file.size_bytes
    monkeypatch.setattr(opened_segments, "AHEAD_BYTES", 3 * size_bytes)
    store.calls.clear()
    opening = open_in_order(log.files, view.live.segments, view.observed_ms)
    next(opening)
    del opening
    assert len(store.called("open_buffer")) <= 3


def test_one_that_is_missing_is_told_in_its_turn(store):
    log = open_log(store)
    view = log.observe()
    store.delete(view.live.segments[5].file.path)
    opening = open_in_order(log.files, view.live.segments, view.observed_ms)
    assert [next(opening)[1].base_offset for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(NotFoundError):
        next(opening)


def test_what_is_kept_is_not_opened_again_and_is_bounded(store, monkeypatch):
    log = open_log(store)
    view = log.observe()
    size_bytes = view.live.segments[0].file.size_bytes
    monkeypatch.setattr(opened_segments, "KEPT_BYTES", 10 * size_bytes)
    kept = OpenedSegments()
    for each in open_all(log, view):
        kept.keep(*each)
    store.calls.clear()
    later = log.observe()
    assert [reader.base_offset for _, reader in open_all(log, later, kept)] == list(range(SEGMENTS))
    assert len(store.called("open_buffer")) == SEGMENTS - 10
