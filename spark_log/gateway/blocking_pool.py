"""`BlockingPool`: runs blocking calls of an event loop on a bounded number of threads."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar

from spark_log.threads import in_new_thread

_Result = TypeVar("_Result")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
_Ended = tuple["asyncio.Future[Any]", Any, "BaseException | None"]

_PATIENCE_S: Final = 0.1
"""Time after which a short call is taken for one that hangs: those behind it need other threads."""


class BlockingPool:
    """Runs calls on threads that end with the process, in the order in which they were given.

    Unlike those of ``ThreadPoolExecutor``, the threads do not keep a process alive whose storage
    never answers. For one event loop.

    Short calls have a thread of their own, because several threads would take the interpreter's
    lock from each other at each system call (docs/adr/0085). If one of these calls hangs, those
    behind it are run as other calls are.
    """

    def __init__(
        self, threads: int, *, name: str, prepare: Callable[[], None] | None = None
    ) -> None:
        """Return a pool; no thread is started yet.

        Args:
            threads: the maximum number of calls at the same time, besides a short one.
            name: the name of the threads.
            prepare: called by each thread when it starts.
        """
        self._prepare = prepare
        self._threads = threads
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._short_calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[Future[None]] = []
        self._running_short: Future[None] | None = None
        self._short_since_s: float | None = None  # when the short call that runs began
        self._is_watched = False
        self._ended: deque[_Ended] = deque()
        self._is_waking = False  # whether the loop is about to take what has ended
        self._busy = 0

    async def run(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a call that blocks, or raise its error.

        If the await is cancelled, a call that has begun runs to its end.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._submit((loop, future, call, args))
        return await future

    def run_short(self, call: Callable[..., _Result], *args: Any) -> asyncio.Future[_Result]:
        """Return the future of a call that waits for nothing but the processor; see `run`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        if self._short_hangs(loop):
            self._submit((loop, future, call, args))
            return future
        if self._running_short is None:
            self._running_short = in_new_thread(self._work_short, name=f"{self._name}-short")
        self._short_calls.put((loop, future, call, args))
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(_PATIENCE_S, self._watch_short, loop)
        return future

    def close(self, timeout_s: float = 0.0) -> bool:
        """End the threads after the calls that they have; return whether all of them have ended.

        Args:
            timeout_s: the maximum time to wait for them.
        """
        with self._lock:
            running = [*self._running]
        for _ in running:
            self._calls.put(None)
        if self._running_short is not None:
            self._short_calls.put(None)
            running.append(self._running_short)
        return not wait(running, timeout_s).not_done

    def _submit(self, call: _Call) -> None:
        with self._lock:
            self._busy += 1
            if len(self._running) < min(self._busy, self._threads):
                self._running.append(in_new_thread(self._work, name=self._name))
        self._calls.put(call)

    # --- short calls, on the event loop ----------------------------------------------------------

    def _short_hangs(self, loop: asyncio.AbstractEventLoop) -> bool:
        since_s = self._short_since_s
        return since_s is not None and loop.time() - since_s >= _PATIENCE_S

    def _watch_short(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the calls behind a short one that hangs; check again while one of them runs."""
        if self._short_hangs(loop):
            for call in self._take_short():
                self._submit(call)
        self._is_watched = self._short_since_s is not None or not self._short_calls.empty()
        if self._is_watched:
            loop.call_later(_PATIENCE_S, self._watch_short, loop)

    def _take_short(self) -> list[_Call]:
        """Remove and return the short calls that have not begun."""
        found = []
        try:
            while (call := self._short_calls.get_nowait()) is not None:
                found.append(call)
            self._short_calls.put(None)  # the pool is closed
        except queue.Empty:
            pass
        return found

    # --- on the threads --------------------------------------------------------------------------

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (found := self._calls.get()) is not None:
            self._run(found)
            with self._lock:
                self._busy -= 1
            self._wake(found[0])
            del found  # a frame of the request may hang on it

    def _work_short(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (found := self._short_calls.get()) is not None:
            self._short_since_s = found[0].time()
            self._run(found)
            self._short_since_s = None
            self._wake(found[0])
            del found

    def _run(self, found: _Call) -> None:
        _, future, call, args = found
        result, error = None, None
        if not future.cancelled():
            try:
                result = call(*args)
            except BaseException as raised:
                error = raised
        self._ended.append((future, result, error))

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the event loop take what has ended, unless it is about to."""
        if not self._is_waking and not loop.is_closed():
            self._is_waking = True
            loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_waking = False  # first: what ends from now on wakes the loop again
        while self._ended:
            _settle(*self._ended.popleft())


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
