"""Roots of a simulated quorum, which fail, hang and lose their files, and the calls to several."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from spark_log.errors import SparkLogError, StorageUnavailableError, UnknownOutcomeError
from spark_log.storage.memory import MemoryStore
from spark_log.storage.quorum import QuorumStore, reconfiguration
from spark_log.storage.quorum.proposal import Proposal
from spark_log.storage.store import StorageOptions, Store
from spark_log.threads import Call, FanOut, Outcome, Replies
from spark_log.util.clock import Clock
from tests.simulation.faults import Faults
from tests.simulation.patches import Patch
from tests.simulation.quorum.profile import QuorumProfile
from tests.simulation.quorum.true_names import TrueNames
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedDisk, SimulatedStore


class RootsObserver(Protocol):
    """Is called for every change of a root, at the moment when it takes effect."""

    def on_put(self, root: str, path: str, content: bytes) -> None:
        """Handle a file that appeared on a root."""

    def on_delete(self, path: str) -> None:
        """Handle the deletion of a file on a root."""


class MemberDisk(SimulatedDisk):
    """The files of one root."""

    def __init__(self, name: str, clock: Clock) -> None:
        """Return an empty disk."""
        MemoryStore.__init__(self, name, clock)
        self._listings = {}
        self.wipe()

    def wipe(self) -> None:
        """Lose all files."""
        for path in list(self._files.data):
            MemoryStore.delete(self, path)
        self._listings.clear()


class SimulatedRoot(SimulatedStore):
    """One root: a simulated store that may be down.

    Attributes:
        is_down: whether every call fails.
    """

    def __init__(self, world: QuorumWorld, name: str) -> None:
        """Return an empty root."""
        self.files = MemberDisk(name, world.clock)
        super().__init__(self.files, world.scheduler, self, world.profile.faults)
        self.is_down = False
        self._world = world

    def on_file_created(self, path: str) -> None:
        """Check a new file."""
        content = self.files.open_buffer(path).to_pybytes()
        self._world.observer.on_put(self.url, path, content)

    def on_file_deleted(self, path: str) -> None:
        """Check a deletion."""
        self._world.observer.on_delete(path)

    def list_hidden(self, directory: str) -> list[object]:  # type: ignore[override]
        """Return nothing: no actor needs it."""
        return []

    def list_directories(self, directory: str):
        """Return the names of the directories; a step."""
        return self._read(
            "list", directory, lambda: iter([*self.files.list_directories(directory)])
        )

    def _write(
        self, what: str, path: str, effect: Callable[[], None], *, can_be_resent: bool = False
    ) -> None:
        try:
            super()._write(what, path, effect, can_be_resent=can_be_resent)
        except StorageUnavailableError as error:  # before the effect, or after it
            raise UnknownOutcomeError(str(error), path=path) from error

    def pass_time(self) -> None:
        """Let other actors run; raise an error if the root is down then."""
        super().pass_time()
        if self.is_down:
            raise StorageUnavailableError(f"{self.url} is down", path=self.url)


@dataclass(eq=False)
class OpenRound:
    """Calls to several roots that are under way.

    Attributes:
        has_failed: whether a root has not answered.
    """

    has_failed: bool = False


class SimulatedFanOut(FanOut):
    """Calls several roots in a random order. Some calls take effect when nobody waits any more."""

    def __init__(self, world: QuorumWorld) -> None:
        super().__init__("simulated-quorum")
        self._world = world

    def request(
        self,
        calls: Sequence[Call],
        *,
        is_done: Callable[[Replies], bool],
        suffices: Callable[[Replies], bool],
    ) -> Replies:
        """Make the calls one after the other, with the steps of other actors between them."""
        random, world = self._world.scheduler.random, self._world
        replies: list[Outcome[Any] | None] = [None] * len(calls)
        waiting = random.sample(range(len(calls)), len(calls))
        opened = OpenRound()
        world.rounds.append(opened)
        try:
            while waiting and not is_done(replies):
                is_impatient = not world.is_calm and random.random() < world.impatience
                if is_impatient and suffices(replies):
                    opened.has_failed = True
                    break
                number = waiting.pop()
                try:
                    replies[number] = Outcome(calls[number].send())
                except Exception as error:
                    replies[number] = Outcome(error=error)
                    opened.has_failed = True
        finally:
            world.rounds.remove(opened)
        self.send([calls[number] for number in waiting])
        return replies

    def send(self, calls: Sequence[Call]) -> None:
        """Let the calls take effect later, or never."""
        random = self._world.scheduler.random
        for call in calls:
            if random.random() < 0.7:
                delay_ms = random.expovariate(1 / random.choice((5, 50, 500)))
                self._world.scheduler.after(delay_ms, partial(_send, call))


def _send(call: Call) -> None:
    with suppress(SparkLogError):
        call.send()


@dataclass
class QuorumWorld:
    """The roots, the time, the model and the conditions of one simulation."""

    scheduler: Scheduler
    clock: Clock
    profile: QuorumProfile
    truth: TrueNames = field(default_factory=TrueNames)
    observer: RootsObserver = field(init=False)
    roots: dict[str, SimulatedRoot] = field(default_factory=dict)
    rounds: list[OpenRound] = field(default_factory=list)
    impatience: float = 0.0
    is_calm: bool = False
    is_ending: bool = False

    def __post_init__(self) -> None:
        self.observer = self.truth

    def root(self, number: int) -> str:
        """Return the URL of a root, which is created empty if it does not exist."""
        url = f"memory://quorum-{number}"
        if url not in self.roots:
            self.roots[url] = SimulatedRoot(self, f"quorum-{number}")
            if self.is_ending:
                self.roots[url].faults = self.profile.faults.without_faults()
        return url

    def open_root(self, root: str, _: StorageOptions | None) -> Store:
        """Return the store of a root."""
        return self.roots[root]

    def open_store(self, kind: type[QuorumStore] = QuorumStore) -> QuorumStore:
        """Return a new handle of the quorum, as a new process has it."""
        up = [url for url, root in self.roots.items() if not root.is_down]
        return kind(
            up,
            None,
            self.open_root,
            clock=self.clock,
            random=self.scheduler.random,
            fan_out=SimulatedFanOut(self),
        )

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def end_faults(self) -> None:
        """Let all roots work, and tell the actors to end."""
        self.impatience = 0.0
        self.set_faults(self.profile.faults.without_faults())
        self.is_ending = True

    def set_faults(self, faults: Faults) -> None:
        """Set the rates of faults of all roots."""
        for root in self.roots.values():
            root.faults = faults


def seeded(scheduler: Scheduler, haste: float) -> tuple[Patch, ...]:
    """Return patches that make all chance the seed's, and proposers hasty."""

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=scheduler.random.getrandbits(128), version=4)

    def random() -> Random:
        return scheduler.random

    return (
        (Proposal, "backoff", haste),
        (uuid, "uuid4", uuid4),
        (reconfiguration, "Random", random),
    )
