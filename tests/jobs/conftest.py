"""Runs the jobs like a user, by real ``spark-submit`` processes, or in the process of the test."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_log.cli import run
from spark_log.testing.spark import spark

__all__ = ["Submit", "spark", "submit"]

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


@pytest.fixture
def job(root, capfd):
    """Return a function that runs a job, and returns its exit status, stdout and stderr."""

    def job(script, *arguments):
        spec = importlib.util.spec_from_file_location(script, HOME / f"jobs/{script}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            run(module.main, argv=[*map(str, arguments), "--root", root], prog=f"{script}.py")
        return ended.value.code, *capfd.readouterr()

    return job


def reported(done):
    status, out, err = done
    assert status == 0, err
    return json.loads(out.splitlines()[-1])
