"""``spark-submit jobs/… >> log 2>&1``: a job appends to the file, and does not truncate it."""

import json
import os
import pty
import re
import shlex
import subprocess

import pytest

from spark_log import Admin, NewTopic
from spark_log.jobs.program.progress_bar import _open_terminal
from tests.datasource.reading import create, fill
from tests.jobs.conftest import BIN, ENVIRONMENT, HOME

BEFORE = "what an earlier command printed\n" * 50

JOBS = {
    "clean.py": "--root root",
    "consume.py": "t --root root --group g --to parquet --path out",
    "produce.py": "lines.txt --format text --value value --root root --topic to",
    "replay.py": "t --root root --show 2",
    "replicate.py": "--root root",
    "reprocess.py": "t --root root --name r --transform same:same --path table",
    "transform.py": "t --root root --group f --transform same:same --to to",
}
"""A command line of each job that starts Spark, and so shows progress where it can. A controller
shows none: it prints its decisions. A mirror needs Kafka."""
WITHOUT = {"controller.py", "demo.py", "mirror.py", "serve.py"}

TITLES = ["cleaned", "consumed", "produced", "replayed", "replicated", "reprocessed", "transformed"]
END = "-- end of a job\n"
ONE_AFTER_THE_OTHER = f"""
import json, runpy, sys

for sys.argv in json.load(open("jobs.json")):
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code, f"{{sys.argv}} ended with {{end.code}}"
    print({END!r}, end="", flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a root, a file to read and a function for reprocessing."""
    monkeypatch.chdir(tmp_path)
    create("root", "t", 1)
    fill("root", "t", 0, range(10))
    Admin("root").create_topics([NewTopic("to")])
    (tmp_path / "lines.txt").write_text("a\nb\n")
    (tmp_path / "same.py").write_text("def same(records):\n    return records\n")
    return tmp_path


def test_every_job_is_tried_here():
    assert sorted(JOBS) == sorted({each.name for each in (HOME / "jobs").glob("*.py")} - WITHOUT)


@pytest.mark.long
@pytest.mark.spark
def test_a_job_adds_to_the_log_file_of_its_user(folder):
    """All jobs run one after the other in one Java process, because it takes 10 s to start."""
    log = folder / "log"
    log.write_text(BEFORE)
    (folder / "jobs.json").write_text(
        json.dumps([[str(HOME / "jobs" / job), *line.split()] for job, line in JOBS.items()])
    )
    (folder / "run_jobs.py").write_text(ONE_AFTER_THE_OTHER)
    command = shlex.join([str(BIN / "spark-submit"), "run_jobs.py"])

    done = subprocess.run(f"{command} >> log 2>&1", shell=True, env=ENVIRONMENT, check=False)

    text = log.read_text()
    assert done.returncode == 0, text
    assert text.startswith(BEFORE)
    reports = text.removeprefix(BEFORE).split(END)
    assert len(reports) == len(JOBS) + 1
    for title, report in zip(TITLES, reports, strict=False):
        assert re.search(rf"^{title} ", report, re.MULTILINE), report


def test_only_a_terminal_is_opened_and_a_file_keeps_what_it_has(tmp_path):
    file = tmp_path / "log"
    file.write_text(BEFORE)
    with file.open("a") as stderr:
        assert _open_terminal(f"/proc/self/fd/{stderr.fileno()}") is None
    assert file.read_text() == BEFORE
    assert _open_terminal(os.devnull) is None
    assert _open_terminal(str(tmp_path / "missing")) is None
    primary, secondary = pty.openpty()
    try:
        terminal = _open_terminal(f"/proc/self/fd/{secondary}")
        assert terminal is not None
        with terminal:
            print("seen", file=terminal)
        assert os.read(primary, 100) == b"seen\r\n"
    finally:
        os.close(primary)
        os.close(secondary)
