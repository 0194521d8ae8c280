"""What a new user does first: install, and the README's code as it stands, in an empty folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs.blocks import block, blocks

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with spark-log in it, installed as the README says.

    Dependencies are those of the tests' environment, so that they are not downloaded again.
    """
    folder = tmp_path_factory.mktemp("first") / ".venv"
    create, install = block("README.md", "pip install").splitlines()
    assert create == "python3 -m venv .venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    wanted = "./spark-log[spark]"
    assert install == f".venv/bin/python -m pip install '{wanted}'"
    site = next(folder.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    checkout = folder.with_name("spark-log")
    others = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "spark-warehouse", "build")
    shutil.copytree(PROJECT, checkout, symlinks=True, ignore=others)
    subprocess.run([*pip, "--target", site, wanted], cwd=folder.parent, check=True)
    assert (site / "spark_log" / "conf" / "spark-defaults.conf").is_file()
    # Behind the site itself: of spark_log the wheel is found, not the checkout.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run(python: Path, folder: Path, code: str) -> tuple[list[str], list[str]]:
    """Run a script in a folder by a Python that is not on the path; return stdout and stderr."""
    script = folder / "first.py"
    script.write_text(code)
    keep = {"HOME", "JAVA_HOME", "LANG", "PYTHONPATH"}
    done = subprocess.run(
        [python, script],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name in keep}
        | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def steps() -> list[str]:
    """The README's code: a topic, a write, a read in Python, a read in Spark."""
    _, _, *first = (each.code for each in blocks("README.md", "python"))
    assert len(first) == 4
    return first


def check_records(lines: list[str]) -> None:
    """What the write and the read in Python print: the second record's place, and both records."""
    partition, offset = lines[0].split()
    assert partition in "0123"
    assert offset in "01"
    assert sorted(each.split(" ", 2)[2] for each in lines[1:]) == [
        "b'alice' b'2 apples'",
        "b'bob' b'1 pear'",
    ]


def test_the_readmes_first_steps_work_without_spark(tmp_path: Path) -> None:
    lines, told = run(Path(sys.executable), tmp_path, "\n".join(steps()[:3]))
    check_records(lines)
    assert told == []


@pytest.mark.long
@pytest.mark.spark
def test_the_readmes_first_steps_work_in_a_new_environment(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)

    lines, told = run(environment / "bin/python", environment.parent, "\n".join(steps()))

    check_records(lines[:3])
    shown = [[cell.strip() for cell in line.split("|")[3:5]] for line in lines[3:] if "|" in line]
    assert sorted(shown[1:]) == [["alice", "2 apples"], ["bob", "1 pear"]]
    # Java's own line cannot be turned off. No jar is looked up: that would be forty lines.
    assert [line for line in told if "incubator modules" not in line] == [
        "spark-log: starting Spark, which takes some seconds"
    ]
