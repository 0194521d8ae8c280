"""Clocks: the machine's, and one that moves only when told to."""

import threading
import time

import pytest

from spark_log.util.clock import SYSTEM_CLOCK, ManualClock, SystemClock


class TestSystemClock:
    def test_the_wall_clock_tells_microseconds_since_the_epoch(self):
        before = time.time_ns() // 1_000
        now = SYSTEM_CLOCK.time_us()
        assert before <= now <= time.time_ns() // 1_000

    def test_the_monotonic_clock_tells_milliseconds_and_never_goes_back(self):
        readings = [SYSTEM_CLOCK.monotonic_ms() for _ in range(100)]
        assert readings == sorted(readings)
        before = time.clock_gettime(time.CLOCK_BOOTTIME) * 1_000
        now = SYSTEM_CLOCK.monotonic_ms()
        assert before <= now + 0.001 <= time.clock_gettime(time.CLOCK_BOOTTIME) * 1_000 + 0.002

    def test_it_counts_while_the_machine_is_suspended(self, monkeypatch):
        times = {time.CLOCK_BOOTTIME: 7_000_000}
        monkeypatch.setattr(time, "clock_gettime_ns", times.__getitem__)
        assert SystemClock().monotonic_ms() == 7

    def test_without_any_such_clock_pythons_will_do(self, monkeypatch):
        monkeypatch.setattr(SystemClock, "_MONOTONIC_ID", None)
        monkeypatch.setattr(time, "monotonic_ns", lambda: 5_000_000)
        assert SystemClock().monotonic_ms() == 5

    @pytest.mark.parametrize(("ms", "seconds"), [(1_500, 1.5), (0.5, 0.0005), (0, 0), (-3, 0)])
    def test_sleeping_takes_milliseconds_and_never_less_than_none(self, monkeypatch, ms, seconds):
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        SystemClock().sleep_ms(ms)
        assert slept == [seconds]


class TestManualClock:
    def test_it_stands_still_until_it_is_moved(self):
        clock = ManualClock(time_us=1_000)
        assert [clock.time_us(), clock.monotonic_ms(), clock.time_us()] == [1_000, 0, 1_000]

    def test_both_sides_move_together(self):
        clock = ManualClock(time_us=1_000)
        clock.advance_ms(2.5)
        clock.advance_ms(1)
        assert (clock.time_us(), clock.monotonic_ms()) == (4_500, 3.5)

    def test_sleeping_for_no_time_returns_at_once(self):
        ManualClock().sleep_ms(0)
        ManualClock().sleep_ms(-1)

    def test_sleepers_wake_when_their_time_has_come_and_not_before(self):
        clock, woken = ManualClock(), []
        asleep = threading.Semaphore(0)

        def sleep(duration_ms):
            asleep.release()
            clock.sleep_ms(duration_ms)
            woken.append((duration_ms, clock.monotonic_ms()))

        threads = [threading.Thread(target=sleep, args=(ms,)) for ms in (10, 20)]
        for thread in threads:
            thread.start()
        for _ in threads:
            asleep.acquire(timeout=60)
        while threads[1].is_alive():
            clock.advance_ms(1)
        for thread in threads:
            thread.join(timeout=60)
        assert sorted(duration for duration, _ in woken) == [10, 20]
        assert all(at_ms >= duration for duration, at_ms in woken)


def test_a_wait_for_what_is_left_ends():
    """Microseconds are not divided: what is less than one counts as one."""
    clock = ManualClock()
    began_ms = clock.monotonic_ms()
    clock.advance_ms(0.0001)
    assert clock.monotonic_ms() - began_ms == 0.001
