"""``format("spark_log")`` with a client of Spark Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from tests.datasource import connect_program as program

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_client_of_spark_connect_writes_reads_and_streams(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("source", 2), NewTopic("copy", 2)])
    done = subprocess.run(
        [sys.executable, program.__file__, root, str(tmp_path / "checkpoint")],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert (found["source"], found["copy"]) == (2 * program.ROWS, 2 * program.ROWS)
    assert "did you mean 'startingOffsets'" in found["error"]
