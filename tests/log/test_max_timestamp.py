"""The record with the largest timestamp, in any segment and after any deletion."""

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import CorruptRecordError
from spark_log.log import SegmentReader
from spark_log.log.log_start import move_log_start
from spark_log.log.max_timestamp import offset_of_max_timestamp
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import HookedStore, Part, merge, open_log, put_bytes, segment_bytes
from tests.record.samples import START_US, record_batch, row


def append(log, *times):
    log.append(record_batch([row(timestamp=START_US + time) for time in times]))


def largest(log):
    found = offset_of_max_timestamp(log, log.observe())
    return found and (found[0], found[1] - START_US)


@pytest.fixture
def log(memory_store):
    return open_log(memory_store)


def test_an_empty_log_has_none(log):
    assert largest(log) is None


def test_of_several_with_the_same_the_first_is_taken(log):
    append(log, 1, 7)
    append(log, 7, 3)
    append(log, 7)
    assert largest(log) == (1, 7)


def test_what_is_deleted_does_not_count(log):
    append(log, 9, 2, 5)
    append(log, 4)
    move_log_start(log, 1)
    assert largest(log) == (2, 5)
    move_log_start(log, 3)
    assert largest(log) == (3, 4)
    move_log_start(log, 4)
    assert largest(log) is None


def test_a_marker_is_no_record_and_does_not_count(memory_store):
    log = open_log(memory_store, clock=ManualClock(START_US + 100))
    producer = ProducerAppend(1, 0, 0, is_transactional=True)
    log.append(record_batch([row(timestamp=START_US + time) for time in (5, 9, 2)]))
    log.append(record_batch([row(timestamp=START_US + 3)]), producer=producer)
    log.append_markers([EndTransactionMarker(1, 1, is_committed=True)])
    assert largest(log) == (1, 9)
    move_log_start(log, 2)
    assert largest(log) == (3, 3)
    move_log_start(log, 4)
    assert largest(log) is None


def test_a_start_that_moves_meanwhile_moves_the_answer(memory_store):
    store = HookedStore(memory_store)
    log = open_log(memory_store)
    append(log, 9, 8, 1)
    append(log, 3)
    move_log_start(log, 1)
    hooked = open_log(store)
    view = hooked.observe()

    def meanwhile(path, call):
        move_log_start(open_log(memory_store), 2)
        return call()

    store.once("list", meanwhile)  # the scan of the rest of the first segment
    found = offset_of_max_timestamp(hooked, view)
    assert found == (3, START_US + 3)


def test_a_header_that_tells_of_more_than_there_is_ends_in_an_error(memory_store, monkeypatch):
    put_bytes(memory_store, segment_bytes([[Part([row(timestamp=START_US)], base_delta=0)]]))
    log = open_log(memory_store)
    read = SegmentReader.all_headers

    def later(reader):
        for ordinal, headers in read(reader):
            yield ordinal, [replace(each, max_timestamp_us=START_US + 1) for each in headers]

    monkeypatch.setattr(SegmentReader, "all_headers", later)
    with pytest.raises(CorruptRecordError, match="later timestamp than any record has"):
        largest(log)


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=6),
    st.data(),
)
def test_it_is_what_one_finds_by_looking_at_every_record(segments, data):
    store = MemoryStore(uuid.uuid4().hex, ManualClock())
    log = open_log(store)
    for times in segments:
        append(log, *times)
    flat = [time for times in segments for time in times]
    start = data.draw(st.integers(0, len(flat)))
    bounds = [sum(map(len, segments[:count])) for count in range(len(segments) + 1)]
    first, last = sorted(data.draw(st.tuples(st.sampled_from(bounds), st.sampled_from(bounds))))
    if first < last:
        merge(store, first, last)
    move_log_start(log, start)
    left = [(time, -offset) for offset, time in enumerate(flat) if offset >= start]
    time, offset = max(left, default=(0, 0))
    assert largest(open_log(store)) == ((-offset, time) if left else None)
