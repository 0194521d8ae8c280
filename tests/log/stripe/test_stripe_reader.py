"""Reading partitions of a stripe: from home, from objects, and at the end by one request."""

import threading

import pytest

from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from spark_log.log.cache_budget import LOG_CACHES
from spark_log.log.files.file_names import SegmentName
from spark_log.log.stripe import free
from spark_log.log.stripe import reader as stripe_reader
from spark_log.log.stripe import tail as stripe_tail
from spark_log.log.stripe.entries_reader import EntriesReader
from tests.log.stripe.support import STRIPE, TOPIC, Process, batch, expected, marker
from tests.log.support import HookedStore, failing

DELAY_MS = 60_000


def requests(store):
    return [operation for operation, _ in store.calls]


def free_all(process, clock):
    """Take everything home, and free the numbers, which takes the delay."""
    process.take_home()
    clock.advance_ms(2 * DELAY_MS)
    free(process.directory)


@pytest.fixture
def remote(memory_store, clock):
    """A process whose files are not mapped, and whose requests are counted."""
    return Process(HookedStore(memory_store, is_mapped=False), clock)


def test_the_end_takes_one_request_for_all_partitions(remote, other):
    other.append(*(batch(each) for each in range(100)))
    assert all(remote.values(each) for each in range(100))
    remote.store.calls.clear()
    remote.reader.poll()
    assert requests(remote.store) == ["read_tail"]


def test_many_objects_that_no_listing_has_shown_are_read_together(remote, other, monkeypatch):
    """A process that is behind others which append all the time catches up."""
    together = []

    def map_requests(store, read, items):
        together.append(len(items))
        return [read(each) for each in items]

    remote.reader.poll()
    for number in range(60):
        other.append(batch(0, number))
    monkeypatch.setattr(stripe_tail, "map_requests", map_requests)
    remote.reader.poll()
    assert together == [*[1] * 8, 8, 16, 16, 16, 1]
    assert remote.values(0) == expected(0, 0, 60)
    other.append(batch(0, 60))
    together.clear()
    remote.reader.poll()
    assert together == [1, 1]


def test_a_new_object_is_read_once_for_all_partitions(remote, other):
    other.append(*(batch(each) for each in range(100)))
    assert all(remote.values(each) for each in range(100))
    other.append(*(batch(each, 1) for each in range(100)))
    remote.store.calls.clear()
    remote.reader.poll()
    assert requests(remote.store) == ["read_tail", "read_tail"]  # it, and the number after it
    remote.store.calls.clear()
    assert all(remote.log(each).read(1, 1)[1] == 2 for each in range(100))
    assert requests(remote.store) == []


def test_any_offset_is_read_at_home_and_in_objects(process, other, clock):
    for number in range(6):
        other.append(batch(0, number), batch(1, number))
        if number == 3:
            free_all(other, clock)
    for offset in range(7):
        assert process.values(0, offset) == expected(0, offset, 6 - offset)


def test_a_reader_that_was_away_goes_home(process, other, clock):
    other.append(batch(0))
    assert process.values(0) == expected(0, 0, 1)
    for number in range(1, 5):
        other.append(batch(0, number))
    free_all(other, clock)
    other.append(batch(0, 5))
    assert process.values(0, 1) == expected(0, 1, 5)


def test_a_reader_at_the_end_sees_by_one_request_whether_the_log_ends_there(remote, other):
    for number in range(3):
        other.append(batch(0, number))
    assert remote.values(0) == expected(0, 0, 3)
    remote.store.calls.clear()
    assert remote.log(0).tail_ends_at(3)
    assert requests(remote.store) == ["read_tail"]
    other.append(batch(0, 3))
    assert not remote.log(0).tail_ends_at(3)


def test_a_reader_at_the_end_goes_home_when_another_partition_shows_a_marker(process, other, clock):
    """Its listing is valid still, and its next records have no place in the stripe any more."""
    other.append(batch(0), batch(1))
    assert process.values(0) == expected(0, 0, 1)
    other.append(batch(0, 1))
    other.take_home()
    process.reader.look_for_home()
    assert not process.log(0).tail_ends_at(1)
    assert process.values(0, 1) == expected(0, 1, 1)
    assert process.values(0, 2) == []


def test_an_object_that_was_freed_is_read_at_home(process, other, clock):
    other.append(batch(0), batch(1))
    process.reader.poll()
    free_all(other, clock)
    process.reader.drop()
    with pytest.raises(NotFoundError):
        process.reader.open(0, 0)
    assert process.values(0) == expected(0, 0, 1)


def test_a_late_put_at_a_freed_number_is_not_read(process, other, memory_store, clock):
    other.append(batch(0))
    process.reader.poll()
    free_all(other, clock)
    stranger = Process(memory_store, clock)
    stranger.append(batch(0, 7))  # as 1.stripe; a copy of it arrives late as 0.stripe
    late = memory_store.open_buffer(f"{STRIPE}/{1:020d}.stripe")
    memory_store.put(f"{STRIPE}/{0:020d}.stripe", late)
    process.reader.drop()
    with pytest.raises(NotFoundError):
        process.reader.open(0, 0)
    assert process.values(0)[:1] == expected(0, 0, 1)


def test_a_late_put_at_a_freed_number_is_no_damage_while_it_is_read(
    remote, other, memory_store, clock, monkeypatch
):
    """A large object is read in ranges: here the directory and the records are of two files."""
    monkeypatch.setattr("spark_log.log.segment.file.WHOLE_BYTES", 2048)
    monkeypatch.setattr("spark_log.log.segment.file.TAIL_BYTES", 2048)
    other.append(batch(0, count=900), batch(1, count=900))
    remote.reader.poll()
    entries = remote.reader.open(0, 0)
    assert not entries.is_in_memory
    free_all(other, clock)
    size_bytes = entries._object.size_bytes  # noqa: SLF001 - a file of the same size
    memory_store.put(f"{STRIPE}/{0:020d}.stripe", bytes(size_bytes))
    with pytest.raises(NotFoundError):
        list(entries.read(0))


def test_a_damaged_object_that_was_not_freed_is_damage(remote, other, memory_store, monkeypatch):
    monkeypatch.setattr("spark_log.log.segment.file.WHOLE_BYTES", 2048)
    monkeypatch.setattr("spark_log.log.segment.file.TAIL_BYTES", 2048)
    other.append(batch(0, count=900), batch(1, count=900))
    remote.reader.poll()
    entries = remote.reader.open(0, 0)
    memory_store.put(f"{STRIPE}/{0:020d}.stripe", bytes(entries._object.size_bytes))  # noqa: SLF001
    with pytest.raises(CorruptRecordError):
        list(entries.read(0))


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
    assert [place.base_offset for place in process.reader.places(0)[0]] == [2, 3, 4]
    assert process.values(0) == expected(0, 0, 5)


class TestCommittedRecords:
    def test_end_at_the_first_open_transaction(self, process):
        process.append(batch(0), batch(0, producer_id=7, transactional=True), batch(0, 1))
        log = process.log(0)
        assert process.values(0, committed=True) == expected(0, 0, 1)
        assert log.blocking_transaction.first_offset == 1
        assert log.end_offset(isolation_level="read_committed") == 1

    def test_leave_out_what_was_aborted_while_its_records_were_at_home(self, process, other):
        process.append(batch(0), batch(0, producer_id=7, transactional=True), batch(0, 1))
        process.take_home()
        process.append(marker(0, 7, 1, committed=False))
        for each in (process, other):
            assert each.values(0, committed=True) == [(0, "0.None.0:0"), (2, "0.None.0:1")]
        process.take_home()
        for each in (process, other):
            assert each.values(0, committed=True) == [(0, "0.None.0:0"), (2, "0.None.0:1")]

    def test_leave_out_what_was_aborted_before_the_marker(self, process, other, clock):
        process.append(batch(0), batch(0, producer_id=7, transactional=True), batch(0, 1))
        process.append(marker(0, 7, 1, committed=False))
        free_all(process, clock)
        process.append(batch(0, 2))
        for each in (process, other):
            assert each.values(0, committed=True) == [
                (0, "0.None.0:0"),
                (2, "0.None.0:1"),
                (4, "0.None.0:2"),
            ]

    def test_have_what_was_committed(self, process, other):
        process.append(batch(0, count=2, producer_id=7, transactional=True))
        process.append(marker(0, 7, 1))
        assert other.values(0, committed=True) == expected(0, 0, 2, producer_id=7)


class TestThreads:
    def test_take_no_poll_that_began_before_theirs(self, process, other, store):
        """The poll that is under way may have asked for the next number already."""
        process.reader.poll()
        is_under_way, may_end = threading.Event(), threading.Event()

        def wait(path, call):
            try:
                return call()
            finally:
                is_under_way.set()
                may_end.wait(20)

        store.once("open_buffer", wait)
        first = threading.Thread(target=process.reader.poll)
        first.start()
        assert is_under_way.wait(20)
        other.append(batch(0))
        second = threading.Thread(target=process.reader.poll)
        second.start()
        may_end.set()
        for each in (first, second):
            each.join(20)
        assert process.reader.end_offset(0) == 1

    def test_read_open_objects_while_another_polls(self, process, other, store):
        other.append(batch(0))
        process.reader.poll()
        is_under_way, may_end = threading.Event(), threading.Event()

        def wait(path, call):
            is_under_way.set()
            may_end.wait(20)
            return call()

        store.once("open_buffer", wait)
        polling = threading.Thread(target=process.reader.poll)
        polling.start()
        assert is_under_way.wait(20)
        assert process.reader.open(0, 0).end_offset == 1
        assert process.reader.home_end(0) == 0
        may_end.set()
        polling.join(20)

    @pytest.mark.parametrize("error", [StorageError("down"), KeyboardInterrupt()])
    def test_that_open_an_object_together_share_its_error_but_no_interrupt(
        self, process, other, store, error
    ):
        other.append(batch(0))
        process.reader.poll()
        process.reader.drop()
        is_under_way, may_fail = threading.Event(), threading.Event()
        outcomes = {}

        def fail(path, call):
            is_under_way.set()
            may_fail.wait(20)
            raise error

        def open_entries(name):
            try:
                outcomes[name] = process.reader.open(0, 0).end_offset
            except BaseException as raised:
                outcomes[name] = raised

        store.once("open_buffer", fail)
        first = threading.Thread(target=open_entries, args=["first"])
        first.start()
        assert is_under_way.wait(20)
        second = threading.Thread(target=open_entries, args=["second"])
        second.start()
        while not process.reader._opening[0].lock.locked():  # noqa: SLF001
            pass
        may_fail.set()
        for each in (first, second):
            each.join(20)
        assert outcomes["first"] is error
        assert outcomes["second"] is not error
        if isinstance(error, KeyboardInterrupt):
            assert outcomes["second"] == 1

    def test_that_poll_together_share_an_error(self, process, other, store):
        process.reader.poll()
        asked = process.reader.polls_begun
        store.once("open_buffer", failing(StorageError("down")))
        with pytest.raises(StorageError, match="down"):
            process.reader.poll()
        assert process.reader._failed[0] > asked  # noqa: SLF001
        process.reader.poll()


def test_an_offset_behind_the_end_is_out_of_range(process, other):
    other.append(batch(0))
    with pytest.raises(OffsetOutOfRangeError):
        process.log(0).read(2)
    other.append(batch(0, 1))
    assert process.log(0).read(2) == ([], 2)


def test_records_that_are_nowhere_are_damage(process, other, memory_store):
    other.append(batch(0))
    other.take_home()
    for file in list(memory_store.list(f"{TOPIC}/flights-0")):
        memory_store.delete(file.path)
    with pytest.raises(LogTruncatedError, match="had reached 1"):
        process.values(0)


def test_an_object_that_vanishes_is_damage(process, other, memory_store):
    other.append(batch(0))
    other.append(batch(0, 1))
    process.reader.poll()
    process.reader.drop()
    memory_store.delete(f"{STRIPE}/{0:020d}.stripe")
    with pytest.raises(CorruptRecordError, match="no home marker"):
        process.values(0)


def test_a_home_marker_that_vanishes_is_damage(process, other, memory_store):
    other.append(batch(0, producer_id=7))
    other.take_home()
    process.reader.poll()
    memory_store.delete(f"{STRIPE}/{1:020d}.home")
    with pytest.raises(CorruptRecordError, match="no home marker"):
        process.log(0).producers()


def test_the_summaries_of_a_snapshot_at_home_stay_known_after_a_newer_marker(process, other):
    other.append(batch(0, count=2))
    other.take_home()
    other.home(0).snapshots.write()
    other.append(batch(0, 2))
    other.take_home()
    log = process.log(0)
    newest = log.snapshots.newest(log.observe())
    assert newest.offset == 3
    assert [each.end_offset for each in newest.segments] == [2]


def test_few_large_objects_are_kept_open(process, other, monkeypatch):
    """So many as fit into half of the budget: else the budget would drop all of them each time."""
    monkeypatch.setattr(LOG_CACHES, "limit_bytes", 4_000)
    for number in range(5):
        other.append(batch(0, number))
    process.reader.poll()
    kept = process.reader._objects  # noqa: SLF001
    assert 1 <= len(kept) < 5
    assert 4 in kept


def test_entries_answer_whatever_a_segment_does(process):
    """The rows, headers and times are those of the partition; sizes are its share of the object."""
    process.append(batch(0, count=2), batch(1, count=3, producer_id=7))
    process.append(batch(1, 3, 2, producer_id=7), marker(2, 8, 1))
    first, second = (process.reader.open(1, offset) for offset in (0, 3))
    assert (second.base_offset, second.end_offset, second.batch_count) == (3, 5, 1)
    assert second.size_bytes == process.reader.place(1, 3).size_bytes
    assert [each.base_sequence for _, part in second.all_headers() for each in part] == [3]
    assert second.header_array()["base_offset_delta"].tolist() == [0]
    assert second.read_keys(0)[1].to_pylist() == second.read_batch(0)[1]["key"].to_pylist()
    assert second.offset_for_time(0, 3)[0] == 3
    assert second.offset_for_time(2**62, 3) is None
    assert first.min_timestamp_us == min(
        each.min_timestamp_us for each in (first, process.reader.open(1, 0))
    )
    assert second.max_timestamp_us >= second.min_timestamp_us
    assert second.timestamp_types == first.timestamp_types
    assert not second.has_gaps
    assert second.leader_epoch == first.leader_epoch
    process.take_home()
    at_home = process.home(1).files.open(SegmentName(0, 4, 1))
    assert isinstance(first, EntriesReader)
    assert [each.records.to_pylist() for each in at_home.read(3)] == [
        each.records.to_pylist() for each in second.read(3)
    ]


class TestAProcessThatAppendsAndReads:
    """A process takes in from memory what it has put or read itself."""

    @pytest.fixture
    def busy(self, remote):
        """The process, at the end of a stripe that it has appended to."""
        remote.group.append([batch(0)])
        remote.reader.poll()
        remote.store.calls.clear()
        return remote

    def test_reads_none_of_its_puts(self, busy):
        for number in range(1, 4):
            busy.group.append([batch(each, number) for each in range(100)])
            busy.reader.poll()
            # The put, and a look behind it.
            assert requests(busy.store) == ["stage", "put_if_absent", "read_tail"]
            assert busy.log(99).files.open(SegmentName(number - 1)).end_offset == number
            busy.store.calls.clear()

    def test_reads_those_of_others_once(self, busy, other):
        other.append(batch(1))
        busy.group.append([batch(0, 1)])  # it loses: from now on it looks for those of others
        busy.reader.poll()
        busy.store.calls.clear()
        other.append(batch(1, 1))
        busy.reader.poll()
        assert requests(busy.store) == ["read_tail"] * 2
        busy.store.calls.clear()
        busy.group.append([batch(0, 2)])
        assert requests(busy.store) == ["read_tail", "stage", "put_if_absent"]  # the end alone
        busy.store.calls.clear()
        busy.reader.poll()
        assert requests(busy.store) == ["read_tail"]
        assert busy.values(0, 2) == expected(0, 2, 1)

    def test_reads_them_again_when_the_budget_is_short(self, busy, monkeypatch):
        monkeypatch.setattr(LOG_CACHES, "limit_bytes", 1)
        busy.group.append([batch(0, 1)])
        busy.store.calls.clear()
        busy.reader.poll()
        assert requests(busy.store) == ["read_tail"] * 2

    def test_keeps_nothing_that_nobody_polls(self, remote):
        remote.group.append([batch(0)])
        assert not remote.reader._own  # noqa: SLF001

    def test_drops_what_it_has_put_when_it_begins_at_a_marker(self, busy, other, clock):
        busy.group.append([batch(0, 1)])
        other.take_home()
        clock.advance_ms(DELAY_MS)
        busy.reader.poll()
        other.append(batch(0, 2))
        assert busy.values(0, 2) == expected(0, 2, 1)
