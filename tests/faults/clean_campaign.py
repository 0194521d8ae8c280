"""Two cleaners of one root, beside producers, a consumer and deletions of topics; all are killed.

SIGKILLs follow a seeded plan. The timing differs from run to run; the guarantees must hold in every
run.
"""

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from spark_log import Admin, NewTopic
from tests.faults.clean_clients import (
    TOPICS,
    Role,
    consume_until_stopped,
    create_and_delete_until_stopped,
    produce_until_stopped,
)
from tests.faults.clean_process import CleanRole, clean_until_stopped
from tests.faults.clock_shift import DAYS_OFF, ClockShift
from tests.faults.managed_process import ManagedProcess

_PLACES = {
    "cleaner": (clean_until_stopped, 2, 5),
    "producer": (produce_until_stopped, 2, 2),
    "consumer": (consume_until_stopped, 1, 0.5),
    "admin": (create_and_delete_until_stopped, 1, 1),
}
"""The roles: their work, their number of processes, and their relative rate of kills."""


@dataclass
class CleanCampaign:
    """The plan of one campaign.

    Attributes:
        root, storage_options: an empty root, and its options.
        properties: path of the properties file with both, for the command line.
        notes: directory for the processes' notes.
        seed: determines the plan.
        clocks: wall clocks by role and slot, besides which one more cleaner runs, with a right
            clock; empty: the machine's clock.
        jumping: those of the clocks that jump.
    """

    root: str
    storage_options: dict[str, str] | None
    properties: Path
    notes: Path
    seed: int
    clocks: dict[tuple[str, int], ClockShift] = field(default_factory=dict)
    jumping: tuple[ClockShift, ...] = ()
    done: Counter[str] = field(default_factory=Counter)

    def run(self, duration_s):
        """Run and kill the processes for a duration, and return when all have ended."""
        lines = [f"storage.{key}={value}" for key, value in (self.storage_options or {}).items()]
        self.properties.write_text("\n".join([f"root={self.root}", *lines]))
        Admin(self.root, storage_options=self.storage_options).create_topics(
            [NewTopic(name, 1, topic_configs=settings) for name, settings in TOPICS.items()]
        )
        chance = random.Random(self.seed)
        clock_chance = random.Random(f"clocks of {self.seed}")
        running = {
            (what, slot): self._start(what, slot, 0)
            for what, (_, count, _) in _PLACES.items()
            for slot in range(count + (what == "cleaner" and bool(self.clocks)))
        }
        lives: Counter[tuple[str, int]] = Counter()
        weights = [_PLACES[what][2] for what, _ in running]
        until_s = time.monotonic() + duration_s
        longest_s = min(2, duration_s / 8)
        try:
            while time.monotonic() < until_s:
                # Sometimes long enough for a whole round.
                pause_s = chance.uniform(0.02, chance.choice((0.2, 0.2, longest_s)))
                processes = [each.process for each in running.values()]
                ended = wait([each.sentinel for each in processes], pause_s)
                assert not ended, f"ended by itself: {processes}"
                if self.jumping:
                    clock_chance.choice(self.jumping).jump(days=clock_chance.choice(DAYS_OFF))
                    self.done["clock set"] += 1
                place = chance.choices(list(running), weights)[0]
                running[place].signal(signal.SIGKILL)
                running[place].process.join()
                self.done[f"{place[0]} killed"] += 1
                lives[place] += 1
                running[place] = self._start(*place, lives[place])
            # The consumer ends last: it has to see all records.
            for what in ("producer", "admin", "consumer", "cleaner"):
                for place, each in running.items():
                    if place[0] == what:
                        assert each.end() == 0, f"{place} ended with {each.process.exitcode}"
        finally:
            for each in running.values():
                each.signal(signal.SIGKILL)

    def _start(self, what, slot, life):
        notes = str(self.notes / f"{what}-{slot}.{life}")
        role: CleanRole | Role
        if what == "cleaner":
            role = CleanRole(str(self.properties), notes)
        else:
            role = Role(self.root, self.storage_options, notes, slot, life)
        return ManagedProcess.start(_PLACES[what][0], role, self.clocks.get((what, slot)))
