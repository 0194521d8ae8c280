"""Runs those parts of a consumer's methods that may wait for the storage, with timeouts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from spark_log.consumer.storage_calls import StorageCall, StorageCalls
from spark_log.errors import SparkLogError, WakeupError
from spark_log.storage import call_through_outages, retry_while_unavailable
from spark_log.threads import Deadline, LimitedCall
from spark_log.util import SYSTEM_CLOCK, Clock

_log = logging.getLogger(__name__)

API_TIMEOUT: Final = "default.api.timeout.ms"

_Result = TypeVar("_Result")


class StorageExecutor:
    """Runs calls in the caller's thread on a local root, and on another thread on an object store.

    On a local root a call lasts as long as the operating system needs; timeouts have no effect.
    On an object store the caller waits until a timeout, and the call continues without it. Calls
    that change the consumer's state run one at a time. Inside a rebalance listener calls run in the
    caller's thread, because the poll that called the listener waits for it.

    For one thread at a time; any thread may call `wakeup`.
    """

    def __init__(self, root: str, clock: Clock, default_timeout_ms: float, *, is_mapped: bool):
        """Prepare; no thread is started.

        Args:
            root: the root's path or URL, for error messages.
            clock: the clock that measures the deadlines of polls.
            default_timeout_ms: ``default.api.timeout.ms``.
            is_mapped: whether the root is local, so that its files are memory-mapped.
        """
        self._root = root
        self._clock = clock
        self._default_timeout_ms = default_timeout_ms
        self._calls = None if is_mapped else StorageCalls()
        self._update: StorageCall | None = None
        self._is_woken = False

    @property
    def is_limited(self) -> bool:
        """Whether calls have timeouts: the root is on an object store."""
        return self._calls is not None

    # --- parts of a poll -------------------------------------------------------------------------

    def run_until(
        self,
        call: Callable[[], object],
        deadline_ms: float,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Run a part of a poll; return whether it is done.

        If not it continues, and the next `finish_until` waits for it.

        Args:
            call: the part of the poll.
            deadline_ms: the monotonic time until which to wait.
            is_needed: the function that is called first on an object store; False skips the call.

        Raises:
            WakeupError: `wakeup` was called.
            BaseException: the error that the call raised.
        """
        if self._calls is None or self._calls.is_in_callback:
            call()
            return True
        if not is_needed():
            return True
        self._update = self._calls.start(call)
        return self.finish_until(deadline_ms)

    def finish_until(self, deadline_ms: float) -> bool:
        """Wait until no call is running; return False if one still runs at the deadline.

        Args:
            deadline_ms: the monotonic time until which to wait.

        Raises:
            WakeupError: `wakeup` was called.
            BaseException: the error that the last `run_until` raised.
        """
        if self._calls is None or self._calls.is_in_callback:
            return True
        # The running call may also be one of `run`, whose caller stopped waiting.
        while self._calls.current() is not None:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            running = self._calls.current()
            if running is None or self._calls.wait(running, max(0.0, left_ms) / 1000):
                continue
            self.check_wakeup()
            if left_ms <= 0:
                return False
        update, self._update = self._update, None
        if update is not None:
            update.result()
        return True

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
        calls = self._calls
        if calls is None and is_repeated:
            return self._retried(call, self._deadline(name, timeout_ms, self._clock), self._clock)
        if calls is None or calls.is_in_callback:
            return call()
        deadline = self._deadline(name, timeout_ms)
        if not calls.wait_until_idle(deadline.left_s()):
            raise self._busy_error(deadline)
        if calls.is_suspended:  # it waits for a listener, which only a poll runs
            return self._run_limited(name, call, timeout_ms)
        retried = (lambda: self._retried(call, deadline)) if is_repeated else call
        running = calls.start(retried, deadline)
        while not calls.wait(running, deadline.left_s()):
            if not deadline.left_s():
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
        return self._run_limited(name, call, timeout_ms)

    def wait_until_idle(self, name: str) -> None:
        """Wait until no call changes the consumer's state.

        Raises:
            KafkaTimeoutError: a call that a poll began still waits for the storage.
        """
        if self._calls is None or self._calls.is_in_callback:
            return
        deadline = self._deadline(name, None)
        if not self._calls.wait_until_idle(deadline.left_s()):
            raise self._busy_error(deadline)

    def finish_update(self, name: str, timeout_ms: float | None = None) -> None:
        """Wait until the call that a poll began has ended, and run its listeners.

        Args:
            name: the name of the consumer's method, for error messages.
            timeout_ms: the maximum time to wait; None for ``default.api.timeout.ms``.

        Raises:
            KafkaTimeoutError: the timeout has passed.
        """
        if self._calls is None or self._calls.is_in_callback:
            return
        deadline = self._deadline(name, timeout_ms)
        while (running := self._calls.current()) is not None:
            if not self._calls.wait(running, deadline.left_s()) and not deadline.left_s():
                raise self._busy_error(deadline)
        update, self._update = self._update, None
        if update is not None:
            try:
                update.result()
            except SparkLogError as error:
                _log.info("the update that the last poll began has failed: %s", error)

    def run_while(self, call: Callable[[], object], left_ms: Callable[[], float | None]) -> bool:
        """Run a call; return whether it is done. Otherwise it continues without the caller.

        Args:
            call: the function to run.
            left_ms: the function that returns the remaining time to wait; None for no limit.
        """
        calls = self._calls
        if calls is None or calls.is_in_callback:
            call()
            return True
        running = calls.start(call)
        while not calls.wait(running, (left_ms() or 0.0) / 1000) and left_ms():
            pass  # a wakeup ended the wait
        if running.is_done:
            running.result()
        return running.is_done

    def run_later(self, call: Callable[[], object]) -> None:
        """Run a call on another thread, after the call that is running; only on an object store."""
        assert self._calls is not None
        LimitedCall(partial(_run_when_idle, self._calls, call))

    def run_in_caller(self, function: Callable[[], object]) -> None:
        """Run a function in the thread that polls, from a call that the poll runs."""
        if self._calls is None:
            function()
        else:
            self._calls.run_in_caller(function)

    # --- wakeup and end --------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Let the current wait, or the next one, raise `WakeupError`. For any thread."""
        self._is_woken = True
        if self._calls is not None:
            self._calls.wake()

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
        if self._calls is not None:
            self._calls.close()

    def _run_limited(
        self, name: str, call: Callable[[], _Result], timeout_ms: float | None
    ) -> _Result:
        limit_ms = self._default_timeout_ms if timeout_ms is None else timeout_ms
        return call_through_outages(
            limit_ms,
            call,
            what=name,
            setting=API_TIMEOUT,
            is_local=self._calls is None,
            clock=self._clock,
            before_pause=self.check_wakeup,
        )

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


def _run_when_idle(calls: StorageCalls, call: Callable[[], object]) -> None:
    if calls.wait_until_idle(math.inf):
        call()
