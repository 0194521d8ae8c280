"""Runs the blocking work of requests in threads, with limits of number and time, and cancels it.

The event loop never waits for storage. A thread cannot be killed: after its time limit a request is
answered, and its thread ends at the next `Budget.check`, or when the storage answers. Until then
the thread counts against the limit, so that the number of threads stays bounded with slow storage.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from spark_log.console.budget import Budget, RequestCancelledError
from spark_log.threads import Deadline, within
from spark_log.util import Clock

_Result = TypeVar("_Result")
Emit = Callable[[bytes], None]
"""A function that sends a piece of a streamed answer. It blocks while the client is slow."""

_MAX_PIECES = 4
"""Maximum number of pieces of a streamed answer that wait for the client."""

_POLL_S = 0.2


class Workers:
    """Threads for one kind of requests."""

    def __init__(self, clock: Clock, *, count: int, timeout_ms: float, name: str) -> None:
        """Return workers; no thread is started yet.

        Args:
            clock: the clock for time limits.
            count: the maximum number of requests at the same time.
            timeout_ms: the time limit of a request.
            name: the name of the threads.
        """
        self._clock = clock
        self._count = count
        self._timeout_ms = timeout_ms
        self._pool = ThreadPoolExecutor(count, f"spark-log-console-{name}")
        self._running = 0
        self._lock = threading.Lock()

    async def run(self, request: Request, work: Callable[[Budget], _Result]) -> _Result:
        """Call ``work`` in a thread, and return its result.

        Raises:
            HTTPException: 503, because too many requests are being answered.
            KafkaTimeoutError: the time limit has passed.
            RequestCancelledError: the client has disconnected.
        """
        budget = Budget(self._clock, self._timeout_ms)
        future = asyncio.wrap_future(self._submit(work, budget))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            both: list[asyncio.Future[Any]] = [future, gone]
            await asyncio.wait(
                both,
                timeout=self._timeout_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if future.done():
                return future.result()
            future.add_done_callback(_take_outcome)
            raise RequestCancelledError if gone.done() else budget.timeout_error()
        finally:
            gone.cancel()
            budget.cancel()

    def stream(
        self, request: Request, work: Callable[[Budget, Emit], None]
    ) -> AsyncIterator[bytes]:
        """Call ``work`` in a thread, and return the pieces that it emits, as it emits them.

        Closing the iterator cancels the work.

        Raises:
            HTTPException: 503, because too many requests are being answered; raised at once.
        """
        budget = Budget(self._clock, self._timeout_ms)
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(_MAX_PIECES)

        def emit(piece: bytes) -> None:
            while not room.acquire(timeout=_POLL_S):
                budget.check()
            budget.check()
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def produce(budget: Budget) -> None:
            try:
                work(budget, emit)
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        future = self._submit(produce, budget)

        async def received() -> AsyncIterator[bytes]:
            gone = asyncio.ensure_future(_disconnected(request))
            try:
                while True:
                    piece = asyncio.ensure_future(pieces.get())
                    await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
                    if gone.done() or not piece.done():
                        piece.cancel()
                        return
                    found = piece.result()
                    if found is None:
                        break
                    room.release()
                    yield found
                future.result()  # it has ended: an error of the work cuts the answer short
            finally:
                gone.cancel()
                budget.cancel()

        return received()

    def close(self) -> None:
        """Refuse further work, and cancel work that has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[Budget], _Result], budget: Budget) -> Future[_Result]:
        with self._lock:
            if self._running >= self._count:
                raise HTTPException(
                    503, f"{self._count} requests of this kind are being answered; try again"
                )
            self._running += 1
        future = self._pool.submit(self._limited, work, budget)
        future.add_done_callback(self._on_done)
        return future

    def _limited(self, work: Callable[[Budget], _Result], budget: Budget) -> _Result:
        # A page reports at once that the storage does not answer, while other clients wait.
        with within(Deadline("the page", "its time limit", self._timeout_ms)):
            return work(budget)

    def _on_done(self, _: object) -> None:
        with self._lock:
            self._running -= 1


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected. The request's body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _take_outcome(future: asyncio.Future[_Result]) -> None:
    """Retrieve the outcome of abandoned work, so that asyncio does not log a warning."""
    if not future.cancelled():
        future.exception()
