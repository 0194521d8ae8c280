"""Checks files of history lines from a shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from spark_log.testing.history.anomaly import ALLOWED, Anomaly
from spark_log.testing.history.checker import check_history
from spark_log.testing.history.history_file import HistoryFormatError, read_history
from spark_log.util.terminal_text import escape_as_json

app = typer.Typer(add_completion=False)


@app.command()
def main(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files that clients wrote, together one history.", exists=True),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each finding.")
    ] = False,
    allow: Annotated[
        list[Anomaly] | None,
        typer.Option(help="An anomaly that is reported and does not count; may be repeated."),
    ] = None,
    examples: Annotated[
        int, typer.Option(help="Maximum number of findings of each anomaly to print.", min=1)
    ] = 32,
) -> None:
    """Check a history that clients noted down, and print its anomalies.

    Exits with status 1 if there is an anomaly that Kafka's guarantees do not allow, and with 2 if a
    file is no history.
    """
    try:
        history = read_history(*files)
    except HistoryFormatError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from None
    for path in history.torn:
        typer.echo(f"{path}: the last line is incomplete and is left out", err=True)
    findings = check_history(history, allowed=ALLOWED | set(allow or ()), examples=examples)
    if as_json:
        for row in findings.to_arrow().to_pylist():
            typer.echo(escape_as_json(json.dumps(row, ensure_ascii=False)))
    else:
        if findings.findings:
            typer.echo(findings)
        typer.echo(
            f"{len(history.operations):,} operations, {len(findings.anomalies):,} anomalies shown"
        )
    raise typer.Exit(1 if findings.anomalies else 0)


if __name__ == "__main__":
    app(prog_name="python -m spark_log.testing.history")
