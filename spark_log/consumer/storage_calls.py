"""What a consumer asks of an object store, on a thread beside its own: one thing at a time.

A store may accept a request and never answer it. So `Consumer.poll` begins what it needs, waits as
long as it may, and returns; the next poll waits on for the same. Nobody else touches the consumer's
state meanwhile: whoever wants to waits until the call is done, or stands still.

Listeners belong to the thread that polls. The call *stands still* until that thread, waiting for
it, has run them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from spark_log.errors import IllegalStateError
from spark_log.storage.deadline import Deadline, LimitedCall


class StorageCall:
    """One call: begun, and at some time done."""

    def __init__(self) -> None:
        self.thread = 0
        self.is_done = False
        self._answer: object = None
        self._error: BaseException | None = None

    def run(self, call: Callable[[], object]) -> None:
        """Do it."""
        self.thread = threading.get_ident()
        try:
            self._answer = call()
        except BaseException as error:
            self._error = error

    def result(self) -> object:
        """Return what came of it, or raise that; only when it is done."""
        if self._error is not None:
            raise self._error
        return self._answer


class _Callback:
    """What a call wants to be run by who waits for it."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.is_done = False
        self.error: BaseException | None = None


class StorageCalls:
    """Begins calls, one after the other, and waits for them. For one thread; `wake` for any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: StorageCall | None = None
        self._callback: _Callback | None = None
        self._is_in_callback = False
        self._is_woken = False
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """Whether a call is under way, and does not stand still."""
        with self._changed:
            return self._is_busy and self._callback is None

    @property
    def is_suspended(self) -> bool:
        """Whether a call is under way that waits for a listener, or for what the listener does."""
        with self._changed:
            return self._is_busy and self._callback is not None

    @property
    def is_in_callback(self) -> bool:
        """Whether a listener is being run: the caller is what it calls."""
        return self._is_in_callback

    def start(self, call: Callable[[], object], deadline: Deadline | None = None) -> StorageCall:
        """Begin a call; none may be under way.

        Args:
            call: what to do.
            deadline: when it sends no more requests; None: it takes as long as it takes.
        """
        begun = StorageCall()
        with self._changed:
            assert not self._is_busy
            self._current = begun

        def run() -> None:
            begun.run(call)
            with self._changed:
                begun.is_done = True
                self._changed.notify_all()

        LimitedCall(run, deadline)
        return begun

    def wait(self, call: StorageCall, timeout_s: float) -> bool:
        """Return whether a call is done, after waiting for it and running its listeners.

        False also after `wake`.
        """
        due_s = time.monotonic() + timeout_s
        while True:
            with self._changed:
                while not (call.is_done or self._callback is not None or self._is_woken):
                    left_s = due_s - time.monotonic()
                    if left_s <= 0:
                        break
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                if call.is_done:
                    return True
                callback = self._callback
                if callback is None or self._is_woken:
                    self._is_woken = False
                    return False
            self._run_callback(callback)

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Return whether no call is running, after waiting for that."""
        due_s = time.monotonic() + timeout_s
        with self._changed:
            while self._is_busy and self._callback is None:
                left_s = due_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            return True

    def current(self) -> StorageCall | None:
        """Return the call that is under way."""
        with self._changed:
            return self._current if self._is_busy else None

    def wake(self) -> None:
        """End a `wait`, or the next one that would."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def run_in_caller(self, function: Callable[[], object]) -> None:
        """Run a function in the thread that waits for the call that this is part of.

        Outside of a call it is run at once.

        Raises:
            IllegalStateError: the consumer was closed before anybody waited.
            BaseException: what the function raises.
        """
        current = self.current()
        if current is None or current.thread != threading.get_ident():
            function()
            return
        callback = _Callback(function)
        with self._changed:
            self._callback = callback
            self._changed.notify_all()
            while not callback.is_done and not self._is_closed:
                self._changed.wait()
            self._callback = None
            if not callback.is_done:
                raise IllegalStateError("the consumer was closed before its listener was called")
        if callback.error is not None:
            raise callback.error

    def close(self) -> None:
        """Let a call that stands still go on to its end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def _is_busy(self) -> bool:
        return self._current is not None and not self._current.is_done

    def _run_callback(self, callback: _Callback) -> None:
        self._is_in_callback = True
        try:
            callback.function()
        except BaseException as error:
            callback.error = error
        finally:
            self._is_in_callback = False
            with self._changed:
                callback.is_done = True
                # Whoever waits sees that the call runs again, and not this one a second time.
                self._callback = None
                self._changed.notify_all()
