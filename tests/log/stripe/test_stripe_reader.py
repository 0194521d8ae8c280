"""Reading partitions of a stripe: from home, from objects, and at the end by one request."""

import pytest

from spark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from spark_log.log.stripe import free
from spark_log.log.stripe import reader as stripe_reader
from tests.log.stripe.support import STRIPE, Process, batch, expected, marker
from tests.log.support import HookedStore

DELAY_MS = 60_000


def requests(store):
    return [operation for operation, _ in store.calls]


def test_the_end_takes_one_request_for_all_partitions(memory_store, other, clock):
    store = HookedStore(memory_store, is_mapped=False)
    process = Process(store, clock)
    other.append(*(batch(each) for each in range(100)))
    assert all(process.values(each) for each in range(100))
    store.calls.clear()
    process.reader.poll()
    assert all(process.reader.read(each, 1) == ([], 1) for each in range(100))
    assert requests(store) == ["read_tail"]


def test_a_new_object_is_read_once_for_all_partitions(memory_store, other, clock):
    store = HookedStore(memory_store, is_mapped=False)
    process = Process(store, clock)
    other.append(*(batch(each) for each in range(100)))
    process.reader.poll()
    other.append(*(batch(each, 1) for each in range(100)))
    store.calls.clear()
    process.reader.poll()
    for each in range(100):
        batches, following = process.reader.read(each, 1)
        assert (len(batches), following) == (1, 2)
    assert requests(store) == ["read_tail", "read_tail"]  # the object, and the number after it


def test_any_offset_is_read_at_home_and_in_objects(process, other, clock):
    for number in range(6):
        other.append(batch(0, number), batch(1, number))
        if number == 3:
            other.take_home()
            clock.advance_ms(2 * DELAY_MS)
            free(other.directory)
    for offset in range(7):
        assert process.values(0, offset) == expected(0, offset, 6 - offset)


def test_a_reader_that_was_away_goes_home(process, other, clock):
    other.append(batch(0))
    assert process.values(0) == expected(0, 0, 1)
    for number in range(1, 5):
        other.append(batch(0, number))
    other.take_home()
    clock.advance_ms(2 * DELAY_MS)
    free(other.directory)
    other.append(batch(0, 5))
    assert process.values(0, 1) == expected(0, 1, 5)


def test_an_object_that_was_freed_is_read_at_home(process, other, memory_store, clock):
    other.append(batch(0), batch(1))
    process.reader.poll()
    other.take_home()
    clock.advance_ms(2 * DELAY_MS)
    free(other.directory)
    process.reader.drop()
    batches, following = process.reader.read(0, 0)
    assert (len(batches), following) == (1, 1)


def test_a_late_put_at_a_freed_number_is_not_read(process, other, memory_store, clock):
    other.append(batch(0))
    process.reader.poll()
    other.take_home()
    clock.advance_ms(2 * DELAY_MS)
    free(other.directory)
    stranger = Process(memory_store, clock)
    stranger.append(batch(0, 7))  # as 1.stripe; a copy of it arrives late as 0.stripe
    memory_store.put(
        f"{STRIPE}/{0:020d}.stripe", memory_store.open_buffer(f"{STRIPE}/{1:020d}.stripe")
    )
    process.reader.drop()
    batches, _ = process.reader.read(0, 0)
    assert batches[0].records.column("value").to_pylist() == [b"0.None.0:0"]


def test_what_was_forgotten_is_read_again(process, other, monkeypatch):
    monkeypatch.setattr(stripe_reader, "MAX_PLACES", 2)
    for number in range(8):
        other.append(batch(0, number), batch(1, number))
    assert process.values(0) == expected(0, 0, 8)
    assert process.values(1, 3) == expected(1, 3, 5)


def test_a_reader_learns_a_newer_marker_while_it_follows(process, other, monkeypatch, store):
    monkeypatch.setattr(stripe_reader, "OBJECTS_PER_LISTING", 2)
    process.reader.poll()
    for number in range(2):
        other.append(batch(0, number))
        process.reader.poll()
    other.take_home()
    for number in range(2, 5):
        other.append(batch(0, number))
        process.reader.poll()
    store.calls.clear()
    assert process.values(0, 2) == expected(0, 2, 3)
    assert process.values(0) == expected(0, 0, 5)
    assert any("flights-0" in path for path in store.called("list"))  # the first two are at home


class TestCommittedRecords:
    def test_end_at_the_first_open_transaction(self, process):
        process.append(batch(0), batch(0, producer_id=7, transactional=True), batch(0, 1))
        assert process.values(0, committed=True) == expected(0, 0, 1)
        assert process.reader.blocking_transaction.first_offset == 1
        assert process.reader.end_offset(0, isolation_level="read_committed") == 1

    def test_leave_out_what_was_aborted_while_its_records_were_at_home(self, process, other):
        process.append(batch(0), batch(0, producer_id=7, transactional=True), batch(0, 1))
        process.take_home()
        process.append(marker(0, 7, 1, committed=False))
        for each in (process, other):
            assert each.values(0, committed=True) == [(0, "0.None.0:0"), (2, "0.None.0:1")]
        process.take_home()
        for each in (process, other):
            assert each.values(0, committed=True) == [(0, "0.None.0:0"), (2, "0.None.0:1")]

    def test_are_read_again_behind_a_transaction_that_was_open_at_home(
        self, process, other, monkeypatch
    ):
        """A reader that has forgotten objects begins where the transaction was still open."""
        monkeypatch.setattr(stripe_reader, "MAX_PLACES", 1)
        other.append(batch(0, producer_id=7, transactional=True))
        process.reader.poll()
        other.append(marker(0, 7, 1))
        other.append(batch(0, 1))
        process.reader.poll()
        other.take_home(max_bytes=1)
        found, _ = process.reader.read(0, 0, isolation_level="read_committed")
        assert found[0].records.column("value").to_pylist() == [b"0.7.0:0"]

    def test_have_what_was_committed(self, process, other):
        process.append(batch(0, count=2, producer_id=7, transactional=True))
        process.append(marker(0, 7, 1))
        assert other.values(0, committed=True) == expected(0, 0, 2, producer_id=7)


def test_an_offset_behind_the_end_is_out_of_range(process, other):
    other.append(batch(0))
    with pytest.raises(OffsetOutOfRangeError):
        process.reader.read(0, 2)
    process.reader.poll()
    other.append(batch(0, 1))
    assert process.reader.read(0, 2) == ([], 2)  # another process may know more


def test_records_that_are_nowhere_are_damage(process, other, memory_store, clock):
    other.append(batch(0))
    other.take_home()
    for file in list(memory_store.list(f"{STRIPE.partition('/')[0]}/flights-0")):
        memory_store.delete(file.path)
    with pytest.raises(CorruptRecordError, match="neither"):
        process.values(0)


def test_an_object_that_vanishes_is_damage(process, other, memory_store):
    other.append(batch(0))
    process.reader.poll()
    process.reader.drop()
    memory_store.delete(f"{STRIPE}/{0:020d}.stripe")
    with pytest.raises(CorruptRecordError, match="no home marker"):
        process.reader.read(0, 0)
