"""``.venv/bin/python jobs/…`` with an environment that is not activated."""

import os
import subprocess
import sys

import pytest

from tests.datasource.reading import create, fill
from tests.jobs.conftest import ENVIRONMENT, HOME
from tests.spark_output import without_lost_workers

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_tasks_run_by_the_python_of_their_job(tmp_path):
    root = str(tmp_path / "root")
    create(root, "t", 1)
    fill(root, "t", 0, range(3))
    other = tmp_path / "bin/python3"  # first on the PATH, without spark-log
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho this is another Python >&2\nexit 1\n")
    other.chmod(0o755)
    kept = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("PYSPARK")}

    done = subprocess.run(
        [sys.executable, HOME / "jobs/replay.py", "t", "--root", root, "--show", "2"],
        env=kept | {"PATH": f"{other.parent}{os.pathsep}{ENVIRONMENT['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [line[:1] for line in done.stdout.splitlines()[:3]] == ["{", "{", "r"]
    assert "BrokenPipe" not in without_lost_workers(done.stderr), "--show reads all records"
