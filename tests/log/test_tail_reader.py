"""Following a log: no record is missed or read twice, and waiting is no busy loop."""

import multiprocessing
import threading

import pytest

from spark_log.clock import ManualClock
from spark_log.errors import OffsetOutOfRangeError
from spark_log.log.clean.merger import merge
from spark_log.log.file_names import SegmentName
from spark_log.log.tail_reader import LOCAL_PROBES, ProbeInterval, TailReader
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    Part,
    file_names,
    free,
    free_plain,
    move_start,
    open_log,
    put_bytes,
    segment_bytes,
    values_of,
)
from tests.record.samples import numbered, row

HALF_DELAY_MS = 30_000


@pytest.fixture
def others(inner):
    return open_log(inner)


@pytest.fixture
def reader(store, clock):
    return TailReader(open_log(store, clock=clock), 0)


def append(log, mark, count=1):
    log.append(numbered(0, count, mark=mark))


def fetched(reader, **options):
    return [value.decode() for _, value in values_of(reader.fetch(**options))]


class TestFetch:
    def test_continues_where_it_stopped(self, reader, others):
        assert fetched(reader) == []
        append(others, "a", 2)
        assert fetched(reader) == ["a:0", "a:1"]
        assert fetched(reader) == []
        append(others, "b")
        append(others, "c")
        assert fetched(reader) == ["b:0", "c:0"]
        assert reader.position == 4

    def test_at_the_tail_costs_one_probe_and_no_listing(self, store, reader, others):
        append(others, "a")
        reader.fetch()
        store.calls.clear()
        for _ in range(5):
            assert fetched(reader) == []
        assert set(store.calls) == {("open_buffer", f"{DIRECTORY}/{SegmentName(1).log}")}
        assert len(store.calls) == 5

    def test_returns_the_batches_that_fit_and_the_rest_later(self, reader, others):
        for mark in "abcd":
            append(others, mark)
        size = reader.fetch(max_bytes=1)[0].stored_bytes
        assert reader.position == 1
        assert fetched(reader, max_bytes=2 * size) == ["b:0", "c:0"]
        assert fetched(reader) == ["d:0"]

    def test_seeks_to_any_offset(self, reader, others):
        for mark in "abc":
            append(others, mark)
        reader.fetch()
        reader.position = 1
        assert fetched(reader) == ["b:0", "c:0"]

    def test_passes_over_control_batches_without_stopping_at_them(self, inner, store, clock):
        parts = [Part([row(b"x")]), Part([row(b"marker")], attributes=1 << 5)]
        put_bytes(inner, segment_bytes([parts]))
        reader = TailReader(open_log(store, clock=clock), 0)
        assert fetched(reader) == ["x"]
        assert reader.position == 2
        append(open_log(inner), "a")
        assert fetched(reader) == ["a:0"]

    def test_of_a_position_that_retention_passed_is_an_error_with_the_range(
        self, inner, clock, reader, others
    ):
        for mark in "abc":
            append(others, mark)
        reader.fetch(max_bytes=1)
        move_start(inner, 2, 2)
        free(inner, SegmentName(0), SegmentName(1))
        with pytest.raises(OffsetOutOfRangeError) as caught:
            reader.fetch()
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (2, 3)
        reader.position = 2
        assert fetched(reader) == ["c:0"]

    def test_beyond_the_end_is_an_error_with_the_range(self, store, others):
        append(others, "a")
        with pytest.raises(OffsetOutOfRangeError) as caught:
            TailReader(open_log(store), 5).fetch()
        assert caught.value.log_end_offset == 1


class TestLogThatIsRewritten:
    def test_is_read_on_from_the_rewritten_segment(self, inner, reader, others):
        for mark in "abc":
            append(others, mark)
        reader.fetch(max_bytes=1)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)
        assert fetched(reader) == ["b:0", "c:0"]
        append(others, "d")
        assert fetched(reader) == ["d:0"]

    def test_is_listed_again_before_names_can_have_been_freed(self, inner, clock, reader, others):
        """The next segment was appended and deleted while the reader slept; its name is free."""
        append(others, "a")
        assert fetched(reader) == ["a:0"]
        for mark in "bc":
            append(others, mark)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)
        assert fetched(reader) == [], "within half the delay nobody frees a name"
        clock.advance_ms(HALF_DELAY_MS)
        assert fetched(reader) == ["b:0", "c:0"]

    def test_never_hands_out_a_void_file(self, inner, store, clock, reader, others):
        append(others, "a")
        assert fetched(reader) == ["a:0"]
        for mark in "bc":
            append(others, mark)
        merge(others.files, others.observe(), 0, 2)
        free_plain(inner, 3)

        def come_late(path, call):
            inner.put_if_absent(path, void)
            clock.advance_ms(HALF_DELAY_MS)
            return call()

        void = segment_bytes([[Part([row(b"void")])]]).to_pybytes()
        store.once("open_buffer", come_late)
        assert fetched(reader) == ["b:0", "c:0"]

    def test_a_delay_of_nothing_lists_every_time(self, store, others):
        reader = TailReader(open_log(store, file_delete_delay_ms=0), 0)
        for mark in "abc":
            append(others, mark)
            assert fetched(reader) == [f"{mark}:0"]
        assert fetched(reader) == []


class SteppingClock(ManualClock):
    """A clock that advances by sleeping; it keeps the sleeps, and may call a function."""

    def __init__(self, at_ms=None, do=None):
        super().__init__()
        self.slept_ms = []
        self.at_ms = at_ms
        self.do = do

    def sleep_ms(self, duration_ms):
        self.slept_ms.append(duration_ms)
        self.advance_ms(max(duration_ms, 0.001))
        if self.do and self.monotonic_ms() >= self.at_ms:
            self.do()
            self.do = None


class TestWaiting:
    def test_ends_with_the_first_record(self, store, others):
        clock = SteppingClock(40, lambda: append(others, "a"))
        reader = TailReader(open_log(store, clock=clock), 0)
        assert fetched(reader, timeout_ms=10_000) == ["a:0"]
        assert 40 <= clock.monotonic_ms() < 45

    def test_ends_with_the_timeout(self, store):
        clock = SteppingClock()
        reader = TailReader(open_log(store, clock=clock), 0)
        assert fetched(reader, timeout_ms=100) == []
        assert clock.monotonic_ms() == pytest.approx(100, abs=0.01)

    def test_probes_often_at_first_and_then_seldom(self, store):
        clock = SteppingClock()
        reader = TailReader(open_log(store, clock=clock), 0)
        reader.fetch(timeout_ms=1_000)
        assert clock.slept_ms[0] == LOCAL_PROBES.min_ms
        assert max(clock.slept_ms) == LOCAL_PROBES.max_ms
        assert len(clock.slept_ms) < 450, "no hot spin"
        late_by_ms = [
            slept_ms / waited_ms
            for slept_ms, waited_ms in zip(
                clock.slept_ms[1:], cumulative(clock.slept_ms), strict=False
            )
            if waited_ms > 5
        ]
        assert max(late_by_ms) <= 0.11, "a tenth of the time that the record took to come"

    def test_on_an_object_store_probes_ten_times_a_second_at_most(self, inner):
        clock = SteppingClock()
        reader = TailReader(open_log(HookedStore(inner, is_mapped=False), clock=clock), 0)
        reader.fetch(timeout_ms=10_000)
        assert len(clock.slept_ms) < 150

    def test_takes_a_probe_interval(self, store):
        clock = SteppingClock()
        probes = ProbeInterval(50, 50)
        TailReader(open_log(store, clock=clock), 0, probes=probes).fetch(timeout_ms=1_000)
        assert len(clock.slept_ms) == pytest.approx(20, abs=1)


def cumulative(durations):
    total = 0.0
    for duration in durations:
        total += duration
        yield total


class TestOtherProcesses:
    def test_appends_of_four_are_all_seen_in_order(self, local_store):
        """Real processes and a real directory: each record once, in the order of its process."""
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=append_many, args=(local_store, f"p{number}", 50))
            for number in range(4)
        ]
        reader = TailReader(open_log(local_store), 0)
        for process in processes:
            process.start()
        seen: list[str] = []
        while len(seen) < 200:
            found = fetched(reader, timeout_ms=60_000)
            assert found, "a record that was appended is not seen"
            seen += found
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 4
        for number in range(4):
            mine = [value for value in seen if value.startswith(f"p{number}")]
            assert mine == [f"p{number}:{at}" for at in range(50)]
        assert len(file_names(local_store)) >= 200

    def test_a_thread_that_waits_is_woken_by_an_append(self, local_store):
        reader = TailReader(open_log(local_store), 0)
        found = []
        thread = threading.Thread(target=lambda: found.extend(fetched(reader, timeout_ms=60_000)))
        thread.start()
        append(open_log(local_store), "a")
        thread.join()
        assert found == ["a:0"]


def append_many(store, mark, count):
    log = open_log(store)
    for number in range(count):
        log.append(numbered(number, 1, mark=mark))
