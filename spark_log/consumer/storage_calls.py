"""A separate thread for a consumer's calls to an object store, one call at a time.

An object store may accept a request and never answer. `Consumer.poll` therefore starts a call,
waits as long as its timeout allows, and returns; the next poll waits for the same call. Meanwhile
nothing else changes the consumer's state: other methods wait until the call has ended or is
suspended.

A rebalance listener runs in the thread that polls. The call is *suspended* until that thread, while
it waits for the call, has run the listener.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from spark_log.errors import IllegalStateError
from spark_log.threads import Deadline, LimitedCall


class StorageCall:
    """One call that was started.

    Attributes:
        thread: the id of the thread that runs it.
        is_done: whether it has returned or raised.
    """

    def __init__(self) -> None:
        self.thread = 0
        self.is_done = False
        self._answer: object = None
        self._error: BaseException | None = None

    def run(self, call: Callable[[], object]) -> None:
        """Run the call, and keep its result or exception."""
        self.thread = threading.get_ident()
        try:
            self._answer = call()
        except BaseException as error:
            self._error = error

    def result(self) -> object:
        """Return the result of a call that is done, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._answer


class _Callback:
    """A function that the thread which waits for the call has to run."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.is_done = False
        self.error: BaseException | None = None


class StorageCalls:
    """Starts calls, one after the other, and waits for them.

    For one thread at a time; any thread may call `wake`.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: StorageCall | None = None
        self._callback: _Callback | None = None
        self._is_in_callback = False
        self._is_woken = False
        self._is_closed = False

    @property
    def is_suspended(self) -> bool:
        """Whether a call has not ended, and waits for its listener to run."""
        with self._changed:
            return self._is_busy and self._callback is not None

    @property
    def is_in_callback(self) -> bool:
        """Whether a listener is running, so that the caller is the listener."""
        return self._is_in_callback

    def start(self, call: Callable[[], object], deadline: Deadline | None = None) -> StorageCall:
        """Start a call; no other call may be running.

        Args:
            call: the function to run.
            deadline: the time after which the call sends no more requests; None for no limit.
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
        """Wait for a call and run its listeners; return whether the call is done.

        Also returns False after `wake`.
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
        """Wait until no call is running, or it is suspended; return False after the timeout."""
        due_s = time.monotonic() + timeout_s
        with self._changed:
            while self._is_busy and self._callback is None:
                left_s = due_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            return True

    def current(self) -> StorageCall | None:
        """Return the call that has not ended, None if there is none."""
        with self._changed:
            return self._current if self._is_busy else None

    def wake(self) -> None:
        """End the current `wait`, or the next one."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def run_in_caller(self, function: Callable[[], object]) -> None:
        """Run a function in the thread that waits for the current call.

        Outside of a call the function runs at once.

        Raises:
            IllegalStateError: the consumer was closed before a thread waited for the call.
            BaseException: the error that the function raised.
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
        """Let a suspended call continue; its listener does not run."""
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
                # A waiting thread must see that the call runs again, and not this callback again.
                self._callback = None
                self._changed.notify_all()
