"""The course of a simulation: actors under faults, then without faults, then a check of the end."""

from __future__ import annotations

import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from tests.simulation.faults import Faults
from tests.simulation.patches import Patch, patched
from tests.simulation.scheduler import Scheduler, TraceEntry
from tests.simulation.violation import ViolationError


class SimulationFailedError(AssertionError):
    """A guarantee did not hold, or an actor failed unexpectedly.

    Attributes:
        seed: the seed that reproduces it.
        profile: the conditions that the seed drew.
        reason: the guarantee that did not hold, or the unexpected error.
        details: the traceback of an unexpected error.
        trace: the events until then.
    """

    def __init__(
        self,
        message: str,
        *,
        seed: int = -1,
        profile: object = None,
        reason: str = "",
        details: str = "",
        trace: Sequence[TraceEntry] = (),
    ) -> None:
        super().__init__(message)
        self.seed = seed
        self.profile = profile
        self.reason = reason
        self.details = details
        self.trace = tuple(trace)


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation without a violation.

    Attributes:
        steps: number of steps.
        records: number of records that were appended, or of what else the subject counts.
        trace: the events.
    """

    steps: int
    records: int
    trace: Sequence[TraceEntry] = field(repr=False)


def fails(simulation: Simulation) -> bool:
    """Run a simulation, and return whether a guarantee did not hold."""
    try:
        simulation.run()
    except SimulationFailedError:
        return True
    return False


def texts_of(simulations: Iterable[Simulation]) -> set[str]:
    """Run simulations, and return the lines of their traces, without the numbers."""
    traces = [simulation.run().trace for simulation in simulations]
    return {re.sub(r"[0-9-]+", "#", entry.text) for trace in traces for entry in trace}


class FaultyWorld(Protocol):
    """The world of a simulation."""

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""


class Simulation(ABC):
    """One simulation. A subclass makes the world, the actors and the check of the end.

    Attributes:
        seed: determines every step.
        profile: the conditions that the seed drew.
        faults: the part of the profile that says how the storage and processes fail.
        steps: number of steps with faults.
        scheduler: runs the actors.
        world: the state that all actors share.
        patches: the attributes that are replaced in this process while the simulation runs.
    """

    MAX_STEPS_TO_END: ClassVar[int] = 20_000
    """Number of steps within which every actor must end once the faults have ended."""

    world: FaultyWorld
    patches: tuple[Patch, ...] = ()

    def __init__(self, seed: int, profile: object, faults: Faults, steps: int) -> None:
        self.seed = seed
        self.profile = profile
        self.faults = faults
        self.steps = steps
        self.scheduler = Scheduler(seed)

    @property
    @abstractmethod
    def records(self) -> int:
        """Number of records so far, or of what else the subject counts."""

    @abstractmethod
    def spawn_actors(self) -> None:
        """Make the actors."""

    @abstractmethod
    def check_end(self) -> None:
        """Check the files that are left, as new processes read them.

        Raises:
            ViolationError: a guarantee does not hold.
        """

    def settle(self) -> None:
        """Run without faults until all actors have ended.

        Raises:
            ViolationError: an actor does not end.
        """
        self.run_to_end()

    def run(self) -> SimulationResult:
        """Run the simulation to its end.

        Raises:
            SimulationFailedError: a guarantee did not hold; has the trace.
        """
        scheduler = self.scheduler
        # Actors end in `_report_failures`, while everything is still replaced.
        with patched(*self.patches), self._report_failures():
            self.spawn_actors()
            scheduler.crash_chance = self.faults.crash
            scheduler.run(lambda: scheduler.steps >= self.steps)
            scheduler.note("--- faults end ---")
            scheduler.crash_chance = 0.0
            self.world.end_faults()
            self.settle()
            self.check_end()
        return SimulationResult(scheduler.steps, self.records, scheduler.trace)

    def run_to_end(self) -> None:
        """Run until all actors have ended.

        Raises:
            ViolationError: an actor has not ended after `MAX_STEPS_TO_END`.
        """
        scheduler = self.scheduler
        until = scheduler.steps + self.MAX_STEPS_TO_END
        scheduler.run(lambda: scheduler.steps >= until)
        self.check_all_ended()

    def check_all_ended(self) -> None:
        """Check that no actor still runs.

        Raises:
            ViolationError: an actor still runs.
        """
        for actor in self.scheduler.actors:
            if not actor.is_done:
                raise ViolationError(f"{actor.name} does not come to an end")

    @contextmanager
    def _report_failures(self) -> Iterator[None]:
        """Turn an exception into a failure with seed, profile and trace; end the actors at exit."""
        try:
            yield
        except (Exception, ViolationError) as error:
            is_violation = isinstance(error, ViolationError)
            reason = str(error) if is_violation else f"{type(error).__name__}: {error}"
            raise SimulationFailedError(
                f"seed {self.seed}: {reason}",
                seed=self.seed,
                profile=self.profile,
                reason=reason,
                details="" if is_violation else "".join(traceback.format_exception(error)),
                trace=self.scheduler.trace,
            ) from error
        finally:
            self.scheduler.close()
