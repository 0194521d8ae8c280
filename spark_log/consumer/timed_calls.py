"""Runs those parts of a consumer's methods that may wait for the storage, with timeouts.

An object store may accept a request and never answer. `Consumer.poll` therefore starts a call on
another thread, waits as long as its timeout allows, and returns; the next poll waits for the same
call. Meanwhile nothing else changes the consumer's state: other methods wait until the call has
ended or is suspended.

A rebalance listener runs in the thread that polls. The call is *suspended* until that thread, while
it waits for the call, has run the listener.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from spark_log.errors import IllegalStateError, SparkLogError, WakeupError
from spark_log.storage import call_through_outages, retry_while_unavailable
from spark_log.threads import Deadline, LimitedCall, settle
from spark_log.util import SYSTEM_CLOCK, Clock

_log = logging.getLogger(__name__)

API_TIMEOUT: Final = "default.api.timeout.ms"

_Result = TypeVar("_Result")


class TimedCalls:
    """Runs calls in the caller's thread on a local root, and on another thread on an object store.

    On a local root a call lasts as long as the operating system needs; timeouts have no effect.
    On an object store the caller waits until a timeout, and the call continues without it. Calls
    that change the consumer's state run one at a time. Inside a rebalance listener calls run in the
    caller's thread, because the poll that called the listener waits for it.

    For one thread at a time; any thread may call `wakeup`.
    """

    def __init__(self, root: str, clock: Clock, default_timeout_ms: float, *, is_local: bool):
        """Prepare; no thread is started.

        Args:
            root: the root's path or URL, for error messages.
            clock: the clock that measures the deadlines of polls.
            default_timeout_ms: ``default.api.timeout.ms``.
            is_local: whether the root is a local path, so that calls have no timeouts.
        """
        self._root = root
        self._clock = clock
        self._default_timeout_ms = default_timeout_ms
        self._is_local = is_local
        self._is_woken = False
        # The rest is for an object store.
        self._changed = threading.Condition()
        self._running: Future[object] | None = None
        self._running_thread = 0
        self._update: Future[object] | None = None
        self._listener: _Listener | None = None
        self._is_in_listener = False
        self._is_closed = False

    @property
    def is_limited(self) -> bool:
        """Whether calls have timeouts: the root is on an object store."""
        return not self._is_local

    # --- parts of a poll -------------------------------------------------------------------------

    def run_until(
        self,
        call: Callable[[], object],
        deadline_ms: float,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Run a part of a poll; return whether it is done.

        If not, it continues, and the next `finish_until` waits for it.

        Args:
            call: the part of the poll.
            deadline_ms: the monotonic time until which to wait.
            is_needed: the function that is called first on an object store; False skips the call.

        Raises:
            WakeupError: `wakeup` was called.
            BaseException: the error that the call raised.
        """
        if self._is_in_caller:
            call()
            return True
        if not is_needed():
            return True
        self._update = self._start(call)
        return self.finish_until(deadline_ms)

    def finish_until(self, deadline_ms: float) -> bool:
        """Wait until no call is running; return False if one still runs at the deadline.

        Args:
            deadline_ms: the monotonic time until which to wait.

        Raises:
            WakeupError: `wakeup` was called.
            BaseException: the error that the last `run_until` raised.
        """
        if self._is_in_caller:
            return True
        # The running call may also be one of `run`, whose caller stopped waiting.
        while (running := self._current()) is not None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if self._wait(running, max(0.0, left_ms) / 1000, until_wakeup=True):
                continue
            self.check_wakeup()
            if left_ms <= 0:
                return False
        update, self._update = self._update, None
        if update is not None:
            update.result()
        return True

    def run_in_caller(self, function: Callable[[], object]) -> None:
        """Run a listener in the thread that polls, from a call that the poll runs.

        Outside of a call the function runs at once.

        Raises:
            IllegalStateError: the consumer was closed before a thread waited for the call.
            BaseException: the error that the function raised.
        """
        if self._current() is None or self._running_thread != threading.get_ident():
            function()
            return
        listener = _Listener(function)
        with self._changed:
            self._listener = listener
            self._changed.notify_all()
            while not listener.outcome.done() and not self._is_closed:
                self._changed.wait()
            self._listener = None
            if not listener.outcome.done():
                raise IllegalStateError("the consumer was closed before its listener was called")
        listener.outcome.result()

    # --- other methods ---------------------------------------------------------------------------

    def run(
        self,
        name: str,
        call: Callable[[], _Result],
        timeout_ms: float | None = None,
        *,
        is_repeated: bool = True,
    ) -> _Result:
        """Run a call that may change the consumer's state.

        Args:
            name: the name of the consumer's method, for error messages.
            call: the function to run.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.
            is_repeated: whether to repeat the call while the storage does not answer, unless it has
                written.

        Raises:
            KafkaTimeoutError: the timeout has passed; the call ends without the caller.
            UnknownOutcomeError: the timeout has passed, and the call may have changed something.
            WakeupError: `wakeup` was called while the storage did not answer.
        """
        if self._is_local and is_repeated:
            return self._retried(call, self._deadline(name, timeout_ms, self._clock), self._clock)
        if self._is_in_caller:
            return call()
        deadline = self._deadline(name, timeout_ms)
        self._wait_until_idle(deadline)
        if self._current() is not None:  # it waits for its listener, which only a poll runs
            return self.run_stateless(name, call, timeout_ms)
        running = self._start(
            (lambda: self._retried(call, deadline)) if is_repeated else call, deadline
        )
        if not self._wait(running, deadline.left_s()):
            raise deadline.error()
        return running.result()  # type: ignore[return-value]

    def run_stateless(
        self, name: str, call: Callable[[], _Result], timeout_ms: float | None = None
    ) -> _Result:
        """Run a call that does not use the consumer's state, in parallel with any other call.

        Args:
            name: the name of the consumer's method, for error messages.
            call: the function to run, which may run on any thread.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: the timeout has passed; the call ends without the caller.
            WakeupError: `wakeup` was called while the storage did not answer.
        """
        return call_through_outages(
            self._default_timeout_ms if timeout_ms is None else timeout_ms,
            call,
            what=name,
            setting=API_TIMEOUT,
            is_local=self._is_local,
            clock=self._clock,
            before_pause=self.check_wakeup,
        )

    def wait_until_idle(self, name: str) -> None:
        """Wait until no call changes the consumer's state.

        Args:
            name: the name of the consumer's method, for error messages.

        Raises:
            KafkaTimeoutError: a call that a poll began still waits for the storage.
        """
        if not self._is_in_caller:
            self._wait_until_idle(self._deadline(name, None))

    def finish_update(self, name: str, timeout_ms: float | None = None) -> None:
        """Wait until the call that a poll began has ended, and run its listeners.

        Args:
            name: the name of the consumer's method, for error messages.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: the timeout has passed.
        """
        if self._is_in_caller:
            return
        deadline = self._deadline(name, timeout_ms)
        while (running := self._current()) is not None:
            if not self._wait(running, deadline.left_s()):
                raise self._busy_error(deadline)
        update, self._update = self._update, None
        if update is not None:
            try:
                update.result()
            except SparkLogError as error:
                _log.info("the update that the last poll began has failed: %s", error)

    # --- end -------------------------------------------------------------------------------------

    def run_while(self, call: Callable[[], object], left_ms: Callable[[], float | None]) -> bool:
        """Run a call; return whether it is done. Otherwise it continues without the caller.

        Args:
            call: the function to run.
            left_ms: the function that returns the remaining time to wait; None for no limit.
        """
        if self._is_in_caller:
            call()
            return True
        running = self._start(call)
        if not self._wait(running, (left_ms() or 0.0) / 1000):
            return False
        running.result()
        return True

    def run_later(self, call: Callable[[], object]) -> None:
        """Run a call on another thread, after the call that is running; only on an object store."""

        def run() -> None:
            with self._changed:
                self._changed.wait_for(self._is_idle)
            call()

        LimitedCall(run)

    def wakeup(self) -> None:
        """Let the current wait, or the next one, raise `WakeupError`. For any thread."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def forget_wakeup(self) -> None:
        """Undo a `wakeup` that has raised no error yet."""
        self._is_woken = False

    def check_wakeup(self) -> None:
        """Raise `WakeupError` if `wakeup` was called."""
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("the consumer was woken up")

    def close(self) -> None:
        """Let a suspended call end without its listener."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # --- the thread of a call --------------------------------------------------------------------

    @property
    def _is_in_caller(self) -> bool:
        """Whether calls run in the caller's thread: a local root, or a listener that is running."""
        return self._is_local or self._is_in_listener

    def _start(
        self, call: Callable[[], object], deadline: Deadline | None = None
    ) -> Future[object]:
        """Start a call on another thread; no other call may be running.

        Args:
            call: the function to run.
            deadline: the time after which the call sends no more requests; None for no limit.
        """
        outcome: Future[object] = Future()
        with self._changed:
            assert self._running is None
            self._running, self._running_thread = outcome, 0

        def run() -> None:
            self._running_thread = threading.get_ident()
            settle(outcome, call)
            with self._changed:
                self._running = None
                self._changed.notify_all()

        LimitedCall(run, deadline)
        return outcome

    def _current(self) -> Future[object] | None:
        """Return the call that has not ended, None if there is none."""
        with self._changed:
            return self._running

    def _is_idle(self) -> bool:
        """Return whether no call is running, or it is suspended; the lock is held."""
        return self._running is None or self._listener is not None

    def _wait(self, call: Future[object], timeout_s: float, *, until_wakeup: bool = False) -> bool:
        """Wait for a call and run its listeners; return whether the call is done.

        Args:
            call: the call.
            timeout_s: the maximum time to wait.
            until_wakeup: whether to return False after `wakeup`, too.
        """
        due_s = time.monotonic() + timeout_s
        while True:
            with self._changed:
                while self._running is call and self._listener is None:
                    left_s = due_s - time.monotonic()
                    if left_s <= 0 or (until_wakeup and self._is_woken):
                        return False
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                if self._running is not call:
                    return True
                if until_wakeup and self._is_woken:
                    return False
                listener = self._listener
                assert listener is not None
            self._is_in_listener = True
            settle(listener.outcome, listener.function)
            self._is_in_listener = False
            with self._changed:
                # A waiting thread must see that the call runs again, and not this listener again.
                self._listener = None
                self._changed.notify_all()

    def _wait_until_idle(self, deadline: Deadline) -> None:
        with self._changed:
            if not self._changed.wait_for(self._is_idle, deadline.left_s()):
                raise self._busy_error(deadline)

    def _retried(
        self, call: Callable[[], _Result], deadline: Deadline, clock: Clock = SYSTEM_CLOCK
    ) -> _Result:
        return retry_while_unavailable(call, deadline, clock, before_pause=self.check_wakeup)

    def _deadline(
        self, name: str, timeout_ms: float | None, clock: Clock = SYSTEM_CLOCK
    ) -> Deadline:
        limit_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(name, API_TIMEOUT, limit_ms, clock)

    def _busy_error(self, deadline: Deadline) -> Exception:
        deadline.waits_for = (
            f"an earlier call's request to the storage at {self._root}, which does not answer"
        )
        return deadline.error()


class _Listener:
    """A function that the thread which waits for the call has to run.

    Attributes:
        function: the function.
        outcome: the result or error of the function.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.outcome: Future[object] = Future()
