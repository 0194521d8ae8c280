"""Many simulations, on several cores."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from spark_log.testing.simulation.rules import RULES, SOUND
from spark_log.testing.simulation.simulation import SimulationFailedError, simulate

_CHUNK = 50
"""Seeds that a process runs before it tells."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of some seeds.

    Attributes:
        seeds: how many.
        steps: of all that ended well.
        records: likewise.
        failures: of the others.
    """

    seeds: int
    steps: int
    records: int
    failures: tuple[SimulationFailedError, ...]


def simulate_many(seeds: range, *, rule: str | None = None, jobs: int = 1) -> Iterator[Tally]:
    """Run simulations, and yield from time to time what came of some of them.

    Args:
        seeds: which.
        rule: one of `RULES`, to be left out.
        jobs: how many processes.
    """
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    if jobs == 1:
        yield from (_tally(chunk, rule) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_tally, chunk, rule) for chunk in chunks]):
            yield future.result()


def _tally(seeds: range, rule: str | None) -> Tally:
    variant = SOUND if rule is None else RULES[rule]
    steps = records = 0
    failures = []
    for seed in seeds:
        try:
            result = simulate(seed, variant)
        except SimulationFailedError as failure:
            failures.append(failure)
        else:
            steps, records = steps + result.steps, records + result.records
    return Tally(len(seeds), steps, records, tuple(failures))
