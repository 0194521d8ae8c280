"""Many simulations, on several cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from spark_log.testing.simulation.compaction.rules import COMPACTION_RULES
from spark_log.testing.simulation.compaction.simulation import COMPACTION_SOUND, simulate_compaction
from spark_log.testing.simulation.deletion.simulation import (
    DELETION_RULES,
    DELETION_SOUND,
    simulate_deletion,
)
from spark_log.testing.simulation.groups.rules import GROUP_RULES, GROUP_SOUND
from spark_log.testing.simulation.groups.simulation import simulate_group
from spark_log.testing.simulation.log.rules import RULES, SOUND
from spark_log.testing.simulation.log.simulation import (
    SimulationFailedError,
    SimulationResult,
    simulate,
)
from spark_log.testing.simulation.offsets.rules import OFFSETS_RULES
from spark_log.testing.simulation.offsets.simulation import simulate_offsets
from spark_log.testing.simulation.offsets.world import OFFSETS_SOUND

_CHUNK = 50
"""Seeds that a process runs before it tells."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is simulated.

    Attributes:
        simulate: runs a seed, with the parts given.
        sound: the parts as they are.
        rules: by name, the parts with a safety rule left out.
        records: what its results count.
    """

    simulate: Callable[[int, Any], SimulationResult]
    sound: object
    rules: Mapping[str, object]
    records: str

    def run(self, seed: int, rule: str | None) -> SimulationResult:
        """Run one simulation, perhaps without a rule.

        Raises:
            SimulationFailedError: with the trace.
        """
        return self.simulate(seed, self.sound if rule is None else self.rules[rule])


SUBJECTS: Final = {
    "log": Subject(simulate, SOUND, RULES, "records"),
    "groups": Subject(simulate_group, GROUP_SOUND, GROUP_RULES, "generations"),
    "compaction": Subject(simulate_compaction, COMPACTION_SOUND, COMPACTION_RULES, "records"),
    "offsets": Subject(simulate_offsets, OFFSETS_SOUND, OFFSETS_RULES, "versions"),
    "deletion": Subject(simulate_deletion, DELETION_SOUND, DELETION_RULES, "topics"),
}
"""By name: a partition's log, consumer groups, a log that is compacted, the table of committed
offsets, topics that are deleted."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of some seeds.

    Attributes:
        seeds: how many.
        steps: of all that ended well.
        records: likewise; see `Subject.records`.
        failures: of the others.
    """

    seeds: int
    steps: int
    records: int
    failures: tuple[SimulationFailedError, ...]


def simulate_many(
    seeds: range, *, of: str = "log", rule: str | None = None, jobs: int = 1
) -> Iterator[Tally]:
    """Run simulations, and yield from time to time what came of some of them.

    Args:
        seeds: which.
        of: one of `SUBJECTS`.
        rule: one of its rules, to be left out.
        jobs: how many processes.
    """
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from (_tally(chunk, of, rule) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_tally, chunk, of, rule) for chunk in chunks]):
            yield future.result()


def _tally(seeds: range, of: str, rule: str | None) -> Tally:
    steps = records = 0
    failures = []
    for seed in seeds:
        try:
            result = SUBJECTS[of].run(seed, rule)
        except SimulationFailedError as failure:
            failures.append(failure)
        else:
            steps, records = steps + result.steps, records + result.records
    return Tally(len(seeds), steps, records, tuple(failures))
