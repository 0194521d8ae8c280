"""Runs simulations from a shell: many seeds, or one seed with its trace."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.runner import SUBJECTS, SimulationTotals, simulate_many
from tests.simulation.scheduler import TraceEntry
from tests.simulation.simulation import SimulationFailedError

app = typer.Typer(add_completion=False)


@app.command()
def main(
    of: Annotated[
        str, typer.Option(help=f"What to simulate: {' or '.join(SUBJECTS)}.", metavar="WHAT")
    ] = "log",
    seeds: Annotated[int, typer.Option(help="Number of simulations to run.", min=1)] = 2000,
    first: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    jobs: Annotated[
        int, typer.Option(help="Number of processes; by default one per core.", min=1)
    ] = os.cpu_count() or 1,
    seed: Annotated[
        int | None, typer.Option(help="Run only this seed, and print its trace.", min=0)
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="Leave out this safety rule; --rules lists them.", metavar="RULE"),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="List the safety rules, and exit.")
    ] = False,
    lines: Annotated[
        int, typer.Option(help="Maximum number of trace lines to print per failure.", min=1)
    ] = 40,
) -> None:
    """Run the shipped code on simulated storage with faults, and check its guarantees.

    Exits with status 1 after a violation. Each failure names the seed that reproduces it.
    """
    if of not in SUBJECTS:
        raise typer.BadParameter(f"{of!r} cannot be simulated; give {' or '.join(SUBJECTS)}")
    if rules:
        typer.echo("\n".join(SUBJECTS[of].rules))
        return
    if rule is not None and rule not in SUBJECTS[of].rules:
        raise typer.BadParameter(f"{rule!r} is not a rule; --rules lists them")
    if seed is not None:
        raise typer.Exit(_replay(of, seed, rule))
    raise typer.Exit(_run(of, range(first, first + seeds), rule, jobs, lines))


def _replay(of: str, seed: int, rule: str | None) -> int:
    try:
        result = SUBJECTS[of].run(seed, rule)
    except SimulationFailedError as failure:
        _print_failure(failure, len(failure.trace))
        return 1
    _print_trace(result.trace)
    counted = f"{result.records} {SUBJECTS[of].records}"
    typer.echo(f"seed {seed}: {result.steps} steps, {counted}, everything held")
    return 0


def _run(of: str, seeds: range, rule: str | None, jobs: int, lines: int) -> int:
    began_s = time.perf_counter()
    all_totals = []
    for totals in _with_progress(simulate_many(seeds, of=of, rule=rule, jobs=jobs), len(seeds)):
        all_totals.append(totals)
        for failure in totals.failures:
            _print_failure(failure, lines)
    took_s = time.perf_counter() - began_s
    failures = sorted(failure.seed for totals in all_totals for failure in totals.failures)
    steps, records = (
        sum(getattr(totals, what) for totals in all_totals) for what in ("steps", "records")
    )
    typer.echo(
        f"{len(seeds):,} seeds from {seeds.start} in {took_s:,.0f} s with {jobs} "
        f"{'process' if jobs == 1 else 'processes'}: {len(seeds) / took_s:,.1f} seeds/s; "
        f"{steps:,} steps, {records:,} {SUBJECTS[of].records}; {len(failures)} failures"
    )
    if failures:
        typer.echo(f"run one again with --seed: {', '.join(map(str, failures[:20]))}")
    return 1 if failures else 0


def _with_progress(
    all_totals: Iterable[SimulationTotals], total: int
) -> Iterator[SimulationTotals]:
    """Show a progress bar with rate and failures if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield from all_totals
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f} seeds/s, {task.fields[failed]} failures"),
        TimeRemainingColumn(),
    )
    began_s = time.perf_counter()
    done = failed = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, rate=0.0, failed=0)
        for totals in all_totals:
            done, failed = done + totals.seeds, failed + len(totals.failures)
            rate = done / (time.perf_counter() - began_s)
            progress.update(task, completed=done, rate=rate, failed=failed)
            yield totals


def _print_failure(failure: SimulationFailedError, lines: int) -> None:
    typer.echo(f"\nseed {failure.seed} ({failure.profile})")
    if len(failure.trace) > lines:
        typer.echo(f"{'':6} … {len(failure.trace) - lines} earlier lines")
    _print_trace(failure.trace[-lines:])
    typer.echo(f"seed {failure.seed}: {failure.reason}\n{failure.details}")


def _print_trace(trace: Sequence[TraceEntry]) -> None:
    typer.echo("\n".join(map(str, trace)))


if __name__ == "__main__":
    app(prog_name="python -m tests.simulation")
