"""Tasks that die or run twice, on a Spark standalone cluster of real processes."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.testing.servers.standalone import StandaloneCluster
from tests.datasource import cluster_job as job
from tests.datasource.sink_support import committed, numbers

pytestmark = [pytest.mark.spark, pytest.mark.long]

_JOB_S = 600
_TRANSACTIONAL = ("transactional-worker", "transactional-executor", "transactional-speculative")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The directory with the job's marks and summaries, and the root to which it wrote."""
    directory = tmp_path_factory.mktemp("cluster")
    root = str(directory / "root")
    topics = ("worker", "executor", "udf", "speculative", *_TRANSACTIONAL)
    Admin(root).create_topics([NewTopic(name, num_partitions=job.PARTITIONS) for name in topics])
    (directory / "conf").mkdir()  # empty: the cluster has no Delta
    with StandaloneCluster(workers=2, memory="1g", own_hosts=True) as cluster:
        subprocess.run(
            [sys.executable, job.__file__, cluster.url, root, str(directory)],
            env=os.environ
            | {
                "SPARK_CONF_DIR": str(directory / "conf"),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
            },
            timeout=_JOB_S,
            check=True,
        )
    return directory, root


@pytest.mark.parametrize("whom", ["worker", "executor", "udf", "speculative"])
def test_every_row_is_written_once_whatever_died_or_ran_twice(
    written: tuple[Path, str], whom: str
) -> None:
    directory, root = written
    marks = sorted(path.name for path in directory.glob(f"{whom}*") if not path.suffix)
    has_one = whom in ("udf", "speculative")
    assert marks == ([whom] if has_one else [f"{whom}-1", f"{whom}-3"]), "it did take place"

    counts = Counter(number for part in numbers(root, whom) for number in part)

    assert counts == Counter(range(job.ROWS))


@pytest.mark.parametrize("whom", _TRANSACTIONAL)
def test_a_transaction_has_every_row_once_although_each_attempt_gives_others(
    written: tuple[Path, str], whom: str
) -> None:
    directory, root = written
    marks = sorted(path.name for path in directory.glob(f"{whom}*"))
    assert marks == ([whom] if "speculative" in whom else [f"{whom}-1", f"{whom}-3"])

    counts = Counter(number % job.ROWS for part in committed(root, whom) for number in part)

    assert counts == Counter(range(job.ROWS))
    if "speculative" not in whom:
        appended = sum(map(len, numbers(root, whom)))
        assert appended > job.ROWS, "an attempt that died has left records"


@pytest.mark.parametrize("whom", ["worker", "executor"])
def test_the_summary_tells_what_had_been_appended_before(
    written: tuple[Path, str], whom: str
) -> None:
    directory, _ = written
    summary = json.loads((directory / f"{whom}.json").read_text())

    assert summary["records"] == job.ROWS
    assert 0 < summary["repeatedRecords"] <= job.ROWS // 2


def test_every_row_is_read_once_although_an_executor_died(written: tuple[Path, str]) -> None:
    directory, _ = written
    assert (directory / "read").exists(), "the task has died"

    keys = (directory / "read.txt").read_text().split()

    assert Counter(map(int, keys)) == Counter(range(job.ROWS))
