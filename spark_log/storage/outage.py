"""Waits until a storage answers again: a server that restarts, a mount that is stale.

A client of Kafka that is started while the brokers restart waits for them. A call in spark-log does
the same: it is repeated while the storage does not answer, up to its time limit. An error that
waiting cannot mend is raised at once: a bucket that does not exist, credentials that are refused, a
path that is not a root. A host name that cannot be resolved is retried, as by Kafka's clients with
``bootstrap.resolve.timeout.ms`` (KIP-909): the name of a container is known only while it runs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from spark_log.errors import SparkLogError, StorageError, StorageUnavailableError
from spark_log.storage.os_errors import TRANSIENT_ERRNOS
from spark_log.threads import Deadline, LimitedCall, current_deadline
from spark_log.util import SYSTEM_CLOCK, Clock, retry_pause_ms

OUTAGE_LOG: Final = "spark_log.outage"
"""Name of the logger for calls that wait for a storage. The record with ``is_over`` ends a wait."""

_log = logging.getLogger(OUTAGE_LOG)

_Answer = TypeVar("_Answer")

NOTICE_S: Final = 1.0
"""A call that waits longer than this logs a warning."""

_FIRST_PAUSE_MS: Final = 100
_MAX_PAUSE_MS: Final = 1_000


def is_unavailable(error: SparkLogError) -> bool:
    """Return whether the storage did not answer or asked for a retry, and did nothing."""
    if isinstance(error, StorageUnavailableError):
        return True
    cause = error.__cause__
    return (
        isinstance(error, StorageError)
        and not error.retriable
        and isinstance(cause, OSError)
        and cause.errno in TRANSIENT_ERRNOS
    )


def call_through_outages(
    timeout_ms: float,
    call: Callable[[], _Answer],
    *,
    what: str,
    setting: str,
    is_local: bool,
    clock: Clock = SYSTEM_CLOCK,
    notes_silence: bool = False,
    before_pause: Callable[[], object] = lambda: None,
) -> _Answer:
    """Return the result of ``call``, which is repeated while the storage does not answer.

    It is not repeated after it has sent a write: the write may have taken effect. Inside of another
    call with a time limit, it is called once: the outer call waits.

    Args:
        timeout_ms: the time limit.
        call: the function to call. For an object store it runs on another thread, and everything
            that it touches must be thread-safe.
        what: the call, as messages name it.
        setting: the config key that ``timeout_ms`` comes from.
        is_local: whether the storage is a local path. The time limit then ends the retries, but
            does not interrupt an attempt.
        clock: the clock for a local path; the time limit of an object store is in real time.
        notes_silence: whether to log after `NOTICE_S` that no answer has arrived, also if no error
            has occurred yet. For short calls only: other calls may take longer than that.
        before_pause: function called before each pause; it may raise, to end the waiting.

    Raises:
        KafkaTimeoutError: the time is over; nothing was changed.
        UnknownOutcomeError: the time is over, and the call may have changed something.
        SparkLogError: the call's error, if waiting cannot mend it.
    """
    if current_deadline() is not None:
        return call()
    if is_local:
        deadline = Deadline(what, setting, timeout_ms, clock)
        return retry_while_unavailable(call, deadline, clock, before_pause=before_pause)
    deadline = Deadline(what, setting, timeout_ms)
    limited = LimitedCall(
        lambda: retry_while_unavailable(call, deadline, before_pause=before_pause), deadline
    )
    is_done = limited.wait(min(NOTICE_S, deadline.left_s()))
    if not is_done and notes_silence and deadline.failure is None:
        _log.warning("%s: waiting for %s", what, deadline.waits_for or "the storage")
    if not (is_done or limited.wait(deadline.left_s())):
        raise deadline.error()
    return limited.result()


def retry_append(append: Callable[[], _Answer]) -> _Answer:
    """Return the result of ``append``; repeat it while the storage does not answer.

    The time limit is that of the current call (`current_deadline`). Without one, ``append`` is
    called once.

    Args:
        append: function that does nothing but append, and that has appended nothing if it raises
            `StorageUnavailableError`.

    Raises:
        KafkaTimeoutError: the time is over; nothing was appended.
        SparkLogError: the append's error, if waiting cannot mend it.
    """
    deadline = current_deadline()
    if deadline is None:
        return append()
    had_written = deadline.has_written

    def attempt() -> _Answer:
        try:
            return append()
        except StorageUnavailableError:
            deadline.has_written = had_written
            raise

    return retry_while_unavailable(attempt, deadline)


def retry_while_unavailable(
    call: Callable[[], _Answer],
    deadline: Deadline,
    clock: Clock = SYSTEM_CLOCK,
    *,
    before_pause: Callable[[], object] = lambda: None,
) -> _Answer:
    """Return the result of ``call``; repeat it while the storage does not answer.

    Args:
        call: the function to call; it is not repeated after it has sent a write.
        deadline: the deadline until which the call is repeated.
        clock: the clock of the pauses.
        before_pause: function called before each pause; it may raise, to end the waiting.

    Raises:
        KafkaTimeoutError: the time is over; the message contains the last error.
        SparkLogError: the call's error, if waiting cannot mend it.
    """
    wait: OutageWait | None = None  # most calls need none
    while True:
        try:
            answer = call()
        except SparkLogError as error:
            if deadline.has_written or not is_unavailable(error):
                raise
            wait = wait or OutageWait(lambda: deadline, clock)
            wait.check(error)
            before_pause()
            wait.pause()
        else:
            if wait is not None:
                wait.end()
            return answer


class OutageWait:
    """The pauses of a loop that repeats a step until the storage answers again.

    Call `check` and `pause` after each failure, and `end` after each success. Not thread-safe.
    """

    def __init__(self, begin: Callable[[], Deadline], clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare; nothing has failed yet.

        Args:
            begin: function that returns the deadline of the wait; called at the first of several
                failures in a row.
            clock: the clock of the pauses.
        """
        self._begin = begin
        self._clock = clock
        self._random = Random()
        self._deadline: Deadline | None = None
        self._failures = 0
        self._is_noted = False

    def check(self, error: SparkLogError) -> None:
        """Check that time is left after a failure.

        Raises:
            KafkaTimeoutError: the time is over; the message contains the error.
        """
        if self._deadline is None:
            self._deadline = self._begin()
        self._failures += 1
        self._deadline.failure = error
        if not self._deadline.left_s():
            raise self._deadline.error() from error

    def pause(self) -> None:
        """Wait before the next attempt, longer after each failure; warn once after `NOTICE_S`."""
        deadline = self._deadline
        assert deadline is not None
        assert deadline.failure is not None
        pause_ms = retry_pause_ms(
            self._failures, initial_ms=_FIRST_PAUSE_MS, max_ms=_MAX_PAUSE_MS, random=self._random
        )
        passed_ms = deadline.passed_ms()
        if not self._is_noted and passed_ms + pause_ms >= NOTICE_S * 1000:
            self._is_noted = True
            _log.warning(
                "%s: waiting %sfor the storage: %s",
                deadline.what,
                f"up to {deadline.timeout_ms / 1000:.0f} s ({deadline.setting}) "
                if deadline.timeout_ms < math.inf
                else "",
                deadline.failure.message,
            )
        self._clock.sleep_ms(min(pause_ms, deadline.left_s() * 1000))

    def end(self) -> None:
        """End the wait after a success."""
        deadline, self._deadline = self._deadline, None
        if deadline is None:
            return
        deadline.failure = None
        self._failures = 0
        if self._is_noted:
            self._is_noted = False
            _log.warning(
                "%s: the storage answers again, after %.1f s",
                deadline.what,
                deadline.passed_ms() / 1000,
                extra={"is_over": True},
            )
