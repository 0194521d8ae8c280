"""Calls that wait for a storage which does not answer."""

import errno
import os

import pytest

from spark_log.errors import (
    AuthorizationError,
    InvalidRootError,
    KafkaTimeoutError,
    NotFoundError,
    RootNotFoundError,
    StorageFullError,
    StorageUnavailableError,
    UnknownOutcomeError,
    UnsupportedStoreError,
)
from spark_log.storage import (
    OUTAGE_LOG,
    call_through_outages,
    retry_append,
    retry_while_unavailable,
    storage_errors,
)
from spark_log.threads import Deadline, within
from spark_log.threads.timed_call import on_request
from tests.sleeping_clock import SleepingClock

AWAY = StorageUnavailableError("connection refused")


@pytest.fixture
def clock():
    return SleepingClock()


def failing(clock, *errors, takes_ms=10.0):
    """Return a function that raises each of these errors, then returns the number of its calls."""
    left = list(errors)
    calls: list[None] = []

    def call():
        calls.append(None)
        clock.advance_ms(takes_ms)
        if left:
            raise left.pop(0)
        return len(calls)

    return call


def through(clock, call, timeout_ms=60_000):
    return call_through_outages(
        timeout_ms, call, what="opening x", setting="max.block.ms", is_local=True, clock=clock
    )


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name == OUTAGE_LOG]


def test_a_call_is_repeated_until_the_storage_answers(clock):
    assert through(clock, failing(clock, *[AWAY] * 20)) == 21
    assert 12_000 < clock.monotonic_ms() < 25_000, "pauses of a second, after shorter ones"


def test_when_the_time_is_over_the_error_has_the_setting_and_the_last_error(clock):
    with pytest.raises(
        KafkaTimeoutError, match=r"opening x: .*max\.block\.ms \(5000 ms\): connection refused"
    ) as told:
        through(clock, failing(clock, *[AWAY] * 1000), timeout_ms=5_000)
    assert told.value.retriable
    assert 5_000 <= clock.monotonic_ms() < 5_100, "the last pause ends with the time"


@pytest.mark.parametrize(
    "error",
    [
        AuthorizationError("wrong credentials"),
        InvalidRootError("the bucket does not exist"),
        KafkaTimeoutError("another time limit"),
        NotFoundError("no such file"),
        RootNotFoundError("no root"),
        StorageFullError("no space"),
        UnknownOutcomeError("lost"),
        UnsupportedStoreError("no put-if-absent"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_waiting_cannot_mend_fails_at_once(clock, error):
    with pytest.raises(type(error)) as told:
        through(clock, failing(clock, error))
    assert told.value is error
    assert clock.slept_ms == 0


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT])
def test_a_mount_that_is_stale_is_waited_for(clock, number):
    raises = [True, True]

    def call():
        with storage_errors("x"):
            if raises:
                raises.pop()
                raise OSError(number, os.strerror(number))
        return "read"

    assert through(clock, call) == "read"


def test_a_file_system_that_refuses_is_not_waited_for(clock):
    def call():
        with storage_errors("x"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(AuthorizationError):
        through(clock, call)
    assert clock.slept_ms == 0


class TestWrites:
    def test_a_call_is_not_repeated_after_it_has_sent_a_write(self, clock):
        calls: list[None] = []

        def call():
            calls.append(None)
            on_request("PUT x", writes=True)
            raise AWAY

        deadline = Deadline("create_topics", "default.api.timeout.ms", 60_000, clock)
        with within(deadline), pytest.raises(StorageUnavailableError):
            retry_while_unavailable(call, deadline, clock)
        assert len(calls) == 1

    def test_an_append_that_says_nothing_was_done_is_repeated(self):
        calls: list[None] = []

        def append():
            calls.append(None)
            on_request("PUT x", writes=True)
            if len(calls) < 3:
                raise AWAY
            return len(calls)

        with within(Deadline("create_topics", "default.api.timeout.ms", 60_000)):
            assert retry_append(append) == 3

    def test_after_it_the_outcome_of_the_call_is_known(self, clock):
        def append():
            on_request("PUT x", writes=True)
            clock.advance_ms(60_000)
            raise AWAY

        with (
            within(Deadline("create_topics", "default.api.timeout.ms", 60_000, clock)),
            pytest.raises(KafkaTimeoutError, match="connection refused"),
        ):
            retry_append(append)

    def test_without_a_time_limit_it_is_made_once(self):
        def append():
            raise AWAY

        with pytest.raises(StorageUnavailableError):
            retry_append(append)


class TestLog:
    def test_a_wait_is_told_once_when_it_is_longer_than_a_second_and_when_it_ends(
        self, clock, caplog
    ):
        through(clock, failing(clock, *[AWAY] * 20))
        first, last = messages(caplog)
        assert "opening x: waiting up to 60 s (max.block.ms)" in first
        assert "connection refused" in first
        assert "answers again, after 1" in last

    def test_a_shorter_one_is_not(self, clock, caplog):
        through(clock, failing(clock, AWAY))
        assert messages(caplog) == []


def test_inside_of_a_call_with_a_time_limit_the_outer_one_waits(clock):
    with within(Deadline("the page", "its time limit", 15_000)), pytest.raises(type(AWAY)):
        through(clock, failing(clock, AWAY))
    assert clock.slept_ms == 0


def test_what_is_called_before_a_pause_may_end_the_wait(clock):
    def wakeup():
        raise InterruptedError

    deadline = Deadline("position", "default.api.timeout.ms", 60_000, clock)
    with pytest.raises(InterruptedError):
        retry_while_unavailable(failing(clock, AWAY), deadline, clock, before_pause=wakeup)
