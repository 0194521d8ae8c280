"""docs/quick-start-cluster.md: the program runs on a standalone cluster of real processes."""

import sys
from pathlib import Path

import pytest

from spark_log.testing.servers.standalone import StandaloneCluster
from tests.docs.blocks import PROJECT, block, blocks
from tests.site.following import Follower

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_the_program_writes_and_reads_on_executors(shell, folder, capsys, monkeypatch):
    program = block("docs/quick-start-cluster.md", "import sys")
    (folder / "try_log.py").write_text(program)
    monkeypatch.setenv("SPARK_CONF_DIR", str(PROJECT / "conf"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with StandaloneCluster(workers=2) as cluster:
        follower = Follower(shell, capsys, monkeypatch)
        follower.replace = {
            "spark-submit ": f"{Path(sys.executable).with_name('spark-submit')} ",
            "spark://master:7077": cluster.url,
            "/shared/log": str(folder / "log"),
        }
        follower.follow(blocks("docs/quick-start-cluster.md")[1:])
