"""Calls of a consumer while its storage does not answer."""

import pytest

from spark_log import KafkaTimeoutError, WakeupError
from spark_log.consumer.timed_calls import TimedCalls
from spark_log.errors import StorageUnavailableError
from tests.sleeping_clock import SleepingClock

AWAY = StorageUnavailableError("connection refused")


@pytest.fixture
def clock():
    return SleepingClock()


@pytest.fixture
def calls(clock):
    """Of a local root: its time is that of the clock."""
    return TimedCalls("/root", clock, 60_000, is_local=True)


def away(times):
    """Return a function that fails so many times."""
    left = [AWAY] * times

    def call():
        if left:
            raise left.pop()
        return "read"

    return call


@pytest.mark.parametrize("way", ["run", "run_stateless"])
class TestEachWay:
    def test_it_is_repeated(self, calls, way):
        assert getattr(calls, way)("end_offsets", away(20)) == "read"

    def test_up_to_the_timeout_of_the_call(self, calls, clock, way):
        with pytest.raises(KafkaTimeoutError, match=r"end_offsets: .*\(5000 ms\).*refused"):
            getattr(calls, way)("end_offsets", away(1_000), 5_000)
        assert 5_000 <= clock.monotonic_ms() < 5_100

    def test_up_to_default_api_timeout_ms(self, calls, clock, way):
        with pytest.raises(KafkaTimeoutError, match=r"default\.api\.timeout\.ms"):
            getattr(calls, way)("end_offsets", away(1_000))
        assert 60_000 <= clock.monotonic_ms() < 60_100

    def test_wakeup_ends_it(self, calls, way):
        calls.wakeup()
        with pytest.raises(WakeupError):
            getattr(calls, way)("position", away(1))


def test_what_calls_a_listener_is_made_once(calls, clock):
    with pytest.raises(StorageUnavailableError):
        calls.run("unsubscribe", away(1), is_repeated=False)
    assert clock.slept_ms == 0
