"""A member task loses its executor, on a Spark standalone cluster of real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.testing.servers.standalone import StandaloneCluster
from tests.datasource.streams import append

pytestmark = [pytest.mark.spark, pytest.mark.long]

PARTITIONS, SIZE = 4, 1_000
_JOB = Path(__file__).with_name("members_job.py")
_JOB_S = 300


def test_what_a_lost_executor_had_goes_to_the_others_and_comes_once(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", num_partitions=PARTITIONS)])
    for number in range(PARTITIONS):
        append(root, "t", number, range(SIZE))
    (tmp_path / "conf").mkdir()  # empty: the cluster has no Delta
    with StandaloneCluster(workers=2, memory="1g", own_hosts=True) as cluster:
        subprocess.run(
            [sys.executable, _JOB, cluster.url, root, str(tmp_path)],
            env=os.environ
            | {
                "SPARK_CONF_DIR": str(tmp_path / "conf"),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
            },
            timeout=_JOB_S,
            check=True,
        )

    assert (tmp_path / "died").exists(), "the executor has died"
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table(columns=["partition", "offset"])
    assert rows.num_rows == PARTITIONS * SIZE
    assert rows.group_by(["partition", "offset"]).aggregate([]).num_rows == PARTITIONS * SIZE
    records, skipped = json.loads((tmp_path / "tally.json").read_text())
    assert skipped > 0, "the next attempt found the commit"
    assert records + skipped == PARTITIONS * SIZE
    committed = OffsetsTable(Cluster(root)).fetch("g")
    assert {position.offset for position in committed.values()} == {SIZE}
