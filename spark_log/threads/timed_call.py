"""Time limits for calls on a storage that may accept a request and never answer it.

A request cannot be cancelled once it is sent, and a thread that waits for an answer may hold a
lock. Therefore a call with a limit runs on a thread of its own, and its caller stops waiting when
the time is up. The thread ends with the request that it waits for: `on_request` refuses to send
more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final, Generic, TypeVar

from spark_log.errors import (
    KafkaTimeoutError,
    SparkLogError,
    StorageTimeoutError,
    UnknownOutcomeError,
)
from spark_log.util import SYSTEM_CLOCK, Clock

_Answer = TypeVar("_Answer")

_LONGEST_WAIT_S: Final = threading.TIMEOUT_MAX


class CallExpiredError(StorageTimeoutError):
    """The caller's time is up. Nothing was sent; the error says nothing about the storage."""


class Deadline:
    """The time limit of one call, and the request that the call waits for.

    Attributes:
        what: the call, as error messages name it.
        setting: the config key that sets the limit.
        timeout_ms: the limit.
        waits_for: the request that was sent last, as error messages name it.
        has_written: whether a write was sent, so that the call may have taken effect.
        failure: the error of the last attempt, if the call is repeated.
    """

    __slots__ = (
        "_began_ms",
        "_clock",
        "_due_ms",
        "failure",
        "has_written",
        "setting",
        "timeout_ms",
        "waits_for",
        "what",
    )

    def __init__(
        self, what: str, setting: str, timeout_ms: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.what = what
        self.setting = setting
        self.timeout_ms = timeout_ms
        self.waits_for = ""
        self.has_written = False
        self.failure: SparkLogError | None = None
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._due_ms = self._began_ms + timeout_ms

    def left_s(self) -> float:
        """Return the seconds that remain; 0 when the time is up."""
        return min(max(0.0, self._due_ms - self._clock.monotonic_ms()) / 1000, _LONGEST_WAIT_S)

    def passed_ms(self) -> float:
        """Return the milliseconds since the call began."""
        return self._clock.monotonic_ms() - self._began_ms

    def error(self) -> KafkaTimeoutError | UnknownOutcomeError:
        """Return the error to raise when the time is up.

        After a write was sent this is `UnknownOutcomeError`, not a failure: the write may have
        taken effect, or may still do so.
        """
        waited = f" while waiting for {self.waits_for}" if self.waits_for else ""
        text = f"{self.what}: not done within {self.setting} ({self.timeout_ms:.0f} ms)"
        if self.failure is not None and not self.has_written:
            return KafkaTimeoutError(f"{text}: {self.failure.message}")
        text += waited
        if self.has_written:
            return UnknownOutcomeError(
                f"{text}; it is not known whether it took effect: check before you do it again"
            )
        return KafkaTimeoutError(
            f"{text}; nothing was changed: check that the storage can be reached and answers, or "
            f"raise {self.setting}, then try again"
        )


_current: ContextVar[Deadline | None] = ContextVar("spark_log_deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the deadline of the call that runs; None if it has no time limit."""
    return _current.get()


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Give the block a deadline: it sends no more requests when the time is up.

    Calls in the block have no time limits of their own, and do not wait through an outage.
    """
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def on_request(request: str, *, writes: bool = False) -> None:
    """Record which request is about to be sent, in the deadline of the call that runs, if any.

    Args:
        request: the request, as error messages name it.
        writes: whether it may change something.

    Raises:
        CallExpiredError: the time of the call is up; the request must not be sent.
    """
    deadline = _current.get()
    if deadline is None:
        return
    if not deadline.left_s():
        raise CallExpiredError(
            f"{deadline.what}: its time limit ({deadline.setting}) has passed; {request} was not "
            f"sent"
        )
    deadline.waits_for = request
    deadline.has_written |= writes


def in_new_thread(
    function: Callable[[], _Answer], name: str, *, is_daemon: bool = True
) -> Future[_Answer]:
    """Call a function in a thread of its own, and return a future that cannot be cancelled.

    Raises:
        RuntimeError: the system allows no more threads, or the interpreter is shutting down.
    """
    future: Future[_Answer] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=settle, args=(future, function), name=name, daemon=is_daemon).start()
    return future


def settle(future: Future[_Answer], function: Callable[[], _Answer]) -> None:
    """Call a function, and put its result or its error into a future."""
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class LimitedCall(Generic[_Answer]):
    """A call that runs on a thread of its own. Other threads wait for it as long as they choose."""

    def __init__(self, call: Callable[[], _Answer], deadline: Deadline | None = None) -> None:
        """Start the call.

        Args:
            call: the function to run.
            deadline: the time after which the call sends no more requests; None for no limit.
        """
        context = copy_context()
        context.run(_current.set, deadline)
        self._future = in_new_thread(partial(context.run, call), "spark-log-call")

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds; return whether the call has ended."""
        with suppress(FutureTimeoutError):
            self._future.exception(timeout_s)
        return self._future.done()

    def result(self) -> _Answer:
        """Wait until the call has ended. Return what it returned, or raise what it raised."""
        return self._future.result()


def call_within(
    timeout_ms: float, call: Callable[[], _Answer], *, what: str, setting: str
) -> _Answer:
    """Run ``call`` on another thread and return its result, if the call ends within ``timeout_ms``.

    Inside of another `call_within` only the outer limit counts.

    Args:
        timeout_ms: the time limit.
        call: the function to run; everything that it touches must be thread-safe.
        what: the call, as error messages name it.
        setting: the config key that ``timeout_ms`` comes from.

    Raises:
        KafkaTimeoutError: the call has not ended, and has changed nothing.
        UnknownOutcomeError: the call has not ended, and may have changed something.
    """
    if _current.get() is not None:
        return call()
    deadline = Deadline(what, setting, timeout_ms)
    limited = LimitedCall(call, deadline)
    if not limited.wait(deadline.left_s()):
        raise deadline.error()
    return limited.result()


def call_beside(call: Callable[[], _Answer]) -> Callable[[], _Answer]:
    """Start ``call`` on another thread, within the time limit of the caller if it has one.

    Returns:
        A function that waits for the call, and returns what it returned or raises what it raised.
    """
    return LimitedCall(call, _current.get()).result
