"""Reports of benchmarks: the figures of one run with their goals, as a table and as JSON."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.command_line import base_parser
from benchmarks.machine import RESULTS, machine
from benchmarks.whole_table import print_whole


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        name: the name of the measured quantity.
        value: the number.
        unit: the unit of the number; empty for a count or a ratio.
        at_most: the goal, if less is better.
        at_least: the goal, if more is better.
    """

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one benchmark, in the order in which they are shown."""

    name: str
    figures: Sequence[Figure]
    notes: Mapping[str, object] = field(default_factory=dict)

    def print(self, console: Console | None = None) -> None:
        """Print a table: every figure, its goal and whether it is met."""
        table = Table(title=self.name, box=SIMPLE_HEAD)
        table.caption = "\n".join(f"{name}: {value}" for name, value in self.notes.items())
        table.add_column("figure")
        for column in ("measured", "goal"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("met", no_wrap=True)
        for figure in self.figures:
            bounds = (("≤", figure.at_most), ("≥", figure.at_least))
            goal = [f"{sign} {_shown(bound)}" for sign, bound in bounds if bound is not None]
            met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[figure.is_met]
            measured = f"{_shown(figure.value)} {figure.unit}".strip()
            table.add_row(figure.name, measured, *(goal or [""]), met)
        print_whole(table, console)

    def write_json(self, directory: Path = RESULTS) -> Path:
        """Write figures and machine to ``<directory>/<name>.json`` and return that path."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        figures = [asdict(figure) | {"is_met": figure.is_met} for figure in self.figures]
        content = {
            "name": self.name,
            "machine": machine(),
            "notes": dict(self.notes),
            "figures": figures,
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--directory`` and ``--json``."""
    options = base_parser(module, description)
    options.add_argument("--json", action="store_true", help="also write the figures to results/")
    return options


def run(
    options: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], Report],
    arguments: Sequence[str] | None = None,
) -> None:
    """Parse the command line, measure, print the table, and write JSON with ``--json``."""
    chosen = options.parse_args(arguments)
    report = measure(chosen)
    report.print()
    if chosen.json:
        print(f"written: {report.write_json()}")


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not exceeded by ``percent`` percent of ``values``."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _shown(number: float) -> str:
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if abs(number) < 10 else f"{number:.1f}"
