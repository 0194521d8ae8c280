"""The storage's time, and how much the clock of a process may differ from it."""

import pytest

from spark_log.errors import ClockSkewError
from spark_log.storage import (
    FileInfo,
    StorageClock,
    check_clock_skew,
    newest_modified_us,
    storage_time_us,
)
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import HookedStore

MINUTE_US = 60_000_000


def test_the_newest_file_of_a_listing_gives_the_time():
    files = [FileInfo("a", 1, 5), FileInfo("b", 1, 9), FileInfo("c", 1, 7)]
    assert newest_modified_us(files) == 9


def test_by_an_empty_listing_nothing_is_old():
    assert newest_modified_us([]) == 0


def test_a_probe_shows_the_storages_time_and_leaves_nothing():
    clock = ManualClock()
    store = MemoryStore("storage-time", clock)
    clock.advance_ms(1234)
    assert storage_time_us(store, "topic/topic-0") == clock.time_us()
    assert list(store.list("topic/topic-0")) == []
    assert list(store.list_hidden("topic/topic-0")) == []


@pytest.mark.parametrize("skew_us", [0, 10 * MINUTE_US, -10 * MINUTE_US])
def test_clocks_ten_minutes_apart_are_accepted(skew_us):
    clock = ManualClock()
    check_clock_skew(clock, clock.time_us() - skew_us, 600_000)


@pytest.mark.parametrize(
    ("skew_us", "said"),
    [
        (25 * 60 * MINUTE_US, "1 day, 1:00:00 ahead of the storage's"),
        (-48 * 60 * MINUTE_US, "2 days, 0:00:00 behind the storage's"),
        (10 * MINUTE_US + 1, "ahead of"),
    ],
)
def test_clocks_further_apart_are_refused_and_the_error_says_what_to_do(skew_us, said):
    clock = ManualClock()
    storage_us = clock.time_us() - skew_us
    with pytest.raises(ClockSkewError, match=r"max\.clock\.skew\.ms") as caught:
        check_clock_skew(clock, storage_us, 600_000)
    assert said in str(caught.value)
    assert "Set the clock of this machine" in str(caught.value)
    assert caught.value.clock_us - caught.value.storage_us == skew_us
    assert not caught.value.retriable


class TestAClockForManyDirectories:
    @pytest.fixture
    def clock(self):
        return ManualClock()

    @pytest.fixture
    def store(self, clock):
        return HookedStore(MemoryStore("storage-clock", clock), is_mapped=False)

    def test_asks_an_object_store_once_a_minute(self, store, clock):
        shared = StorageClock(clock)
        shown = []
        for number in range(121):
            shown.append(shared.read(store, f"topic/topic-{number}").shown_us)
            clock.advance_ms(1_000)
        assert len(store.called("put")) == 3
        assert shown[0] == shown[59] < shown[60] == shown[119] < shown[120]

    def test_never_shows_a_time_that_the_storage_has_not_reached(self, store, clock):
        shared = StorageClock(clock)
        for number in range(200):
            assert shared.read(store, f"topic/topic-{number}").shown_us <= clock.time_us()
            clock.advance_ms(700)

    def test_tells_the_present_time_for_a_comparison(self, store, clock):
        shared = StorageClock(clock)
        shared.read(store, "topic/topic-0")
        clock.advance_ms(30_000)
        assert shared.read(store, "topic/topic-1").present_us(clock) == clock.time_us()

    def test_asks_each_directory_of_a_file_system(self, clock):
        store = HookedStore(MemoryStore("storage-clock", clock), is_mapped=True)
        shared = StorageClock(clock)
        for number in range(5):
            shared.read(store, f"topic/topic-{number}")
        assert len(store.called("put")) == 5
