"""`read_table` of a root on an S3 server: Spark reads the files of the table by Hadoop's ``s3a``.

Hadoop's S3 client is 660 MB of jars, which Spark's Ivy downloads once.
"""

import json
import os
import subprocess
import sys

import pytest

from spark_log.testing.servers.s3_server import s3_server
from tests.datasource.table import s3a_program as program
from tests.topic_read.topics import clean, fill, make_topic

__all__ = ["s3_server"]
pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_reads_table_and_log(s3_server, tmp_path):
    root, options = f"{s3_server.new_bucket()}/root", s3_server.storage_options
    make_topic(root, options)
    fill(root, 0, 200, storage_options=options)
    clean(root, options)
    fill(root, 200, 40, storage_options=options)
    # Without the project's settings of Spark, which ask for Delta.
    environment = {name: each for name, each in os.environ.items() if name != "SPARK_CONF_DIR"}
    done = subprocess.run(
        [sys.executable, program.__file__, root],
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        input=json.dumps(options),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "240"
