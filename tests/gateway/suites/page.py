"""The results of the suites' last runs, and docs/gateway-parity.md, which is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from tests.gateway.suites.suite import Outcome, Suite, TestResult

RESULTS = Path(__file__).with_name("results.json")

_INTRODUCTION = """\
# Parity of the gateway with Kafka

Test suites are run against [gateways](gateway.md) as against brokers of Kafka:
`make gateway-suites` runs those of Kafka's clients, `make kafka-suites` those of Kafka's own
project and of Spark's connector. Each installs what a suite needs, and starts gateways on an empty
root. A client without tests that can run here has tests of ours. `make docs` writes this page from
the results of the last whole runs (`tests/gateway/suites/results.json`). A suite that takes hours
may be run in several parts, whose number the column *date* has.

- *passed*: the suite says so.
- *failed*: a fault of the gateway until the contrary is proved. `ARGS='--kafka …'` runs a suite
  against a real broker of Kafka, which shows what its tests expect.
- *not applicable*: the test asks for something that the log does not have by design, or it fails
  with Kafka, too; the reason says which. It is not run.
"""


def write_results(
    path: Path, suite: Suite, count: int, results: Sequence[TestResult], *, runs: int = 1
) -> None:
    """Put the results of a run into a file of results, in the place of its last run.

    Args:
        path: the file; its other runs stay.
        suite: the suite.
        count: the number of gateways that it ran against.
        results: the results of all of its tests.
        runs: the number of runs that they are from; each but the last was interrupted.
    """
    suites: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def of(outcome: Outcome) -> dict[str, str]:
        return {each.test: each.reason for each in results if each.outcome is outcome}

    arguments = suite.name if count == 1 else f"{suite.name} --gateways {count}"
    suites[arguments] = {
        "suite": suite.name,
        "client": suite.client,
        "version": suite.version,
        "tests": "ours" if suite.tests_are_ours else "its own",
        "gateways": count,
        "date": datetime.now(UTC).date().isoformat() + (f" ({runs} runs)" if runs > 1 else ""),
        "passed": sorted(of(Outcome.PASSED)),
        "failed": of(Outcome.FAILED),
        "not applicable": of(Outcome.NOT_APPLICABLE),
    }
    path.write_text(json.dumps(suites, indent=1, sort_keys=True) + "\n", "utf-8")


def page(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page.

    Args:
        runs: the content of a file of results.
    """
    columns = ("suite", "client", "version", "tests", "gateways", *Outcome, "date")
    lines = [_INTRODUCTION, f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for run in runs.values():
        cells = (len(run[each]) if each in tuple(Outcome) else run[each] for each in columns)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for arguments, run in runs.items():
        if run["failed"] or run["not applicable"]:
            lines += ["", f"## {arguments}", "", f"`make gateway-suites ARGS='{arguments}'`", ""]
            lines += _reasons(run)
    return "\n".join(lines) + "\n"


def _reasons(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows of a table of the tests that did not pass; those of one reason are one row."""
    yield "| outcome | reason | tests |"
    yield "|---|---|---|"
    for outcome in (Outcome.FAILED, Outcome.NOT_APPLICABLE):
        by_reason: dict[str, list[str]] = {}
        for test, reason in run[outcome].items():
            by_reason.setdefault(_first_line(reason), []).append(f"`{test}`")
        for reason, tests in by_reason.items():
            yield f"| {outcome} | {reason} | {', '.join(tests)} |"


def _first_line(reason: str) -> str:
    line = next(iter(reason.strip().splitlines()), "")[:200]
    return line.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    typer.echo(page(json.loads(RESULTS.read_text("utf-8"))), nl=False)
