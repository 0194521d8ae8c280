"""Runs simulations of groups from a shell: many at length, or one again, step by step.

``python -m spark_log.testing.simulation.group_runner --help``
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Annotated

import typer

from spark_log.testing.simulation.group_rules import GROUP_RULES, GROUP_SOUND
from spark_log.testing.simulation.group_simulation import simulate_group
from spark_log.testing.simulation.runner import Tally
from spark_log.testing.simulation.simulation import SimulationFailedError

_CHUNK = 50
"""Seeds that a process runs before it tells."""

app = typer.Typer(add_completion=False)


def simulate_groups(seeds: range, *, rule: str | None = None, jobs: int = 1) -> Iterator[Tally]:
    """Run simulations, and yield from time to time what came of some of them.

    Args:
        seeds: which.
        rule: one of `GROUP_RULES`, to be left out.
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
    variant = GROUP_SOUND if rule is None else GROUP_RULES[rule]
    steps = generations = 0
    failures = []
    for seed in seeds:
        try:
            result = simulate_group(seed, variant)
        except SimulationFailedError as failure:
            failures.append(failure)
        else:
            steps, generations = steps + result.steps, generations + result.records
    return Tally(len(seeds), steps, generations, tuple(failures))


@app.command()
def main(
    seeds: Annotated[int, typer.Option(help="How many simulations to run.", min=1)] = 2000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    jobs: Annotated[
        int, typer.Option(help="How many processes; all cores by default.", min=1)
    ] = os.cpu_count() or 1,
    seed: Annotated[
        int | None, typer.Option(help="Run this one alone, and print all that happens.", min=0)
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="A safety rule to leave out; see --rules.", metavar="RULE")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules, and end.")] = False,
    lines: Annotated[
        int, typer.Option(help="How much to show of what led to a failure.", min=1)
    ] = 40,
) -> None:
    """Run consumer groups against simulated storage, and check everything that they promise.

    Ends with status 1 when something did not hold; each failure names the seed that brings it back.
    """
    if rules:
        typer.echo("\n".join(GROUP_RULES))
        return
    if rule is not None and rule not in GROUP_RULES:
        raise typer.BadParameter(f"{rule!r} is none of those that --rules lists")
    if seed is not None:
        raise typer.Exit(_replay(seed, rule))
    began_s = time.perf_counter()
    tallies, failures = [], []
    for tally in simulate_groups(range(first, first + seeds), rule=rule, jobs=jobs):
        tallies.append(tally)
        for failure in tally.failures:
            failures.append(failure.seed)
            _print_failure(failure, lines)
    took_s = time.perf_counter() - began_s
    typer.echo(
        f"{seeds:,} seeds from {first} in {took_s:,.0f} s: {seeds / took_s:,.1f} seeds/s; "
        f"{sum(tally.steps for tally in tallies):,} steps, "
        f"{sum(tally.records for tally in tallies):,} generations; {len(failures)} failures"
    )
    raise typer.Exit(1 if failures else 0)


def _replay(seed: int, rule: str | None) -> int:
    try:
        result = simulate_group(seed, GROUP_SOUND if rule is None else GROUP_RULES[rule])
    except SimulationFailedError as failure:
        _print_failure(failure, len(failure.trace))
        return 1
    typer.echo("\n".join(map(str, result.trace)))
    typer.echo(f"seed {seed}: {result.steps} steps, {result.records} generations, all held")
    return 0


def _print_failure(failure: SimulationFailedError, lines: int) -> None:
    typer.echo("\n".join(map(str, failure.trace[-lines:])))
    typer.echo(f"seed {failure.seed}: {failure.reason}\n{failure.details}")


if __name__ == "__main__":
    app(prog_name="python -m spark_log.testing.simulation.group_runner")
