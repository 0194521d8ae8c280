"""Real processes on one partition, some of which are killed or stopped.

Four writers append, one reader follows, and one process merges and deletes files as early as the
rules allow, while the test sends SIGKILL and SIGSTOP by a seeded plan. The timing differs from run
to run; the guarantees must hold in every run.
"""

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from spark_log.storage import Store
from tests.faults.clock_shift import DAYS_OFF, ClockShift
from tests.faults.managed_process import ManagedProcess
from tests.faults.reader_process import Reader, read_until_stopped
from tests.faults.rewriter import Rewriting, rewrite_until_stopped
from tests.faults.schedule import Schedule
from tests.faults.writer_process import Writer, append_until_stopped

WRITERS = 4


@dataclass
class Campaign:
    """The plan of one campaign.

    Attributes:
        store: a store with an empty root.
        notes: directory for the processes' notes.
        seed: determines the plan.
        idempotent: whether the writers are idempotent.
        delete_delay_ms: the topic's ``file.delete.delay.ms``; stops are longer than that.
        without: name of a safety rule that the writers' logs leave out.
        clocks: wall clocks of the processes, which jump; empty: the machine's clock.
        stripes: number of stripes of the topic: 0, or 1.
    """

    store: Store
    notes: Path
    seed: int
    idempotent: bool
    delete_delay_ms: int = 600
    without: str | None = None
    clocks: tuple[ClockShift, ...] = ()
    stripes: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def run(self, duration_s):
        """Run the processes for a duration, and return when all have ended."""
        self._chance = random.Random(self.seed)
        self._clock_chance = random.Random(f"clocks of {self.seed}")
        self._next_producer = 0
        self._everyone: list[Any] = []
        self._writers = [self._new_producer() for _ in range(WRITERS)]
        self._others = [
            self._start(rewrite_until_stopped, self._rewriting()),
            self._start(
                read_until_stopped, Reader(self.store, self._notes("reader"), self._config())
            ),
        ]
        try:
            self._inject_faults(time.monotonic() + duration_s)
            # The reader ends last: it has to see all records.
            for each in self._others:
                self._everyone.remove(each)
            ended = {each.role.notes: each.end() for each in [*self._everyone, *self._others]}
        finally:
            for each in [*self._everyone, *self._others]:
                each.signal(signal.SIGKILL)
        wrong = {name: code for name, code in ended.items() if code not in (0, -signal.SIGKILL)}
        assert not wrong, f"ended by themselves or were stuck: {wrong}"

    def _inject_faults(self, until_s):
        schedule = Schedule()

        def strike():
            if time.monotonic() < until_s:
                stopped = self._strike()
                if stopped is not None:
                    pause_s = self.delete_delay_ms / 1000 * self._chance.uniform(1.2, 4)
                    schedule.do_later(pause_s, stopped.resume)
                schedule.do_later(self._chance.uniform(0.02, 0.25), strike)

        schedule.do_later(0, strike)
        schedule.run(self._watch_until)

    def _watch_until(self, at_s):
        """Wait; fail if a process ends by itself."""
        watched = [*self._writers, *self._others]
        ended = wait([each.process.sentinel for each in watched], max(0, at_s - time.monotonic()))
        fallen = [each for each in watched if each.process.sentinel in ended]
        assert not fallen, f"{fallen[0].role} ended by itself: {fallen[0].process.exitcode}"

    def _strike(self):
        """Kill or stop a process; return it if it has to be resumed later."""
        if self.clocks:
            self.done["clock set"] += 1
            self._clock_chance.choice(self.clocks).jump(days=self._clock_chance.choice(DAYS_OFF))
        place = self._chance.randrange(WRITERS)
        victim = self._writers[place]
        blow = self._chance.choices(_BLOWS, _WEIGHTS)[0]
        self.done[blow] += 1
        if blow == "other stopped":
            victim = self._chance.choice(self._others)
        if "killed" in blow:
            victim.signal(signal.SIGKILL)
            victim.process.join()
        else:
            victim.stop()
        if "new producer" in blow:
            self._writers[place] = self._new_producer()
        elif "next epoch" in blow:
            # It continues as a zombie beside its replacement.
            self._writers[place] = self._new_writer(victim.role.producer, victim.role.epoch + 1)
        return None if "killed" in blow else victim

    def _new_producer(self):
        self._next_producer += 1
        return self._new_writer(self._next_producer, 0)

    def _new_writer(self, producer, epoch):
        role = Writer(
            self.store,
            producer,
            epoch,
            self.idempotent,
            self._notes(f"writer-{producer}.{epoch}"),
            # Some sync: those are stopped in fsync, the others in link.
            self._config() | {"flush_on_append": bool(producer % 2)},
            self.without,
        )
        return self._start(append_until_stopped, role)

    def _rewriting(self):
        seed = self._chance.randrange(2**32)
        notes = self._notes("rewriter")
        return Rewriting(self.store, notes, self.delete_delay_ms, seed, self.stripes)

    def _start(self, function, role):
        number = len(self._everyone)
        clock = self.clocks[number % len(self.clocks)] if self.clocks else None
        running = ManagedProcess.start(function, role, clock)
        self._everyone.append(running)
        return running

    def _notes(self, name):
        return str(self.notes / name)

    def _config(self):
        return {"file_delete_delay_ms": self.delete_delay_ms, "stripes": self.stripes}


_BLOWS = (
    "killed, new producer",
    "killed, next epoch",
    "stopped",
    "stopped, next epoch",
    "other stopped",
)
_WEIGHTS = (2, 2, 5, 1, 2)
