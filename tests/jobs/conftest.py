"""Runs the jobs like a user: real ``spark-submit`` processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENVIRONMENT = os.environ | {"SPARK_CONF_DIR": str(HOME / "conf"), "PYSPARK_PYTHON": sys.executable}

Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def submit() -> Submit:
    """Return a function that runs ``spark-submit jobs/<script> …``: its output and exit status."""

    def run(
        script: str, *arguments: object, master: str = "local[2]"
    ) -> subprocess.CompletedProcess[str]:
        command = [BIN / "spark-submit", "--master", master, HOME / "jobs" / script, *arguments]
        return subprocess.run(
            list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, check=False
        )

    return run


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON report of a job that succeeded."""
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document
