"""The scheduler: actors as coroutines on a simulated clock, with all choices drawn from one seed.

An actor is a greenlet, so that it can run the shipped, synchronous code: a call of the simulated
store, deep in that code, switches to the scheduler and returns when the scheduler resumes it.
Between two such steps no other actor runs and no time passes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from greenlet import getcurrent, greenlet

START_US = 1_700_000_000_000_000
"""Wall-clock time at which every simulation begins."""


class Crash(BaseException):
    """The actor's process dies at this step. No code of the package catches it."""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of a trace."""

    step: int
    now_ms: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.step:6d} {self.now_ms:10.1f} ms  {self.actor:<14} {self.text}"


class Actor:
    """One simulated process, which is started again after each crash.

    Attributes:
        name: its name in the trace.
        is_mortal: whether its steps may crash.
        clock_rate: speed of its monotonic clock; 1.0 is exact.
        is_done: whether its work is finished.
        is_crashing: whether its process dies, and its stack unwinds.
        pauses: number of times that it has let other actors run.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        run: Callable[[], None],
        *,
        is_mortal: bool,
        clock_rate: float,
    ) -> None:
        """Return an actor that calls ``run``; it is not started yet."""
        self.name = name
        self.is_mortal = is_mortal
        self.clock_rate = clock_rate
        self.is_done = False
        self.is_crashing = False
        self.pauses = 0
        self._scheduler = scheduler
        self._run = run
        self.coroutine = greenlet(self._live)

    def _live(self) -> None:
        while not self.is_done:
            try:
                self._run()
                self.is_done = True
            except Crash:
                if self._scheduler.is_closed:
                    return
                self.is_crashing = False
                self._scheduler.note("comes up again")


class Scheduler:
    """Runs actors in an order and at times that depend only on the seed.

    So no actor may patch attributes of the process: the other actors would see the patch, and two
    actors that undo their patches in the order of entering leave one of them behind for good. Nor
    may an actor depend on the order of a set.

    Attributes:
        random: the simulation's source of randomness.
        now_ms: simulated time since the beginning.
        steps: number of steps so far.
        trace: the events so far, in order.
        is_closed: whether the simulation is over, and running actors are being ended.
        crash_chance: probability that a step of a mortal actor crashes it.
    """

    def __init__(self, seed: int) -> None:
        """Return a scheduler without actors, at time 0."""
        self.random = Random(seed)
        self.now_ms = 0.0
        self.steps = 0
        self.trace: list[TraceEntry] = []
        self.is_closed = False
        self.crash_chance = 0.0
        self.actors: list[Actor] = []
        self._current: Actor | None = None
        self._hub = getcurrent()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._scheduled = 0

    @property
    def current(self) -> Actor | None:
        """The actor that is running; None outside of actors."""
        return self._current

    def spawn(
        self, name: str, run: Callable[[], None], *, is_mortal: bool, clock_rate: float = 1.0
    ) -> Actor:
        """Add an actor. ``run`` is called again after each crash, until it returns."""
        actor = Actor(self, name, run, is_mortal=is_mortal, clock_rate=clock_rate)
        self.actors.append(actor)
        self.after(self.random.random(), lambda: self._resume(actor))
        return actor

    def spawn_mortal(self, name: str, run: Callable[[], None]) -> None:
        """Add an actor that may crash, and whose monotonic clock is up to 10 % fast or slow."""
        self.spawn(name, run, is_mortal=True, clock_rate=self.random.uniform(0.9, 1.1))

    def after(self, delay_ms: float, call: Callable[[], object]) -> None:
        """Call a function later, outside of actors."""
        self._scheduled += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._scheduled, call))

    def pass_time(self, duration_ms: float) -> None:
        """Let other actors run; return to the calling actor after a duration.

        Raises:
            Crash: the actor crashes at this step.
        """
        actor = self._current
        if actor is None:
            return
        if not actor.is_crashing:
            actor.pauses = pause = actor.pauses + 1
            self.after(duration_ms, lambda: self._resume(actor, pause))
            self._current = None
            self._hub.switch()
            self._current = actor
            if actor.is_mortal and self.random.random() < self.crash_chance:
                self.note("crashes")
                actor.is_crashing = True
        if actor.is_crashing or self.is_closed:
            # Also for calls while the stack unwinds: a dead process does nothing.
            actor.is_crashing = True
            raise Crash

    def wake(self, actor: Actor) -> None:
        """Resume an actor before the time that it lets pass is over; it has to expect that."""
        pause = actor.pauses
        self.after(0.0, lambda: self._resume(actor, pause))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Take steps until none is left, or until ``is_over`` returns True before a step."""
        while self._due and not is_over():
            due_ms, _, call = heapq.heappop(self._due)
            self.now_ms = due_ms
            self.steps += 1
            call()

    def close(self) -> None:
        """End all actors that are still running."""
        self.is_closed = True
        for actor in self.actors:
            if actor.coroutine and not actor.coroutine.dead:
                self._resume(actor)
        self._due.clear()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        name = "" if self._current is None else self._current.name
        self.trace.append(TraceEntry(self.steps, self.now_ms, name, text))

    def _resume(self, actor: Actor, pause: int | None = None) -> None:
        if actor.coroutine.dead or pause not in (None, actor.pauses):
            return
        self._current = actor
        try:
            actor.coroutine.switch()
        except BaseException as error:
            self.note(f"--- {error} ---")
            raise
        finally:
            self._current = None


class SimulatedClock:
    """A `spark_log.util.clock.Clock` that shows the simulated time of the actor that reads it."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Return the clock of a scheduler's actors."""
        self._scheduler = scheduler

    def time_us(self) -> int:
        """Return the wall-clock time, which is the same for all actors and the storage."""
        return START_US + int(self._scheduler.now_ms * 1000)

    def monotonic_ms(self) -> float:
        """Return the monotonic time, which runs at the actor's own rate."""
        actor = self._scheduler.current
        return self._scheduler.now_ms * (1.0 if actor is None else actor.clock_rate)

    def sleep_ms(self, duration_ms: float) -> None:
        """Let other actors run for a duration; a step."""
        self._scheduler.pass_time(max(0.0, duration_ms))
