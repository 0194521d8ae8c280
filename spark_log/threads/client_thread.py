"""Runs a blocking client for asyncio: the common part of `AIOProducer` and `AIOConsumer`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from spark_log.errors import IllegalStateError, WakeupError
from spark_log.threads.timed_call import in_new_thread

_log = logging.getLogger(__name__)

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


def with_arguments_of(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Give a method the arguments of another one, for type checkers, editors and `help`.

    Args:
        method: the method to which the decorated one passes all of its arguments.
    """

    def decorate(own: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        own.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return own

    return decorate


class ClientThread(Generic[C]):
    """One thread that makes a client, and runs its methods in the order in which they are awaited.

    Cancellation: a call that has not begun is withdrawn, and has no effect. A running call is
    interrupted if the client supports that; otherwise it runs to its end, its result is passed to
    ``on_abandoned``, and its error is logged, so that no result is lost in silence. Later calls run
    after that, and are not affected.

    The client is made by the first call. Use it from one event loop.
    """

    def __init__(
        self,
        kind: str,
        make: Callable[[], C],
        *,
        on_abandoned: Callable[[C, Any], None],
        interrupt: Callable[[C], None] | None = None,
        clear_interrupt: Callable[[C], None] | None = None,
    ) -> None:
        """Return a thread that is not started yet; no client is made.

        Args:
            kind: ``producer`` or ``consumer``, for messages and thread names.
            make: the function that makes the client.
            on_abandoned: the function that is called on the thread with the client and the result
                of a call whose await was cancelled.
            interrupt: the function that makes the running call of a client raise `WakeupError`.
            clear_interrupt: the function that undoes an interrupt that came too late for the call.
        """
        self._kind = kind
        self._make = make
        self._on_abandoned = on_abandoned
        self._interrupt = interrupt
        self._clear_interrupt = clear_interrupt
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"spark-log-aio-{kind}")
        self._lock = threading.Lock()
        self._client: C | None = None
        self._running: _Call | None = None
        self._closing: Future[None] | None = None
        self._unsettled: list[Future[Any]] = []

    @property
    def client(self) -> C | None:
        """The client; None before the first call."""
        return self._client

    @property
    def is_closed(self) -> bool:
        """Whether `close` or `close_soon` was called."""
        return self._closing is not None

    def describe(self, name: str) -> str:
        """Return the representation of the asyncio client with this class name."""
        if self._client is None:
            return f"<{name}, not started>"
        _, _, rest = repr(self._client).partition(" ")
        return f"<{name} {rest}"

    async def call(self, function: Callable[[C], R]) -> R:
        """Call a function of the client on the thread, after all calls before it.

        Raises:
            IllegalStateError: the client is closed.
        """
        self._check_open()
        call = _Call()
        future = self._executor.submit(self._run, function, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._abandon(call, future)
            raise

    async def call_aside(self, function: Callable[[C], R]) -> R:
        """Call a function that may wait long, in a thread of its own, after all calls before it.

        Only for a client that several threads may use: later calls do not wait for this one.

        Raises:
            IllegalStateError: the client is closed.
        """
        client = await self.call(lambda client: client)
        future = in_new_thread(lambda: function(client), f"spark-log-aio-{self._kind}-aside")
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._log_failure)
            raise

    async def close(
        self, function: Callable[[C], None], *, patience_s: float | None = None
    ) -> None:
        """Close the client, and wait for that. A cancelled close continues in the background.

        Args:
            function: the function that closes the client; not called if no client was made.
            patience_s: the seconds to wait for earlier calls; None to wait until they end.
        """
        if self._closing is not None and self._closing.done():
            return
        closing = self.close_soon(function, patience_s=patience_s)
        try:
            await asyncio.wrap_future(closing)  # a running future cannot be cancelled itself
        except asyncio.CancelledError:
            closing.add_done_callback(self._log_failure)
            raise

    def close_soon(
        self, function: Callable[[C], None], *, patience_s: float | None = None
    ) -> Future[None]:
        """Close the client in the background; further calls are refused at once."""
        if self._closing is not None:
            return self._closing
        earlier_calls = self._executor.submit(lambda: None)
        self._executor.shutdown(wait=False)

        def close() -> None:
            with suppress(FutureTimeoutError):
                earlier_calls.result(patience_s)
            if self._client is None:
                earlier_calls.result()  # making the client is limited by the storage's timeouts
            if self._client is not None:
                # Before a consumer commits its positions, cancelled polls have to be undone.
                for future in self._unsettled:
                    if future.done():
                        self._settle(future)
                    else:
                        future.add_done_callback(self._log_failure)
                function(self._client)

        name = f"spark-log-aio-{self._kind}-close"
        self._closing = in_new_thread(close, name, is_daemon=False)
        return self._closing

    def _check_open(self) -> None:
        if self._closing is not None:
            raise IllegalStateError(f"the {self._kind} is closed; make another one")

    def _run(self, function: Callable[[C], R], call: _Call) -> R:
        if self._client is None:
            self._client = self._make()
        with self._lock:
            if call.is_cancelled:
                raise _WithdrawnError
            self._running = call
        try:
            return function(self._client)
        finally:
            with self._lock:
                self._running = None
                if call.is_interrupted and self._clear_interrupt is not None:
                    self._clear_interrupt(self._client)

    def _abandon(self, call: _Call, future: Future[Any]) -> None:
        """Withdraw or interrupt a call, and handle its result."""
        if future.cancel():
            return
        with self._lock:
            call.is_cancelled = True
            if self._running is call and self._interrupt is not None:
                assert self._client is not None
                call.is_interrupted = True
                self._interrupt(self._client)
        if self._closing is None:
            self._executor.submit(self._settle, future)
        else:
            self._unsettled.append(future)

    def _settle(self, future: Future[Any]) -> None:
        """Handle the result of a call that has ended, and whose await was cancelled."""
        if future.exception() is None and self._client is not None:
            try:
                self._on_abandoned(self._client, future.result())
            except Exception:
                _log.exception("the result of a cancelled call of a %s is lost", self._kind)
        else:
            self._log_failure(future)

    def _log_failure(self, future: Future[Any]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, _WithdrawnError | WakeupError):
            _log.warning("a cancelled call of a %s has failed: %s", self._kind, error)


class _Call:
    """The state of one call, shared by the event loop and the thread.

    Attributes:
        is_cancelled: whether its await was cancelled.
        is_interrupted: whether the client was interrupted while the call ran.
    """

    is_cancelled = False
    is_interrupted = False


class _WithdrawnError(Exception):
    """The call was cancelled before it began."""
