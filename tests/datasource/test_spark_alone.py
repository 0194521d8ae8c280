"""What Spark itself prints and fails with, shown by a source without any code of this project.

docs/spark.md names these two. When a test fails for a newer Spark, the page can leave them out.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_output import without_lost_workers

pytestmark = [pytest.mark.spark, pytest.mark.long]

SLOW = f"""#!/bin/sh
# Spark waits 10 seconds for this process, as for all that serve a streaming source.
case "$*" in *python_streaming_source_runner*) sleep 12;; esac
exec {sys.executable} "$@"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    folder = tmp_path_factory.mktemp("plain")
    slow = folder / "python"
    slow.write_text(SLOW)
    slow.chmod(0o755)
    keep = {"HOME", "JAVA_HOME", "LANG", "PATH", "SPARK_SUBMIT_OPTS"}
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("plain_source.py"), folder / "checkpoint", slow],
        env={name: value for name, value in os.environ.items() if name in keep},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def test_a_query_whose_process_starts_in_more_than_ten_seconds_ends_as_failed(ran) -> None:
    assert ran.stdout.splitlines()[-1] == "Python worker failed to connect back."


def test_a_read_that_ends_early_prints_the_daemons_broken_pipe(ran) -> None:
    assert ran.stdout.startswith("[Row(n=0)]")
    assert "BrokenPipeError" in ran.stderr
    assert "BrokenPipeError" not in without_lost_workers(ran.stderr), "no line of another program"
