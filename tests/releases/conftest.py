"""The code of old releases, from this repository's history."""

import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import spark_log

REPOSITORY = Path(spark_log.__file__).parents[1]
CLIENT = Path(__file__).with_name("old_client.py")

COMMITS = {
    "0.1": "717e6b6f",
    "0.2": "a45964c3",
    "0.3": "62574fe3",
}
"""The commit of each release that is out."""

NEWEST_IS_QUICK = [
    *(pytest.param(name, marks=pytest.mark.long) for name in [*COMMITS][:-1]),
    [*COMMITS][-1],
]
"""All releases for a parametrized test, which the quick tests run with the newest one."""


@dataclass(frozen=True)
class Release:
    """The code of a release.

    Attributes:
        name: its number, or ``present``.
        path: the directory with its packages.
    """

    name: str
    path: Path

    def start(self, work, root, **arguments):
        """Start ``old_client.py`` with this code; its answer is JSON lines on stdout."""
        return self._run([str(CLIENT), work, str(root), json.dumps(arguments)], subprocess.Popen)

    def client(self, work, root, **arguments):
        """Run ``old_client.py`` with this code to its end, and return what it told."""
        with self.start(work, root, **arguments) as process:
            answer, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return [json.loads(line) for line in answer.splitlines()]

    def command(self, *arguments):
        """Run a command of ``spark-log`` with this code."""
        return self._run(["-m", "spark_log.cli", *map(str, arguments)], subprocess.run)

    def _run(self, arguments, run):
        environment = {**os.environ, "PYTHONPATH": str(self.path)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # Elsewhere than in this repository, whose package would be found first.
        return run([sys.executable, *arguments], env=environment, cwd=self.path, **pipes)


@pytest.fixture(scope="session")
def releases(tmp_path_factory):
    """Return the releases by name, the present one as ``present``."""
    found = {"present": Release("present", REPOSITORY)}
    for name, commit in COMMITS.items():
        archive = subprocess.run(
            ["git", "archive", commit, "spark_log"],
            check=False,
            cwd=REPOSITORY,
            capture_output=True,
        )
        if archive.returncode:
            pytest.skip(f"release {name} ({commit}) is not in this clone's history")
        path = tmp_path_factory.mktemp(f"release-{name}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(path, filter="data")
        found[name] = Release(name, path)
    return found
