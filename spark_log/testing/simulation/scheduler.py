"""Who goes next: actors as coroutines on a simulated clock, every choice drawn from one seed.

An actor is a greenlet, so that it can run the real, synchronous code: deep inside of it a call on
the simulated store gives up control, and comes back when the scheduler says so. Between two such
steps nothing else happens and no time passes.
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
    """The process of an actor ends here and now; raised by a step, seen by no other code."""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of what happened."""

    step: int
    now_ms: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.step:6d} {self.now_ms:10.1f} ms  {self.actor:<14} {self.text}"


class Actor:
    """One simulated process, and its incarnations after crashes.

    Attributes:
        name: as the trace shows it.
        is_mortal: whether steps of it may crash.
        clock_rate: how fast its monotonic clock runs.
        is_done: its work is finished.
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
        self.name = name
        self.is_mortal = is_mortal
        self.clock_rate = clock_rate
        self.is_done = False
        self.is_crashing = False
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
    """Runs actors in an order, and at times, that depend on nothing but the seed.

    So no actor may change what belongs to the process: what one coroutine patches, another sees,
    and two that undo their patches in the order of entering leave one of them behind for good.
    Nor may one go through a set in whatever order it has.

    Attributes:
        random: the only source of chance of a simulation.
        now_ms: simulated time since the beginning.
        steps: how many steps were taken.
        trace: what happened, in order.
        is_closed: the simulation is over; whoever is still running is being ended.
        crash_chance: how likely each step of a mortal actor is its last.
    """

    def __init__(self, seed: int) -> None:
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
        """The actor that is running; None outside of all."""
        return self._current

    def spawn(
        self, name: str, run: Callable[[], None], *, is_mortal: bool, clock_rate: float = 1.0
    ) -> None:
        """Add an actor. ``run`` is called anew after each crash, until it returns."""
        actor = Actor(self, name, run, is_mortal=is_mortal, clock_rate=clock_rate)
        self.actors.append(actor)
        self.after(self.random.random(), lambda: self._resume(actor))

    def spawn_mortal(self, name: str, run: Callable[[], None]) -> None:
        """Add an actor that crashes now and then, and whose clock is somewhat wrong."""
        self.spawn(name, run, is_mortal=True, clock_rate=self.random.uniform(0.9, 1.1))

    def after(self, delay_ms: float, call: Callable[[], object]) -> None:
        """Have something happen later, outside of all actors."""
        self._scheduled += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._scheduled, call))

    def pass_time(self, duration_ms: float) -> None:
        """Let others run for a while: called by an actor, returns when the time has come.

        Raises:
            Crash: the actor ends here.
        """
        actor = self._current
        if actor is None:
            return
        if not actor.is_crashing:
            self.after(duration_ms, lambda: self._resume(actor))
            self._current = None
            self._hub.switch()
            self._current = actor
            if actor.is_mortal and self.random.random() < self.crash_chance:
                self.note("crashes")
                actor.is_crashing = True
        if actor.is_crashing or self.is_closed:
            # Also for what is still called while the stack unwinds: a dead process does nothing.
            actor.is_crashing = True
            raise Crash

    def run(self, is_over: Callable[[], bool]) -> None:
        """Take steps until there are none left, or ``is_over`` says so before one."""
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

    def _resume(self, actor: Actor) -> None:
        if actor.coroutine.dead:
            return
        self._current = actor
        try:
            actor.coroutine.switch()
        except Exception as error:
            self.note(f"--- {error} ---")
            raise
        finally:
            self._current = None


class SimulatedClock:
    """The clock of whichever actor reads it: see `spark_log.clock.Clock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time_us(self) -> int:
        """See `Clock.time_us`: the same for all, and the storage's."""
        return START_US + int(self._scheduler.now_ms * 1000)

    def monotonic_ms(self) -> float:
        """See `Clock.monotonic_ms`: each actor's runs a little faster or slower."""
        actor = self._scheduler.current
        return self._scheduler.now_ms * (1.0 if actor is None else actor.clock_rate)

    def sleep_ms(self, duration_ms: float) -> None:
        """See `Clock.sleep_ms`: a step."""
        self._scheduler.pass_time(max(0.0, duration_ms))
