"""`read_table` with a client of Spark Connect."""

import os
import subprocess
import sys

import pytest

from tests.datasource.table import connect_program as program
from tests.topic_read.topics import clean, fill, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_reads_table_and_log(tmp_path):
    root = str(tmp_path / "root")
    make_topic(root)
    fill(root, 0, 200)
    clean(root)
    fill(root, 200, 40)
    done = subprocess.run(
        [sys.executable, program.__file__, root],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "240"
