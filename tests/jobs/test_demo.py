"""``make demo`` and the commands of the README, on what the demo left."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.jobs.conftest import BIN, ENVIRONMENT, HOME

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the demo ran, and what it printed."""
    directory = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, HOME / "jobs" / "demo.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory, done.stdout


def test_every_flight_comes_out_once(demo: tuple[Path, str]) -> None:
    directory, printed = demo
    flights = pyarrow.csv.read_csv(directory / ".demo/flights.csv")
    assert flights.num_rows == 336_776

    out = pq.read_table(directory / ".demo/flights.parquet", columns=["key", "partition", "offset"])

    assert out.num_rows == 336_776
    assert out.group_by(["partition", "offset"]).aggregate([]).num_rows == 336_776
    by_carrier = {
        row["values"]: row["counts"] for row in flights["carrier"].value_counts().to_pylist()
    }
    assert {
        row["values"]: row["counts"] for row in out["key"].value_counts().to_pylist()
    } == by_carrier
    assert re.search(r"out, run again\s*│\s*0 │", printed)


def test_one_day_by_event_time_is_exactly_that_day(demo: tuple[Path, str]) -> None:
    directory, _ = demo
    flights = pyarrow.csv.read_csv(directory / ".demo/flights.csv")
    day = pc.strftime(flights["time_hour"], "%Y-%m-%d")
    expected = pc.sum(pc.equal(day, "2013-07-04")).as_py()

    replayed = pq.read_table(directory / ".demo/one-day.parquet")

    assert replayed.num_rows == expected > 0
    assert set(pc.strftime(replayed["timestamp"], "%Y-%m-%d").to_pylist()) == {"2013-07-04"}


def test_an_offset_range_is_exactly_that_range(demo: tuple[Path, str]) -> None:
    directory, _ = demo
    lines = [
        line
        for part in (directory / ".demo/range.jsonl").glob("*.json")
        for line in part.read_text().splitlines()
    ]
    offsets = sorted(int(re.search(r'"offset":(\d+)', line)[1]) for line in lines)  # type: ignore[index]
    assert offsets == list(range(1000, 2000))


def test_the_commands_to_try_next_work(demo: tuple[Path, str]) -> None:
    directory, printed = demo
    commands = [line.split()[1:] for line in printed.splitlines() if ".venv/bin/spark-log" in line]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            [BIN / "spark-log", *command],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("command", readme_commands())
def test_the_readmes_commands_work(demo: tuple[Path, str], command: str) -> None:
    directory, _ = demo
    for name in ("jobs", "conf"):
        if not (directory / name).exists():
            (directory / name).symlink_to(HOME / name)
    (function,) = re.findall(
        r"```python\n([^`]*def by_carrier.*?)```", (HOME / "README.md").read_text(), re.DOTALL
    )
    (directory / "delays.py").write_text(function)
    pipeline = f"set -o pipefail; {command}"
    done = subprocess.run(
        ["bash", "-c", pipeline],
        cwd=directory,
        env=ENVIRONMENT | {"PATH": f"{BIN}:{ENVIRONMENT['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, shlex.join([command]) + done.stderr


def test_the_readme_has_commands() -> None:
    assert len(readme_commands()) >= 6
