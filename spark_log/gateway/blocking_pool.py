"""`BlockingPool`: runs blocking calls of an event loop on a bounded number of threads."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from spark_log.threads import in_new_thread

_Result = TypeVar("_Result")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class BlockingPool:
    """Runs calls on threads that end with the process, in the order in which they were given.

    Unlike those of ``ThreadPoolExecutor``, the threads do not keep a process alive whose storage
    never answers. For one event loop.
    """

    def __init__(
        self, threads: int, *, name: str, prepare: Callable[[], None] | None = None
    ) -> None:
        """Return a pool; no thread is started yet.

        Args:
            threads: the maximum number of calls at the same time.
            name: the name of the threads.
            prepare: called by each thread when it starts.
        """
        self._prepare = prepare
        self._threads = threads
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: list[Future[None]] = []
        self._busy = 0

    async def run(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a call that blocks, or raise its error.

        If the await is cancelled, a call that has begun runs to its end.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        with self._lock:
            self._busy += 1
            if len(self._running) < min(self._busy, self._threads):
                self._running.append(in_new_thread(self._work, name=self._name))
        self._calls.put((loop, future, call, args))
        return await future

    def close(self, timeout_s: float = 0.0) -> bool:
        """End the threads after the calls that they have; return whether all of them have ended.

        Args:
            timeout_s: the maximum time to wait for them.
        """
        with self._lock:
            running = tuple(self._running)
        for _ in running:
            self._calls.put(None)
        return not wait(running, timeout_s).not_done

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (found := self._calls.get()) is not None:
            loop, future, call, args = found
            result, error = None, None
            if not future.cancelled():
                try:
                    result = call(*args)
                except BaseException as raised:
                    error = raised
            with self._lock:
                self._busy -= 1
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, result, error)
            del found, future, call, args, result, error  # a frame of the request may hang on them


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
