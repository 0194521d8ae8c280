"""A time limit for a call on a storage that may accept a request and never answer it.

No request can be taken back once it was sent, and a lock may be held by a thread that waits for
one. So the call runs on a thread of its own, and whoever asked for it waits no longer than it may.
What is left behind ends with the request that it waits for: the next one is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar

from spark_log.errors import KafkaTimeoutError, StorageTimeoutError, UnknownOutcomeError

_Answer = TypeVar("_Answer")

_LONGEST_WAIT_S: Final = threading.TIMEOUT_MAX


class Deadline:
    """Until when a call may wait, and for what it waits now.

    Attributes:
        what: the call, for people.
        setting: the key that limits it.
        timeout_ms: the limit.
        waits_for: the request that was sent last.
        has_written: a write was sent, so that the call may have taken effect.
    """

    __slots__ = ("_due_s", "has_written", "setting", "timeout_ms", "waits_for", "what")

    def __init__(self, what: str, setting: str, timeout_ms: float) -> None:
        self.what = what
        self.setting = setting
        self.timeout_ms = timeout_ms
        self.waits_for = ""
        self.has_written = False
        self._due_s = time.monotonic() + timeout_ms / 1000

    def left_s(self) -> float:
        """Return the seconds that are left, 0 when it is over."""
        return min(max(0.0, self._due_s - time.monotonic()), _LONGEST_WAIT_S)

    def error(self) -> KafkaTimeoutError | UnknownOutcomeError:
        """Return what the caller is told when it is over.

        A write that was sent may have taken effect, or may yet: that is no failure.
        """
        waited = f" while waiting for {self.waits_for}" if self.waits_for else ""
        text = f"{self.what}: not done within {self.setting} ({self.timeout_ms:.0f} ms){waited}"
        if self.has_written:
            return UnknownOutcomeError(
                f"{text}; whether it took effect is not known: look before you do it again"
            )
        return KafkaTimeoutError(
            f"{text}; nothing was changed: check that the storage can be reached and answers, or "
            f"raise {self.setting}, and try again"
        )


_current: ContextVar[Deadline | None] = ContextVar("spark_log_deadline", default=None)


def on_request(request: str, *, writes: bool = False) -> None:
    """Say which request is about to be sent.

    Raises:
        StorageTimeoutError: the time of the call that needs it is over.
    """
    deadline = _current.get()
    if deadline is None:
        return
    if not deadline.left_s():
        raise StorageTimeoutError(
            f"{deadline.what}: the time for it ({deadline.setting}) is over; {request} was not sent"
        )
    deadline.waits_for = request
    deadline.has_written |= writes


class LimitedCall:
    """A call on a thread of its own, which others wait for as long as they like."""

    def __init__(self, call: Callable[[], object], deadline: Deadline | None = None) -> None:
        """Begin it.

        Args:
            call: what to do.
            deadline: when no more requests are sent; None: it may take as long as it takes.
        """
        self._done = threading.Event()
        self._answer: object = None
        self._error: BaseException | None = None
        context = copy_context()
        context.run(_current.set, deadline)
        threading.Thread(
            target=context.run, args=(self._run, call), name="spark-log-call", daemon=True
        ).start()

    def wait(self, timeout_s: float) -> bool:
        """Return whether it is done, after waiting for it."""
        return self._done.wait(timeout_s)

    def result(self) -> object:
        """Return what came of it, or raise that; only when it is done."""
        if self._error is not None:
            raise self._error
        return self._answer

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self._answer = call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()


def call_within(
    timeout_ms: float, call: Callable[[], _Answer], *, what: str, setting: str
) -> _Answer:
    """Return what ``call`` returns, if it is done in time. Inside of another one that one counts.

    Args:
        timeout_ms: how long to wait.
        call: runs on another thread; everything that it touches is for any thread.
        what: the call, for people.
        setting: the key that ``timeout_ms`` comes from.

    Raises:
        KafkaTimeoutError: it is not done, and has changed nothing.
        UnknownOutcomeError: it is not done, and may have changed something.
    """
    if _current.get() is not None:
        return call()
    deadline = Deadline(what, setting, timeout_ms)
    limited = LimitedCall(call, deadline)
    if not limited.wait(deadline.left_s()):
        raise deadline.error()
    return limited.result()  # type: ignore[return-value]
