"""The event loop of a simulated process: asyncio on the simulated clock, and its threads."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from spark_log.util.clock import Clock
from tests.simulation.scheduler import Actor, Scheduler

_Result = TypeVar("_Result")


class SimulatedEventLoop(asyncio.AbstractEventLoop):
    """Runs what one process does in its event loop, and in the threads that the loop waits for.

    A callback takes no time. A blocking call is an actor, which takes the steps of the store. When
    the process crashes, its callbacks, timers and threads end.

    Attributes:
        is_dead: whether the process has ended.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        """Return the loop of the process of the current actor."""
        assert scheduler.current is not None
        self.is_dead = False
        self._process = scheduler.current
        self._scheduler = scheduler
        self._clock = clock
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._threads: list[Actor] = []
        self._error: BaseException | None = None

    # --- for the process -------------------------------------------------------------------------

    def run_until(self, is_over: Callable[[], bool], *, longest_wait_ms: float) -> None:
        """Run callbacks, and wait for others, until ``is_over`` returns True before a wait.

        Raises:
            Crash: the process crashes, and its threads end.
        """
        try:
            while True:
                self.run_ready()
                if is_over():
                    return
                self._scheduler.pass_time(self._wait_ms(longest_wait_ms))
        finally:
            self.is_dead = True
            for thread in self._threads:
                thread.is_crashing = True

    async def run_blocking(self, call: Callable[..., _Result], *args: Any) -> _Result:
        """Return the result of a call that another thread makes (`Gateway.run_blocking`)."""
        future: asyncio.Future[_Result] = self.create_future()
        has_begun = False

        def run() -> None:
            nonlocal has_begun
            if has_begun or self.is_dead:
                return  # the process has crashed
            has_begun = True
            try:
                result = call(*args)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self._threads = [each for each in self._threads if not each.is_done]
        name, rate = f"{self._process.name} thread", self._process.clock_rate
        self._threads.append(self._scheduler.spawn(name, run, is_mortal=False, clock_rate=rate))
        return await future

    def run_ready(self) -> None:
        """Run the callbacks that are due."""
        asyncio._set_running_loop(self)
        try:
            now_s = self.time()
            while self._timers and self._timers[0][0] <= now_s:
                self._ready.append(heapq.heappop(self._timers)[2])
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
                if self._error is not None:
                    raise self._error
        finally:
            asyncio._set_running_loop(None)

    def wake(self) -> None:
        """Let the process look for work; from another actor."""
        if self._scheduler.current is not self._process:
            self._scheduler.wake(self._process)

    def _wait_ms(self, longest_ms: float) -> float:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            return longest_ms
        due_ms = (self._timers[0][0] - self.time()) * 1000 / self._process.clock_rate
        return min(longest_ms, max(0.0, due_ms))

    # --- for asyncio -----------------------------------------------------------------------------

    def time(self) -> float:
        """Return the process's monotonic time in seconds."""
        return self._clock.monotonic_ms() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Call a function as soon as the loop runs."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
            self.wake()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call a function after some seconds."""
        when_s = self.time() + delay
        handle = asyncio.TimerHandle(when_s, callback, args, self, context)
        if not self.is_dead:
            heapq.heappush(self._timers, (when_s, next(self._numbers), handle))
            self.wake()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, _Result], **settings: Any
    ) -> asyncio.Task[_Result]:
        """Begin a coroutine."""
        return asyncio.Task(coro, loop=self, **settings)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error of a callback, which fails the simulation."""
        self._error = context.get("exception") if not self.is_dead else None

    def get_debug(self) -> bool:
        """Return False: tasks are not watched."""
        return False

    def is_running(self) -> bool:
        """Return whether the process lives."""
        return not self.is_dead

    def is_closed(self) -> bool:
        """Return whether the process has ended."""
        return self.is_dead

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped."""
