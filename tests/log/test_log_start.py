"""Moving the log start offset: records before it are gone, no matter what runs beside it."""

import pytest

from spark_log.errors import OffsetOutOfRangeError, StorageError, UnknownOutcomeError
from spark_log.log.log_start import move_log_start
from spark_log.record import ProducerAppend
from spark_log.util.clock import ManualClock
from tests.log.support import (
    HookedStore,
    done_but,
    failing,
    file_names,
    merge,
    open_log,
    values,
)
from tests.record.samples import numbered
from tests.simulation import LogSimulation, SimulationFailedError


@pytest.fixture
def log(memory_store):
    """Ten records in segments of three: 0, 3, 6 and 9."""
    log = open_log(memory_store)
    for first in range(0, 9, 3):
        log.append(numbered(first, 3))
    log.append(numbered(9, 1))
    return log


def offsets(log):
    return [offset for offset, _ in values(log)]


class TestWhatIsLeft:
    @pytest.mark.parametrize("start", [1, 3, 5, 9, 10])
    def test_records_before_it_cannot_be_read_and_all_others_can(self, log, memory_store, start):
        assert move_log_start(log, start) == start
        other = open_log(memory_store)
        assert offsets(other) == list(range(start, 10))
        with pytest.raises(OffsetOutOfRangeError):
            other.read(start - 1)
        assert other.append(numbered(10, 2)).base_offset == 10
        assert offsets(other) == list(range(start, 12))

    @pytest.mark.parametrize("start", [1, 3, 5, 9, 10])
    def test_a_log_that_was_listed_is_listed_once_more_at_the_end(self, memory_store, start):
        store = HookedStore(memory_store)
        log = open_log(store)
        for first in range(0, 9, 3):
            log.append(numbered(first, 3))
        log.append(numbered(9, 1))
        view = log.observe()
        store.calls.clear()
        assert move_log_start(log, start, view) == start
        listings = [at for at, (name, _) in enumerate(store.calls) if name == "list"]
        puts = [at for at, (_, path) in enumerate(store.calls) if path.endswith(".start")]
        assert len(listings) == 1
        assert listings[0] > puts[0]
        assert offsets(open_log(memory_store)) == list(range(start, 10))

    def test_an_old_listing_is_made_again(self, memory_store):
        clock = ManualClock()
        log = open_log(memory_store, clock=clock)
        log.append(numbered(0, 3))
        view = log.observe()
        open_log(memory_store, clock=clock).append(numbered(3, 3))
        clock.advance_ms(29_999)
        with pytest.raises(OffsetOutOfRangeError):
            move_log_start(log, 5, view)
        clock.advance_ms(1)
        assert move_log_start(log, 5, view) == 5

    def test_it_never_goes_back(self, log, memory_store):
        move_log_start(log, 5)
        before = file_names(memory_store)
        assert move_log_start(log, 3) == move_log_start(log, 0) == 5
        assert file_names(memory_store) == before

    def test_a_start_that_is_no_offset_of_the_log_is_refused(self, log, memory_store):
        before = file_names(memory_store)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            move_log_start(log, 11)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 10)
        assert file_names(memory_store) == before

    def test_it_may_lie_in_a_rewritten_segment(self, log, memory_store):
        merge(memory_store, 0, 9)
        move_log_start(log, 4)
        assert offsets(open_log(memory_store)) == [4, 5, 6, 7, 8, 9]

    def test_a_segment_that_holds_it_may_be_rewritten_later(self, log, memory_store):
        move_log_start(log, 4)
        merge(memory_store, 4, 9)
        assert offsets(open_log(memory_store)) == [4, 5, 6, 7, 8, 9]

    def test_segments_keep_their_files_for_readers(self, log, memory_store):
        before = {name for name in file_names(memory_store) if name.endswith(".log")}
        reader = log.scan(0)
        next(reader)
        move_log_start(log, 10)
        assert before <= set(file_names(memory_store))


class TestProducers:
    def test_a_repeat_of_a_deleted_append_is_still_known(self, memory_store, clock):
        log = open_log(memory_store, clock=clock)
        append = ProducerAppend(7, 0, 0)
        first = log.append(numbered(0, 3), producer=append)
        log.append(numbered(3, 1))
        move_log_start(log, 4)
        again = open_log(memory_store, clock=clock).append(numbered(0, 3), producer=append)
        assert again.base_offset == first.base_offset == 0
        assert open_log(memory_store).observe().log_end_offset == 4


class TestFaults:
    def test_a_lost_answer_is_an_error_and_a_retry_finds_the_start_moved(self, memory_store):
        store = HookedStore(memory_store)
        log = open_log(store)
        log.append(numbered(0, 3))
        store.once("put_if_absent", done_but(UnknownOutcomeError("no answer")))
        with pytest.raises(UnknownOutcomeError):
            move_log_start(log, 2)
        assert move_log_start(log, 2) == 2

    def test_without_a_snapshot_nothing_is_deleted(self, memory_store):
        store = HookedStore(memory_store)
        log = open_log(store)
        log.append(numbered(0, 3))
        store.once("put", failing(StorageError("disk gone")))
        with pytest.raises(StorageError):
            move_log_start(log, 2)
        assert open_log(memory_store).observe().log_start_offset == 0

    def test_a_second_process_at_the_same_offset_succeeds_too(self, memory_store):
        store = HookedStore(memory_store)
        log = open_log(store)
        log.append(numbered(0, 3))

        def another_is_first(path, call):
            memory_store.put_if_absent(path, b"")
            return call()

        store.once("put_if_absent", another_is_first)
        assert move_log_start(log, 2) == 2


class TestSimulation:
    SEEDS = 120

    def test_without_the_segments_base_something_is_lost(self, monkeypatch):
        monkeypatch.setattr(
            "spark_log.log.log_start._segment_base", lambda log, view, offset: offset
        )
        assert any(fails(seed) for seed in range(self.SEEDS))


def fails(seed):
    try:
        LogSimulation(seed).run()
    except SimulationFailedError:
        return True
    return False
